"""Controllers of regions, event by event."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from controller.circuits import regional
from controller.circuits.regional import Regional, Turn
from controller.schedulers.demand import Matrix
from controller.schedulers.mfabric import NicMapping, Variant, circuits_of, region_circuits
from topologies.errors import DemandError
from topologies.events import Event, FaultDetected, Hold, NodeDone, NodeStarted, Order, Reconfigure, View
from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit
from topologies.mfabric import Region, mfabric_fabric, regions

FABRIC = mfabric_fabric(8, 4, gpus=1, nics=3, packet_nics=1)
"""Two regions of four servers, two circuit NICs each."""
REGION, SECOND = regions(FABRIC)
HEAVY = np.array([[0, 9, 0, 0], [5, 0, 0, 0], [0, 0, 0, 4], [0, 0, 8, 0]], dtype=float)
LIGHT = HEAVY[[0, 2, 1, 3]][:, [0, 2, 1, 3]]


def shown(demand: Matrix, region: Region = REGION) -> tuple[Circuit, ...]:
    """Return the circuits of a region for a demand, nothing being lit."""
    return circuits_of(FABRIC, region, region_circuits(FABRIC, region, demand)).pairs


def played(
    turns: Mapping[str, Sequence[Turn]], events: Sequence[Event], failed: frozenset[Port] = frozenset()
) -> list[Sequence[Order]]:
    """Return the orders of each event."""
    controllers, state, found = Regional(FABRIC, turns), None, []
    for event in events:
        state, orders = controllers.decide(state, View(0.0, FABRIC, {}, failed), event)
        found.append(orders)
    return found


def reconfigured(orders: Sequence[Order]) -> list[str]:
    """Return the OCSes that are reconfigured."""
    return [ocs for order in orders if isinstance(order, Reconfigure) for ocs in order.circuits]


def test_known_demands_are_lit_when_the_turn_before_has_ended() -> None:
    turns = {"ocs0": [Turn("a", HEAVY), Turn("b", LIGHT), Turn("c", LIGHT.T)]}
    events: list[Event] = [
        NodeStarted("warm up"),
        NodeStarted("a"),
        NodeDone("a"),
        NodeStarted("b"),
        NodeDone("b"),
    ]
    assert Regional(FABRIC, turns).first == {"ocs0": shown(HEAVY)}
    first, *orders = played(turns, events)
    assert first == []
    assert orders[0] == [Hold("a", ("ocs0",))]
    (change,) = orders[1]
    assert isinstance(change, Reconfigure)
    assert set(change.circuits["ocs0"]) != set(shown(HEAVY))
    assert orders[2:] == [[Hold("b", ("ocs0",))], []]  # the transpose has the same circuits


def test_what_is_known_at_its_start_is_held_behind_its_own_circuits() -> None:
    turns = {"ocs0": [Turn("a", HEAVY), Turn("b", LIGHT, "start"), Turn("c", HEAVY, "never")]}
    events: list[Event] = [NodeStarted("a"), NodeDone("a"), NodeStarted("b"), NodeDone("b"), NodeStarted("c")]
    orders = played(turns, events)
    assert orders[1] == []
    assert [type(order) for order in orders[2]] == [Reconfigure, Hold]
    assert orders[3:] == [[], [Hold("c", ("ocs0",))]]


def test_circuits_stay_while_a_turn_is_under_way() -> None:
    turns = {"ocs0": [Turn("a", HEAVY), Turn("b", LIGHT, "start"), Turn("c", LIGHT)]}
    events: list[Event] = [NodeStarted("a"), NodeStarted("b"), NodeDone("a"), NodeDone("b")]
    orders = played(turns, events)
    assert orders[1:3] == [[Hold("b", ("ocs0",))], []]
    assert [type(order) for order in orders[3]] == [Reconfigure]


def test_regions_are_apart_and_other_nodes_change_nothing() -> None:
    turns = {"ocs0": [Turn("a", HEAVY), Turn("b", LIGHT)], "ocs1": [Turn("x", HEAVY), Turn("y", HEAVY)]}
    events: list[Event] = [NodeStarted("a"), NodeDone("x"), NodeDone("nothing"), NodeDone("a")]
    assert Regional(FABRIC, turns).first == {"ocs0": shown(HEAVY), "ocs1": shown(HEAVY, SECOND)}
    first, starts, *orders = played(turns, [NodeStarted("x"), *events])
    assert first == [Hold("x", ("ocs1",))]
    assert starts == [Hold("a", ("ocs0",))]
    assert orders[:2] == [[], []]
    assert [ocs for order in orders[2] if isinstance(order, Reconfigure) for ocs in order.circuits] == [
        "ocs0"
    ]


def test_what_failed_gets_no_circuit() -> None:
    nic = FABRIC.nic_port(REGION.nics[0][0])
    orders = played({"ocs0": [Turn("a", HEAVY)]}, [NodeStarted("warm up")], frozenset({nic}))
    (change,) = orders[0]
    assert isinstance(change, Reconfigure)
    port = FABRIC.peer(nic).number
    assert port not in {end for circuit in change.circuits["ocs0"] for end in circuit}
    assert len(change.circuits["ocs0"]) < len(shown(HEAVY))


def test_before_the_first_turn_circuits_are_those_of_the_iteration_before() -> None:
    """A first turn whose demand is known needs none; without either they are random, and by the seed."""
    late = {"ocs0": [Turn("a", HEAVY, "start")]}
    assert Regional(FABRIC, late, before={"ocs0": LIGHT}).first == {"ocs0": shown(LIGHT)}
    known = Regional(FABRIC, {"ocs0": [Turn("a", HEAVY)]}, before={"ocs0": LIGHT})
    assert known.first == {"ocs0": shown(HEAVY)}
    drawn = [Regional(FABRIC, late, seed=seed).first["ocs0"] for seed in range(20)]
    assert len(set(drawn)) > 1
    assert drawn[3] == Regional(FABRIC, late, seed=3).first["ocs0"]


def test_what_is_refused() -> None:
    with pytest.raises(DemandError, match="'what is before the job' has a demand of shape"):
        Regional(FABRIC, {"ocs0": [Turn("a", HEAVY)]}, before={"ocs0": HEAVY[:3, :3]})
    with pytest.raises(DemandError, match="no region"):
        Regional(FABRIC, {"ocs9": []})
    with pytest.raises(DemandError, match="a demand of shape"):
        Regional(FABRIC, {"ocs0": [Turn("a", HEAVY[:3, :3])]})


def test_servers_without_packet_nics_ask_for_a_circuit_to_one_that_has_some() -> None:
    turns = {"ocs0": [Turn("a", HEAVY), Turn("b", HEAVY)]}
    dead = frozenset(FABRIC.both_ends(FABRIC.nic_port(Nic(server, 0)) for server in (0, 1)))
    first = Regional(FABRIC, turns)
    state, _ = first.decide(None, View(0.0, FABRIC, {}, frozenset()), NodeStarted("a"))
    state, orders = first.decide(state, View(0.0, FABRIC, {}, dead), FaultDetected("both"))
    (order,) = orders  # in the middle of the turn, since what is relayed waits for it
    assert isinstance(order, Reconfigure)
    pairs = {(a // 2, b // 2) for a, b in order.circuits["ocs0"]}  # two circuit NICs a server
    assert all(any((server, relay) in pairs for relay in (2, 3)) for server in (0, 1))
    assert (0, 1) in pairs  # has kept one of two
    _, orders = first.decide(state, View(0.0, FABRIC, {}, dead), NodeDone("a"))
    assert orders == []


def test_two_servers_may_have_one_relay() -> None:
    """Its two circuit NICs go to one each, whoever asked first and whatever the demand."""
    dead = frozenset(FABRIC.both_ends(FABRIC.nic_port(Nic(server, 0)) for server in (0, 1, 2)))
    for seed in range(40):
        demand = np.random.default_rng(seed).random((4, 4)) ** 8
        np.fill_diagonal(demand, 0.0)
        failed = dead | FABRIC.both_ends([FABRIC.nic_port(Nic(seed % 3, 1))])
        last = FABRIC.both_ends([FABRIC.nic_port(Nic(seed % 3, 2))])  # one server has no NIC left
        orders = played({"ocs0": [Turn("a", demand)]}, [NodeStarted("a")], frozenset(failed | last))
        circuits = [order for order in orders[0] if isinstance(order, Reconfigure)][-1].circuits["ocs0"]
        pairs = {(a // 2, b // 2) for a, b in circuits}
        assert {server for server, far in pairs if far == 3} == {0, 1, 2} - {seed % 3}


def test_circuits_of_a_run_are_remembered_and_those_of_more_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[frozenset[Nic]] = []

    def counted(
        fabric: Fabric,
        region: Region,
        demand: Matrix,
        *,
        last: NicMapping,
        failed: frozenset[Nic],
        variant: Variant,
    ) -> NicMapping:
        made.append(failed)
        return region_circuits(fabric, region, demand, last=last, failed=failed, variant=variant)

    monkeypatch.setattr(regional, "region_circuits", counted)
    controllers = Regional(FABRIC, {"ocs0": [Turn("a", HEAVY), Turn("b", LIGHT)]})

    def first(*failed: int) -> None:
        ports = frozenset(FABRIC.nic_port(REGION.nics[server][0]) for server in failed)
        controllers.decide(None, View(0.0, FABRIC, {}, ports), NodeStarted("warm up"))

    for failed in ((0,), (1,)):  # as many as a run asks for: before the first turn, and two turns
        first(*failed)
    for failed in ((0,), (1,)):
        first(*failed)
    assert len(made) == 3
    first(2)  # what was lit before the first turn is forgotten
    first(0)
    assert len(made) == 4
    first(3)
    first(0)
    assert len(made) == 6, "what was asked longest ago was forgotten"


def test_servers_with_a_circuit_to_a_relay_ask_for_none() -> None:
    turns = {"ocs0": [Turn("a", HEAVY)]}
    dead = frozenset(FABRIC.both_ends([FABRIC.nic_port(Nic(0, 0))]))
    events: list[Event] = [NodeStarted("a"), FaultDetected("one")]
    assert played(turns, events, dead)[1] == []
