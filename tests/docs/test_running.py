"""The page about how a run is carried out: the events that it shows are those of runs."""

from collections.abc import Sequence

import pytest

from testbed.core.events import Event
from testbed.core.reactions import REACTIONS, Reaction
from testbed.core.simulation import Simulation
from testbed.core.state import State
from testbed.core.steps import Do, Order, Steps
from testbed.model.backend import FluidBackend
from tests.docs.pages import DOCS
from tests.testbed.light_cases import FABRIC, RATE, A, B
from tests.testbed.run_cases import When
from topologies.events import Lit, NodeStarted, Reconfigure, SetTimer, TimerFired
from traffic.clock import in_seconds
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Compute, Job, chain
from traffic.scheme import OnceLit

WIDTH = 22
"""Of the column of what happened."""


def test_one_message_is_shown_as_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU 0 computes for a second and sends for another; the circuit is lit from the start."""
    job = chain("drawn", 4, (Compute("a", (0,), 1.0), _sends("b", (0, 1))))
    block = _block(_watched(monkeypatch, job, When({})))
    assert block in _page(), f"these are the events of the run:\n{block}"


def test_one_reconfiguration_is_shown_as_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """One message goes over the circuits until they change after 0.2 s, another once they have."""
    job = chain("drawn", 4, (_sends("send", (0, 1), (0, 2)),))
    rule = When(
        {
            NodeStarted("send"): (SetTimer("change", 0.2),),
            TimerFired("change"): (Reconfigure({"ocs0": B}),),
            Lit(("ocs0",)): (SetTimer("back", 2.0),),
            TimerFired("back"): (Reconfigure({"ocs0": A}),),
        }
    )
    lines = _watched(monkeypatch, job, rule)
    first = next(place for place, line in enumerate(lines) if "TimerFired" in line)
    last = next(place for place, line in enumerate(lines) if place > first and "Arrived" in line)
    block = _block(lines[first:last])
    assert block in _page(), f"these are the events of the run:\n{block}"


def _sends(name: str, *pairs: tuple[int, int]) -> Collective:
    return Collective(name, PointToPoint(tuple((*pair, RATE) for pair in pairs)))


def _page() -> str:
    return (DOCS / "explain" / "running.md").read_text()


def _block(lines: Sequence[str]) -> str:
    return "\n".join(["```", *lines, "```"])


def _watched(monkeypatch: pytest.MonkeyPatch, job: Job, rule: When) -> list[str]:
    """Return the events of a run that has begun, with what reacts to them, and the orders, by depth."""
    lines, depth = list[str](), 0

    def watched(of: tuple[Reaction, ...], reaction: Reaction) -> Reaction:
        def steps(state: State, event: Event) -> Steps:
            nonlocal depth
            if reaction is of[0]:
                at = f"{in_seconds(state.now_ps):.3f}" if not depth else " " * 5
                names = ", ".join(f"{each.__module__.split('.')[-1]}.{each.__name__}" for each in of)
                what = "  " * depth + type(event).__name__
                lines.append(f"{at}  {what:{WIDTH}}{names}")
            depth += 1
            taken, answer = reaction(state, event), None
            while True:
                try:
                    step = taken.send(answer)
                except StopIteration:
                    break
                if isinstance(step, Order):
                    name = type(step.order if isinstance(step, Do) else step).__name__
                    lines.append(f"{' ' * 5}  {'  ' * depth}-> {name}")
                answer = yield step
            depth -= 1

        return steps

    for kind, of in list(REACTIONS.items()):
        wrapped = tuple(watched(of, reaction) for reaction in of)
        monkeypatch.setitem(REACTIONS, kind, wrapped)
    backend = FluidBackend(FABRIC, {"ocs0": 0.01, "ocs1": 0.01})
    Simulation(FABRIC, job, backend, OnceLit(), circuits=rule, lit={"ocs0": A}).run()
    return lines[next(place for place, line in enumerate(lines) if "NodeReady" in line) :]
