"""Messages that wait for light, and go over all light paths between their servers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Nic, Port
from topologies.light import Circuit
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.messages import Messages
from traffic.ops import DARK, Ops, Part
from traffic.scheme import OnceLit
from traffic.spraying.policy import QueuePair

FABRIC = parallel_ocs_fabric(3, 2)


def view(lit: dict[str, tuple[Circuit, ...]], *failed: Port) -> View:
    """Return what is seen of two OCSes, dark but for what is lit."""
    return View(0.0, FABRIC, {"ocs0": (), "ocs1": (), **lit}, FABRIC.both_ends(failed))


def messages(*rows: tuple[int, int, int]) -> Messages:
    """Return messages: source, destination, bytes."""
    return Messages(*np.array(rows, dtype=np.int64).T)


@pytest.mark.parametrize(
    ("lit", "failed", "joined"),
    [
        ({}, (), False),
        ({"ocs0": ((0, 1), (1, 0))}, (), True),
        ({"ocs0": ((0, 1),)}, (), False),
        ({"ocs0": ((0, 1),), "ocs1": ((1, 0),)}, (), False),
        ({"ocs0": ((0, 2), (2, 0))}, (), False),
        ({"ocs0": ((0, 1), (1, 0))}, (Port("h1", 0),), False),
        ({"ocs0": ((0, 1), (1, 0))}, (Port("h1", 1),), True),
    ],
)
def test_light_joins_servers_if_it_goes_both_ways_over_what_works(
    lit: dict[str, tuple[Circuit, ...]], failed: tuple[Port, ...], joined: bool
) -> None:
    scheme, asked = OnceLit(), messages((0, 1, 10))
    under_way = Ops((Part(asked, of=np.array([7])),))
    lowered = scheme.lower(under_way, view(lit, *failed))
    waits = [part for part in lowered.parts if part.medium == DARK and len(part)]
    assert [part.of.tolist() for part in waits] == ([] if joined else [[7]])
    if not joined:
        with pytest.raises(ScenarioError, match="no circuit joins server 0 to server 1"):
            scheme.place(view(lit, *failed), asked)


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=8), both=st.booleans())
def test_all_light_paths_share_a_message_evenly(sizes: list[int], both: bool) -> None:
    there, elsewhere = ((0, 1), (1, 0)), ((1, 2), (2, 1))
    lit: dict[str, tuple[Circuit, ...]] = {"ocs0": there, "ocs1": there if both else elsewhere}
    placed = OnceLit().place(view(lit), messages(*((0, 1, size) for size in sizes)))
    paths = [QueuePair(Nic(0, ocs), Nic(1, ocs)) for ocs in range(1 + both)]
    carried = np.zeros((len(sizes), 2), dtype=np.int64)
    for qp, message, size in zip(placed.qp, placed.message, placed.bytes, strict=True):
        carried[message, paths.index(placed.queue_pairs[qp])] += size
    assert carried.sum(axis=1).tolist() == sizes
    assert (placed.bytes > 0).all()
    if both:
        assert np.abs(carried[:, 0] - carried[:, 1]).max() <= 1
