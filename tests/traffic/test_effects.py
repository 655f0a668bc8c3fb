"""Effects: how they compose, what is refused at the door, and that they are written down and read back."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.experiment import Experiment
from topologies.errors import LightrailError, ScenarioError
from topologies.fabric import Port
from topologies.rail import rail_fabric
from traffic.effect_json import effect_document, effect_of_document
from traffic.effects import (
    BUILT_IN,
    LEAST_LEFT,
    DaemonState,
    Down,
    Effect,
    Gone,
    GpuState,
    Killed,
    LinkState,
    Lossy,
    Slow,
    check_effect,
    link_states,
)
from traffic.faults import Fault, When
from traffic.steps import single
from traffic.workloads.synthetic import uniform

HERE = "tests.traffic.test_effects"
PORTS = (Port("h0", 1), Port("leaf1", 0))
"""Both ends of a link."""
FABRIC = rail_fabric(2, 2)
shares = st.floats(LEAST_LEFT, 1 - LEAST_LEFT)
states = st.builds(LinkState, st.booleans(), shares | st.just(1.0), shares | st.just(0.0))


@dataclass(frozen=True)
class Dim:
    """A user's own: a slow link is down."""

    ports: tuple[Port, ...]
    least: float = 0.5
    words: tuple[str, ...] = ()

    def on(self, state: LinkState) -> LinkState:
        """Return what is left."""
        return state if state.rate >= self.least else replace(state, up=False)


@dataclass(frozen=True)
class Told:
    """A user's own, whose fields say what it makes of a state."""

    does: Callable[[LinkState], object]
    ports: tuple[Port, ...] = PORTS

    def on(self, state: LinkState) -> LinkState:
        """Return what it likes."""
        return self.does(state)  # type: ignore[return-value]


@dataclass(frozen=True)
class Healed:
    """Has GPUs back."""

    gpus: tuple[int, ...] = (0,)

    def on(self, _state: GpuState) -> GpuState:
        """Return one that works."""
        return GpuState()


@dataclass(frozen=True)
class Ghost:
    """Is of no daemon."""

    daemon: str = "ghost"

    def on(self, state: DaemonState) -> DaemonState:
        """Return the same."""
        return state


@dataclass(frozen=True)
class Listed(Dim):
    """Holds what has no hash."""

    more: list[int] = field(default_factory=list)


class Both(Dim):
    """Is of links and of GPUs."""

    gpus = (1,)


@given(states, shares, shares)
def test_what_befalls_a_link_composes_and_never_improves_it(
    state: LinkState, rate: float, loss: float
) -> None:
    effects: list[Effect] = [Slow(PORTS, rate), Lossy(PORTS, loss), Down(PORTS)]
    for effect in effects:
        check_effect(effect)
    slow, lossy, down = (effect.on(state) for effect in (Slow(PORTS, rate), Lossy(PORTS, loss), Down(PORTS)))
    assert slow == replace(state, rate=max(state.rate * rate, LEAST_LEFT))
    assert 1 - lossy.loss == pytest.approx(max((1 - state.loss) * (1 - loss), LEAST_LEFT))
    assert lossy.loss >= state.loss
    assert down == replace(state, up=False)


def test_an_effect_that_names_both_ends_of_a_link_counts_once() -> None:
    found = link_states([Slow(PORTS, 0.5), Slow(PORTS[:1], 0.5)], FABRIC.link_at.__getitem__)
    assert found == {FABRIC.link_at[PORTS[0]]: LinkState(rate=0.25)}


@pytest.mark.parametrize(
    ("effect", "said"),
    [
        (Told(lambda state: LinkState(state.up, 1.0, state.loss)), "which is better"),
        (Told(lambda state: LinkState(state.up, min(state.rate * 2, 1.0), state.loss)), "which is better"),
        (Told(lambda state: LinkState(state.up, state.rate, 0.0)), "which is better"),
        (Told(lambda state: LinkState(True, state.rate, state.loss)), "which is better"),
        (Told(lambda state: replace(state, rate=1.5)), "which is not a state"),
        (Told(lambda state: replace(state, rate=0.0)), "which is not a state"),
        (Told(lambda state: replace(state, rate=float("nan"))), "which is not a state"),
        (Told(lambda state: replace(state, loss=1.0)), "which is not a state"),
        (Told(lambda state: replace(state, loss=-0.1)), "which is not a state"),
        (Told(lambda state: LinkState(1, state.rate)), "which is not a state"),  # type: ignore[arg-type]
        (Told(lambda _state: None), "makes None of LinkState"),
        (Told(lambda _state: 1 / 0), "your effect raised ZeroDivisionError at "),
        (Told(Down(PORTS).on, ports=("h0:1",)), "ports that are not a tuple of Port"),  # type: ignore[arg-type]
        (Healed(), "which is better"),
        (Gone((1.5,)), "not a tuple of whole numbers"),  # type: ignore[arg-type]
        (Ghost(), "is of the daemon 'ghost', and not of controller or switches"),
        (Listed(PORTS), "has no hash"),
        (Both(PORTS), "does not have one of ports, gpus, daemon, and on"),
        (LinkState(), "does not have one of ports, gpus, daemon, and on"),
    ],
)
def test_what_is_not_an_effect_or_improves_something_is_refused(effect: object, said: str) -> None:
    with pytest.raises(LightrailError) as caught:
        Fault("fault", (effect,))  # type: ignore[arg-type]
    assert said in caught.value.sentence
    assert caught.value.hint


def test_an_effect_is_the_same_each_time() -> None:
    turns = iter([0.9, 0.8])
    with pytest.raises(
        ScenarioError, match=r"makes something else of .* each time; see docs/howto/own_fault.md"
    ):
        check_effect(Told(lambda state: replace(state, rate=next(turns))))


EFFECTS: list[Effect] = [
    Down(PORTS),
    Slow(PORTS, 0.1),
    Lossy(PORTS, 1e-3),
    Gone((0, 1)),
    Killed("controller"),
    Killed("switches"),
    Dim(PORTS, 0.3, ("a", "b")),
    Dim(PORTS),
]


@pytest.mark.parametrize("effect", EFFECTS, ids=str)
def test_an_effect_is_written_and_read_back(effect: Effect) -> None:
    text = json.dumps(effect_document(effect))
    back = effect_of_document(json.loads(text))
    assert (back, type(back)) == (effect, type(effect))
    assert [type(port) for port in getattr(back, "ports", ())] == [Port] * len(getattr(effect, "ports", ()))
    name = json.loads(text)["effect"]
    assert name == f"{HERE}:Dim" if isinstance(effect, Dim) else name in BUILT_IN


def test_an_experiment_with_effects_is_read_back() -> None:
    faults = tuple(
        Fault(f"{number}", (effect,), When("", 1e-3, None if isinstance(effect, Gone) else 0.5), 1e-4)
        for number, effect in enumerate(EFFECTS)
        if effect != Killed("controller")
    )
    experiment = Experiment(FABRIC, single(uniform(4)), "rails", faults=faults)
    back = Experiment.from_json(experiment.to_json())
    assert (back, back.key) == (experiment, experiment.key)
    assert experiment.own == [f"{HERE}:Dim"]
    slowed = replace(experiment, faults=(Fault("slow", (Slow((Port("h1", 0),), 0.5),)),))
    assert slowed.failing == FABRIC.both_ends((Port("h1", 0),)), "what is lost there is no machine's"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (3, "3 is not an effect"),
        ({}, "an object is not an effect"),
        (
            {"effect": "up", "ports": []},
            "unknown effect 'up'; name down, slow, lossy, gone, killed or module:Class",
        ),
        ({"effect": "down"}, "down.ports: is missing"),
        ({"effect": "down", "ports": [["h0", 1]], "rate": 1}, "down.rate: unknown key"),
        ({"effect": "down", "ports": [["h0"]]}, r"down.ports\[0\]\[1\]: is missing"),
        ({"effect": "slow", "ports": [["h0", 1]], "rate": 2}, "a link is slowed to 2 of its rate"),
        ({"effect": "killed", "daemon": "me"}, "killed.daemon: found 'me'"),
        ({"effect": f"{HERE}:Dim", "ports": []}, "ports: unknown key"),
        ({"effect": f"{HERE}:Dim", "fields": {"most": 1}}, "your effect raised TypeError"),
        ({"effect": f"{HERE}:HERE", "fields": {}}, "is not an effect; name a class with one of ports, gpus"),
        ({"effect": "not_there:Dim", "fields": {}}, "the effect 'not_there:Dim' cannot be imported"),
    ],
)
def test_what_is_no_effect_is_not_read(data: object, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        effect_of_document(data)


def test_an_effect_that_cannot_be_written_down_is_refused() -> None:
    fault = Fault("own", (Told(Down(PORTS).on),))
    experiment = Experiment(FABRIC, single(uniform(4)), "rails", faults=(fault,))
    with pytest.raises(ScenarioError, match=f"the effect '{HERE}:Told' cannot be written down: it holds"):
        experiment.to_json()
