"""Foreseen circuits as decisions: which OCSes a known fault reconfigures, and which changes are refused."""

import pytest

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen, ForeseenChange
from topologies.errors import DemandError, ScenarioError
from topologies.events import FaultDetected, FaultOver, NodeStarted, Order, Reconfigure, View
from topologies.fabric import Fabric, Link, Port, Switch, equal_servers

FABRIC = Fabric(
    "pair",
    equal_servers(2, 1, 1, 1e12),
    (Switch("o", 2, "ocs", permitted=((1, 0),)), Switch("p", 2, "ocs")),
    (Link(Port("h0", 0), Port("o", 0), 1e9), Link(Port("h1", 0), Port("o", 1), 1e9)),
)
BOTH = ((0, 1), (1, 0))
DELAY = ReconfigurationDelay("drawn", 0.01)
FORESEEN = Foreseen(
    (("o", BOTH),),
    (
        ForeseenChange(("a",), (("o", ()), ("p", BOTH))),
        ForeseenChange(("b",), ()),
        ForeseenChange(("b", "a"), (("o", BOTH),)),
    ),
    DELAY,
)


def orders(*events: FaultDetected | FaultOver | NodeStarted) -> list[list[Order]]:
    """Return the orders of each of some events, one after the other."""
    state, given = None, list[list[Order]]()
    for event in events:
        state, found = FORESEEN.decide(state, View(0.0, FABRIC, {}, frozenset()), event)
        given.append(list(found))
    return given


def test_a_known_fault_reconfigures_what_is_foreseen_for_all_that_are_known() -> None:
    a, b = FaultDetected("a"), FaultDetected("b")
    of_a, of_both = [Reconfigure({"o": (), "p": BOTH})], [Reconfigure({"o": BOTH})]
    assert orders(NodeStarted("x"), a, b) == [[], of_a, of_both]
    assert orders(b, a) == [[], of_both]
    assert orders(a, FaultOver("a"), b) == [of_a, [], []]


def test_faults_that_were_not_foreseen_are_named() -> None:
    with pytest.raises(ScenarioError, match="no circuits are foreseen for a and c together"):
        orders(FaultDetected("a"), FaultDetected("c"))


def test_what_stays_stays_whatever_fails_and_has_no_changes() -> None:
    stays = Foreseen((("o", BOTH),), (), DELAY, stays=True)
    assert stays.decide(None, View(0.0, FABRIC, {}, frozenset()), FaultDetected("a"))[1] == []
    with pytest.raises(ScenarioError, match="circuits stay, and changes"):
        Foreseen((), (ForeseenChange(("a",), ()),), DELAY, stays=True)


def test_two_changes_for_the_same_faults_are_refused() -> None:
    with pytest.raises(ScenarioError, match="two changes"):
        Foreseen((), (ForeseenChange(("a", "b"), ()), ForeseenChange(("b", "a"), ())), DELAY)


@pytest.mark.parametrize(
    ("circuits", "why"),
    [
        (("q", BOTH), "'q', which is not an OCS of 'pair'"),
        (("h0", BOTH), "'h0', which is not an OCS"),
        (("o", ((0, 2),)), "port 2 of an OCS whose ports are 0 to 1"),
        (("o", ((0, 0),)), "port 0 lights itself"),
    ],
)
def test_circuits_that_cannot_be_lit_are_named(
    circuits: tuple[str, tuple[tuple[int, int], ...]], why: str
) -> None:
    for foreseen in (
        Foreseen((circuits,), (), DELAY),
        Foreseen((), (ForeseenChange(("a",), (circuits,)),), DELAY),
    ):
        with pytest.raises((ScenarioError, DemandError), match=why):
            foreseen.bind(FABRIC, None, None, 0, None)


def test_what_an_ocs_does_not_permit_is_named() -> None:
    three = Fabric("three", FABRIC.servers, (Switch("o", 3, "ocs", permitted=((1, 0, -1),)),), FABRIC.links)
    with pytest.raises(ScenarioError, match="OCS o does not permit the circuits 0>2 2>0"):
        Foreseen((("o", ((0, 2), (2, 0))),), (), DELAY).bind(three, None, None, 0, None)
