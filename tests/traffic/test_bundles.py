"""Bundles: timed alone or not, all take the time of fluids."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traffic.clock import NEVER, in_seconds, ps
from traffic.fluid.bundles import Bundle, Bundles, Over, crossed
from traffic.fluid.network import FluidNetwork

LINKS, BYTES_S = 4, 10.0
drawn = st.lists(
    st.tuples(
        st.integers(0, 30).map(float),
        st.lists(st.tuples(st.integers(0, LINKS - 1), st.integers(1, 100)), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=8,
)


def ends_s(posted: list[tuple[float, list[tuple[int, int]]]], *, may_be_alone: bool) -> dict[int, float]:
    """Return when each bundle ends; its strands cross a link each."""
    network = FluidNetwork([8 * BYTES_S] * LINKS)

    def add(several: Sequence[Over]) -> list[tuple[range, range]]:
        found = []
        for over in several:
            pool = network.pools
            weight = 1.0 if len(over) > 1 else None
            flows = network.add_flows([[int(str(link))] for link in over], coupled_weight=weight)
            found.append((flows, range(pool, network.pools)))
        return found

    bundles, ends = Bundles(network, add), dict[int, float]()

    def advance(until_ps: int) -> None:
        while (at_ps := min(bundles.next_ps, network.next_ps)) <= until_ps and at_ps < NEVER:
            found = [each for _, tag, _ in network.advance(at_ps) if (each := bundles.arrived(tag))]
            found += [bundle for _, bundle in bundles.ended()]
            ends.update((op, in_seconds(network.now_ps)) for bundle in found for op in bundle.ops)
        network.advance(until_ps)

    for number, (at_s, strands) in enumerate(sorted(posted, key=lambda each: each[0])):
        advance(ps(at_s))
        links = tuple(link for link, _ in strands)
        sizes = np.array([size for _, size in strands])
        bundle = Bundle((number,), sizes, crossed([[link] for link in links]), lambda links=links: links)  # type: ignore[misc]
        bundles.start([bundle], may_be_alone=may_be_alone)
    advance(ps(1e6))
    return ends


@given(drawn)
def test_bundles_that_are_timed_alone_end_as_fluids_do(
    posted: list[tuple[float, list[tuple[int, int]]]],
) -> None:
    timed, fluids = (ends_s(posted, may_be_alone=alone) for alone in (True, False))
    assert timed.keys() == fluids.keys() == set(range(len(posted)))
    for number, end_s in fluids.items():
        assert timed[number] == pytest.approx(end_s, rel=1e-9, abs=1e-9)
