"""All-to-alls between nodes over the fluid backend: the times of their closed forms, circuits and all."""

import pytest

from testbed.run.fluid_backend import FluidBackend
from tests.testbed.all_to_all_cases import DELAY_S, AllToAllCase, exchange, over_a_ring, sent_s


def fluid_s(case: AllToAllCase) -> float:
    """Return how long a case takes over fluids [s]."""
    delays_s = {ocs.name: DELAY_S for ocs in case.fabric.switches}
    return sent_s(case.run(FluidBackend(case.fabric, delays_s)))


@pytest.mark.parametrize("by_distance", [False, True])
@pytest.mark.parametrize("bundles", [2, 3, 4])
def test_a_binary_exchange_takes_its_closed_form_and_a_delay_for_each_round_that_waits(
    bundles: int, by_distance: bool
) -> None:
    case = exchange(bundles, by_distance=by_distance)
    assert fluid_s(case) == pytest.approx(case.closed_form_s, rel=1e-9)


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("bundles", [2, 3, 4])
def test_a_ring_takes_its_closed_form(bundles: int, both_ways: bool) -> None:
    case = over_a_ring(bundles, both_ways=both_ways)
    assert fluid_s(case) == pytest.approx(case.closed_form_s, rel=1e-9)
