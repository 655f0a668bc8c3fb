"""Lanes over circuits beside a network: what a change of light waits for."""

from typing import cast

import pytest

from testbed.live.lanes import LiveLanes
from topologies.fabric import Nic
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.spraying.policy import QueuePair
from traffic.transports.engine import Engine

FABRIC = parallel_ocs_fabric(4, 1)
PAIRS = QueuePair(Nic(0, 0), Nic(1, 0)), QueuePair(Nic(2, 0), Nic(3, 0))


class Stuck:
    """Never delivers what queue pairs have on the way."""

    def hold(self, numbers: object) -> None:
        """Send nothing anyway."""

    def drained(self, number: int) -> bool:
        """Return that something of it is on its way."""
        return False


@pytest.fixture
def lanes() -> LiveLanes:
    """Return two lanes that a change waits for."""
    found = LiveLanes(FABRIC, cast(Engine, Stuck()), None, lambda _number, _route: None)
    found.add(dict(enumerate(PAIRS)))
    found.hold({0, 1}, 7)
    return found


def test_a_change_has_drained_once_all_lanes_are_closed_that_it_waits_for(lanes: LiveLanes) -> None:
    lanes.forget(0)
    lanes.resume((0,))  # as the core does with every lane that it closes
    assert (lanes.drains, lanes.drained()) == (True, [])
    lanes.forget(1)
    lanes.resume((1,))
    assert lanes.drained() == [7]
    assert not lanes.drains


def test_a_change_whose_lanes_go_on_is_not_waited_for(lanes: LiveLanes) -> None:
    lanes.resume((0, 1))
    assert (lanes.drains, lanes.drained()) == (False, [])
