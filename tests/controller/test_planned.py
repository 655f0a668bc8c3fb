"""What a plan decides: its schedule first, then packets or clean-up rounds for what is left over."""

import numpy as np
import pytest
from numpy.typing import NDArray

from controller.circuits.planned import CLEANUP_ROUNDS, Planned
from controller.schedulers.schedule import Schedule, Slot
from topologies.errors import StuckError
from topologies.events import NodeDone, NodeStarted, ProgramsEnded, SendRest, Show, TimedCircuits, View
from topologies.fabric import Fabric, Link, Port, Switch, equal_servers
from topologies.parallel_ocs import parallel_ocs_fabric

PLAN = Schedule(((Slot(np.array([1, 0, -1, -1]), 0.5),), ()), 0.01)
ROUND = Schedule(((), (Slot(np.array([-1, -1, 3, 2]), 0.25),)), 0.01)
LEFT = ProgramsEnded(((0, 4, 10), (1, 5, 20)))
"""What two GPUs of server 0 lack towards server 2."""


def view(fabric: Fabric) -> View:
    return View(0.0, fabric, {}, frozenset())


def planned(asked: list[NDArray[np.int64]], *, rest: bool) -> Planned:
    """Return a plan that writes down what its clean-up rounds are asked for."""

    def cleanup(missing: NDArray[np.int64], ocses: int) -> Schedule:
        asked.append(missing)
        return Schedule(ROUND.switches[-ocses:], ROUND.delay)

    return Planned(("ocs0", "ocs1"), PLAN, cleanup, rest=rest)


def half_joined() -> Fabric:
    """Return servers on two OCSes; 0 and 1 are on one packet switch, 2 and 3 on another."""
    ends = [(nic, f"ocs{nic}", server) for nic in range(2) for server in range(4)]
    ends += [(2, f"eps{server // 2}", server) for server in range(4)]
    links = (Link(Port(f"h{port}", nic), Port(name, port), 1e9) for nic, name, port in ends)
    switches = [Switch(f"ocs{k}", 4, "ocs") for k in range(2)] + [Switch(f"eps{k}", 4) for k in range(2)]
    return Fabric("halves", equal_servers(4, 3, 2, 1e12), tuple(switches), tuple(links))


@pytest.mark.parametrize("rest", [False, True])
def test_the_schedule_is_shown_once_from_the_first_node_on(rest: bool) -> None:
    plan, seen = planned([], rest=rest), view(parallel_ocs_fabric(4, 2, gpus=2))
    shown = Show((("ocs0", (TimedCircuits(((0, 1), (1, 0)), 0.5),)), ("ocs1", ())), exact=rest)
    state, orders = plan.decide(None, seen, NodeStarted("a"))
    assert orders == [shown]
    assert plan.decide(state, seen, NodeDone("a")) == (state, [])
    assert plan.decide(state, seen, NodeStarted("b")) == (state, [])


def test_what_is_left_over_goes_over_packets_where_they_join_all_that_lack_bytes() -> None:
    asked: list[NDArray[np.int64]] = []
    plan = planned(asked, rest=True)
    for left in (LEFT, ProgramsEnded(())):
        assert plan.decide(1, view(parallel_ocs_fabric(4, 2, packet_switch=True, gpus=2)), left) == (
            1,
            [SendRest()],
        )
    assert plan.decide(1, view(half_joined()), ProgramsEnded(((0, 2, 10),))) == (1, [SendRest()])
    assert not asked


@pytest.mark.parametrize(
    ("fabric", "rest"),
    [
        (parallel_ocs_fabric(4, 2, gpus=2), False),
        (parallel_ocs_fabric(4, 2, gpus=2), True),
        (half_joined(), True),
        (parallel_ocs_fabric(4, 2, packet_switch=True, gpus=2), False),
    ],
)
def test_else_it_goes_into_clean_up_rounds_until_there_were_too_many(fabric: Fabric, rest: bool) -> None:
    asked: list[NDArray[np.int64]] = []
    plan, state = planned(asked, rest=rest), 1
    shown = Show((("ocs0", ()), ("ocs1", (TimedCircuits(((2, 3), (3, 2)), 0.25),))))
    owed = np.zeros((4, 4))
    owed[0, 2] = 30
    for count in range(1, CLEANUP_ROUNDS + 1):
        assert plan.decide(state, view(fabric), LEFT) == (count + 1, [shown])
        assert (asked[-1] == owed).all()
        state = count + 1
    with pytest.raises(StuckError, match=f"30 bytes are missing after {CLEANUP_ROUNDS} clean-up rounds"):
        plan.decide(state, view(fabric), LEFT)


def test_where_nothing_is_left_over_and_no_packets_are_asked_for_nothing_is_ordered() -> None:
    mixed = view(parallel_ocs_fabric(4, 2, packet_switch=True, gpus=2))
    assert planned([], rest=False).decide(1, mixed, ProgramsEnded(())) == (1, [])


def test_clean_up_rounds_are_over_ocses_that_work() -> None:
    asked: list[NDArray[np.int64]] = []
    fabric = parallel_ocs_fabric(4, 2, gpus=2)
    for broken, works in (("ocs0", "ocs1"), ("ocs1", "ocs0")):
        lost = View(0.0, fabric, {}, frozenset({Port(broken, 0)}))
        _, (order,) = planned(asked, rest=False).decide(1, lost, LEFT)
        assert isinstance(order, Show)
        assert order.programs == ((works, (TimedCircuits(((2, 3), (3, 2)), 0.25),)),)
        assert asked.pop()[0, 2] == 30


def test_where_each_ocs_has_lost_a_port_each_cleans_up_what_it_can() -> None:
    asked: list[NDArray[np.int64]] = []
    fabric = parallel_ocs_fabric(4, 2)
    left = ProgramsEnded(((0, 2, 10), (1, 3, 20)))
    lost = View(0.0, fabric, {}, frozenset({Port("ocs0", 0), Port("ocs1", 1)}))
    _, (order,) = planned(asked, rest=False).decide(1, lost, left)
    assert isinstance(order, Show)
    assert [ocs for ocs, _ in order.programs] == ["ocs0", "ocs1"]
    assert [np.argwhere(part).tolist() for part in asked] == [[[1, 3]], [[0, 2]]]
    apart = View(0.0, fabric, {}, frozenset({Port("ocs0", 0), Port("ocs1", 2)}))
    with pytest.raises(StuckError, match="no OCS joins servers 0 and 2 any more"):
        planned([], rest=False).decide(1, apart, left)
