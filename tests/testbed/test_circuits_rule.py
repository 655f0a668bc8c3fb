"""Rules for circuits: what they see, what becomes of what is on its way, and what is refused."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from controller.circuits.rule import Rule
from testbed.experiment.circuits_registry import CIRCUITS, CircuitsRule, OwnCircuits
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled
from testbed.model.predict import predict
from topologies.errors import LightrailError, ScenarioError, StuckError
from topologies.events import (
    Event,
    Hold,
    Lit,
    NodeDone,
    NodeStarted,
    Order,
    Reconfigure,
    SetTimer,
    Show,
    TimedCircuits,
    TimerFired,
    View,
)
from topologies.fabric import Nic, Port
from topologies.light import duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.effects import Slow
from traffic.faults import Fault, When, cut
from traffic.job import Collective, Compute, Node, chain
from traffic.scheme_setup import ONCE_LIT, WHILE_LIT, WhileLitSetup

FABRIC = parallel_ocs_fabric(3, 2)
"""Three servers with a NIC on each of two OCSes."""
DELAY_S, MB = 1e-4, 10**6
RATE = 100e9 / 8
OCSES = ("ocs0", "ocs1")
MINE = ReconfigurationDelay("mine", DELAY_S)
SLOW = ReconfigurationDelay("slow", 1.0)
Decide = Callable[[object, View, Event], object]
NOTHING: Decide = lambda state, view, event: (state, [])  # noqa: E731


@dataclass(frozen=True)
class By:
    """A rule that decides by a function."""

    decides: Decide
    first: object = ()
    delay: ReconfigurationDelay = MINE
    ocses: tuple[str, ...] = OCSES

    def bind(self, **_: object) -> Rule:
        """Return the rule."""
        return Rule(self, dict.fromkeys(self.ocses, self.delay), dict(self.first))  # type: ignore[call-overload,arg-type]

    def decide(self, state: object, view: View, event: Event) -> object:
        """Return what the function says."""
        return self.decides(state, view, event)


def predicted(rule: object, *nodes: Node, faults: Sequence[Fault] = ()) -> float:
    """Return how long nodes take, one after the other."""
    return predict(asked(rule, *nodes, faults=faults)).iteration_s


def asked(rule: object, *nodes: Node, faults: Sequence[Fault] = ()) -> Experiment:
    """Return an experiment of nodes, one after the other."""
    return Experiment(
        FABRIC,
        chain("job", 3, nodes),
        ONCE_LIT,
        circuits=cast(OwnCircuits, rule),
        faults=tuple(faults),
    )


def sends(*messages: tuple[int, int, int]) -> Collective:
    """Return an all-to-all of messages in megabytes."""
    owed = np.zeros((3, 3), dtype=np.int64)
    for source, destination, size in messages:
        owed[source, destination] = size * MB
    return Collective("sends", AllToAll(Demand("some", owed)))


def later(*messages: tuple[int, int, int]) -> Collective:
    """Return messages that come after the others."""
    return Collective("later", PointToPoint(messages))


def lights(**circuits: Sequence[tuple[int, int]]) -> Reconfigure:
    """Return the order of duplex circuits."""
    return Reconfigure({ocs: duplex(pairs) for ocs, pairs in circuits.items()})


# What a rule sees


def test_what_is_owed_shrinks_as_it_arrives_and_what_comes_later_is_not_owed() -> None:
    seen: list[list[int]] = []

    def decide(state: object, view: View, event: Event) -> object:
        seen.append([int(view.owed()[a, b]) for a, b in ((0, 1), (1, 2))])
        if event == NodeStarted("sends"):
            return state, [lights(ocs0=[(0, 1)], ocs1=[(1, 2)]), SetTimer("then", DELAY_S + 4e-4)]
        return state, []

    predicted(By(decide), sends((0, 1, 10), (1, 2, 2)), later((1, 2, 10 * MB)))
    # Started, the OCSes lit, the timer, the first done, the second started and done.
    owed = [[10, 2], [10, 2], [5, 0], [0, 0], [0, 10], [0, 0]]
    assert seen == [[size * MB for size in sizes] for sizes in owed]


def test_what_waits_for_another_message_is_not_owed_yet() -> None:
    seen: list[list[int]] = []

    def decide(state: object, view: View, event: Event) -> object:
        seen.append(view.owed().ravel().tolist())
        return state, [lights(ocs0=[(0, 1)], ocs1=[(0, 1)])] if event == NodeStarted("ring") else []

    predicted(By(decide), Collective("ring", Ring(((0, 1),), 8 * MB)))
    step = [0, 4 * MB, 0, 4 * MB, 0, 0, 0, 0, 0]
    assert seen == [step, step, [0] * 9]


def test_it_sees_what_was_ordered_and_held_before_that_is_lit() -> None:
    seen: list[View] = []

    def decide(state: object, view: View, event: Event) -> object:
        seen.append(replace(view, lit=dict(view.lit), ordered=dict(view.ordered)))
        if event == NodeStarted("sends"):
            return state, [lights(ocs0=[(0, 1)]), Hold("sends", ("ocs0",)), SetTimer("now", 0.0)]
        return state, []

    predicted(By(decide), sends((0, 1, 10)))
    dark, lit = {"ocs0": (), "ocs1": ()}, {"ocs0": duplex([(0, 1)]), "ocs1": ()}
    assert [(view.lit, view.ordered, view.held) for view in seen[:3]] == [
        (dark, dark, ()),
        (dark, lit, ("sends",)),
        (lit, lit, ("sends",)),
    ]


def test_it_sees_ports_and_rates_that_are_known_to_have_failed() -> None:
    seen: list[View] = []

    def decide(state: object, view: View, event: Event) -> object:
        seen.append(view)
        orders = [lights(ocs0=[(0, 1)], ocs1=[(0, 1)])] if event == NodeStarted("sends") else []
        return state, orders

    fault = cut("nic", (Port("h0", 1),), after_s=2e-4)
    slow = Fault("slow", (Slow((Port("h1", 0),), 0.5),), When(after_s=3e-4), 0.0)
    predicted(By(decide), sends((0, 1, 10)), faults=[fault, slow])
    assert (seen[0].failed, dict(seen[0].rates)) == (frozenset(), {})
    assert Port("h0", 1) in seen[-1].failed
    assert dict(seen[-1].rates) == {Nic(1, 0): 0.5}


# What becomes of what is on its way


def by_time(*orders: tuple[float, Order]) -> Decide:
    """Return what orders something at times after the start."""

    def decide(state: object, view: View, event: Event) -> object:
        if isinstance(event, NodeStarted):
            return state, [SetTimer(str(number), at_s) for number, (at_s, _) in enumerate(orders)]
        return state, [orders[int(event.name)][1]] if isinstance(event, TimerFired) else []

    return decide


def test_the_rest_of_a_message_goes_over_another_circuit_once_its_own_has_ended() -> None:
    both = lights(ocs0=[(1, 2)], ocs1=[(0, 1)])
    rule = By(by_time((0.0, lights(ocs0=[(0, 1)])), (5e-4, both)))
    took_s = predicted(rule, sends((0, 1, 10), (1, 2, 5)))
    # Light at 0.1 ms; dark from 0.5 to 0.6 ms; 10 MB take 0.8 ms.
    assert took_s == pytest.approx(1e-4 + 10 * MB / RATE + 1e-4)


def test_a_message_is_spread_over_circuits_that_are_lit_later() -> None:
    rule = By(by_time((0.0, lights(ocs0=[(0, 1)])), (4e-4, lights(ocs1=[(0, 1)]))))
    # Alone from 0.1 to 0.5 ms, half of the 10 MB; then over two.
    assert predicted(rule, sends((0, 1, 10))) == pytest.approx(5e-4 + 5 * MB / RATE / 2)


def test_what_is_lit_first_carries_at_once() -> None:
    rule = By(lambda state, view, event: (state, []), first=(("ocs0", duplex([(0, 1)])),))
    assert predicted(rule, sends((0, 1, 10))) == pytest.approx(10 * MB / RATE)


# What is written down


def test_rules_are_read_back_strictly() -> None:
    own = CIRCUITS.named(f"{__name__}:Fixed", {"delay_s": 0.5})
    assert own == Fixed(0.5)
    foreseen = Foreseen((("ocs0", duplex([(0, 1)])),), (), MINE, stays=False)
    for rule in (own, foreseen):
        assert CIRCUITS.of_document(CIRCUITS.document(rule)) == rule
    for document, why in (
        ({"rule": "rotor"}, "unknown rule for circuits 'rotor'; name scheduled, foreseen, regional or"),
        ({"rule": "foreseen", "fields": {"first": []}}, "changes"),
        ({"rule": "foreseen", "fields": {"first": [], "changes": [], "delay": {}, "more": 1}}, "more"),
        ({"rules": 1}, "rule"),
        ([], "rule"),
    ):
        with pytest.raises(LightrailError, match=why):
            CIRCUITS.of_document(document)
    with pytest.raises(ScenarioError, match="unknown rule for circuits 'rotor'"):
        CIRCUITS.named("rotor")
    with pytest.raises(ScenarioError, match="is not a rule for circuits"):
        CIRCUITS.named("topologies.fabric:Port")


@dataclass(frozen=True)
class Fixed:
    """A rule that a text names."""

    delay_s: float = 1.0

    def bind(self, **_: object) -> Rule:
        """Return no rule that decides anything."""
        return By(NOTHING).bind()


# What is refused


def always(*orders: object) -> By:
    """Return a rule that orders the same after each event."""
    return By(lambda state, view, event: (state, orders))


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (object(), "is not a rule for circuits: it has no bind"),
        (By(NOTHING, ocses=("ocs7",)), "has a delay for 'ocs7', which is not an OCS"),
        (By(NOTHING, ocses=()), "has a delay for no OCS; 'parallel_ocs' has ocs0, ocs1"),
        (By(NOTHING, first=(("ocs0", ((0, 0),)),)), "from the start of ocs0"),
        (By(NOTHING, first=(("ocs0", "01"),)), "circuits are a tuple of pairs of ports"),
        (By(NOTHING, first=(("ocs1", ()),), ocses=("ocs0",)), "'ocs1' shows circuits from the start"),
        (By(lambda state, view, event: None), "decide returned None, and not"),
        (By(lambda state, view, event: (state, Reconfigure({}))), "orders are a list or a tuple, not"),
        (By(lambda state, view, event: 1 / 0), "raised ZeroDivisionError"),
        (By(lambda state, view, event: view.lit.clear()), "raised AttributeError"),  # type: ignore[attr-defined]
        (always("light"), "'light' is not an order"),
        (replace(always(lights(ocs1=[(0, 1)])), ocses=("ocs0",)), "ordered something of 'ocs1'; it"),
        (always(Reconfigure({"ocs0": [(0, 1)]})), "circuits are a tuple of pairs"),  # type: ignore[dict-item]
        (always(lights(ocs0=[(0, 9)])), "port 9"),
        (always(SetTimer("x", -1.0)), "ordered after_s = -1.0, which is not a time"),
        (always(SetTimer("x", float("nan"))), "ordered after_s = nan, which is not a time"),
        (always(Reconfigure({}, deadline_s=float("inf"))), "ordered deadline_s = inf, which is not a time"),
        (always(Reconfigure({}, at_deadline="drop")), "at_deadline is cut or refuse, not 'drop'"),  # type: ignore[arg-type]
        (always(Show((("ocs0", (TimedCircuits((), -1.0),)),))), "ordered lit_s = -1.0, which is not"),
        (always(Hold("sends", ("ocs7",))), "ordered something of 'ocs7'"),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_a_sentence(rule: object, why: str) -> None:
    with pytest.raises(LightrailError, match=why):
        predicted(rule, sends((0, 1, 1)))


@pytest.mark.parametrize(
    "decide",
    [
        pytest.param(lambda state, view, event: (state, [SetTimer("again", 1e-6)]), id="timers"),
        pytest.param(lambda state, view, event: (state, [SetTimer("again", 0.0)]), id="timers of no time"),
        pytest.param(lambda state, view, event: (state, [lights(ocs0=[(1, 2)])]), id="the same light"),
    ],
)
@pytest.mark.parametrize("delay", [MINE, ReconfigurationDelay()], ids=["slow", "ideal"])
def test_a_rule_that_decides_for_ever_is_a_sentence(decide: Decide, delay: ReconfigurationDelay) -> None:
    with pytest.raises(StuckError, match="decided 10,000 times in a row"):
        predicted(By(decide, delay=delay), sends((0, 1, 1)))


def test_many_timers_are_no_harm_while_the_job_goes_on() -> None:
    def decide(state: object, view: View, event: Event) -> object:
        light = [lights(ocs0=[(0, 1)])] if event == NodeStarted("sends") else []
        return state, [*light, SetTimer("again", 1e-7)] if not isinstance(event, Lit | NodeDone) else light

    computes = Compute("computes", (0,), 4e-4)
    assert predicted(By(decide), sends((0, 1, 10)), computes) == pytest.approx(1e-4 + 8e-4 + 4e-4)


def test_a_delay_that_cannot_be_emulated_names_the_volume_that_would_do() -> None:
    experiment = asked(By(NOTHING), sends((0, 1, 1)))
    with pytest.raises(ScenarioError, match=r"a delay of 0\.0001 s would be 0\.001 s in the emul") as refused:
        replace(experiment, dilation=Dilation(1e-3, 1e-2))
    volume = float(str(refused.value).split("V = ")[1].split()[0])
    assert replace(experiment, dilation=Dilation(1e-3, volume)).rule


@pytest.mark.parametrize(
    ("scheme", "circuits", "why"),
    [
        ("rails", By(NOTHING), "the scheme 'rails', and circuits that carry messages once lit"),
        (WHILE_LIT, By(NOTHING), "the scheme 'while lit', and circuits that carry messages once lit"),
        (
            ONCE_LIT,
            Scheduled("spectra", ReconfigurationDelay("x", 1.0)),
            "'once lit', and circuits that carry messages while lit",
        ),
        (ONCE_LIT, None, "the scheme 'once lit', and no circuits"),
        (WHILE_LIT, None, "the scheme 'while lit', and no circuits"),
    ],
)
def test_schemes_that_do_not_go_with_circuits_are_refused(
    scheme: str | WhileLitSetup, circuits: CircuitsRule | OwnCircuits | None, why: str
) -> None:
    with pytest.raises(ScenarioError, match=why):
        replace(asked(By(NOTHING), sends((0, 1, 1))), scheme=scheme, circuits=circuits)
