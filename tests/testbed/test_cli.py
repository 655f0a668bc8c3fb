"""The CLI of rails on a network that is not there: what it replays and shows, and what it says to a slip."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from mininet.cli import CLI

import testbed.cli
from testbed.cli import FabricCLI
from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome, Verdict
from tests.testbed.cases import VOID, outcome_of, small_fabric
from topologies.errors import StuckError
from topologies.fabric import Nic
from traffic.packets import DEFAULT_MTU
from traffic.steps import single
from traffic.workloads.synthetic import sparse, uniform

LOADS = [uniform(4), sparse(4, 0.4, top_k=1)]


class Trials:
    """Stands for a network: judges what is tried as a test wants it, and notes it."""

    def __init__(self) -> None:
        self.tried: list[tuple[str, str, int]] = []
        self.verdict = Verdict("faithful")
        self.errors = {Nic(0, 0): 0.01, Nic(1, 0): -0.03}
        self.judged_by: list[tuple[float, Sequence[str]]] = []
        self.stuck = False

    def link_errors(self, *_asked: object) -> dict[Nic, float]:
        """Return how far links are off, unless they are cut."""
        if self.stuck:
            raise StuckError("0>1 made no progress for 15 s", "see [/logs]")
        return self.errors

    def worst_link_error(self, *_asked: object) -> float:
        """Return the largest of them."""
        return max(self.link_errors().values(), key=abs)

    def trial(self, experiment: Experiment, _network: object, error: float, broken: Sequence[str]) -> Outcome:
        """Return an outcome as if emulated."""
        self.tried.append((experiment.job.name, experiment.policy, experiment.seed))
        self.judged_by.append((error, broken))
        return outcome_of(experiment, self.verdict)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    trials = Trials()
    monkeypatch.setattr(testbed.cli, "link_errors", trials.link_errors)
    monkeypatch.setattr(testbed.cli, "worst_link_error", trials.worst_link_error)
    monkeypatch.setattr(testbed.cli, "tried", trials.trial)
    monkeypatch.setattr(testbed.cli, "port_settings", lambda _network: {})
    monkeypatch.setattr(testbed.cli, "unmet", lambda *_: ["a port is not shaped"])
    return trials


@pytest.fixture
def cli(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> FabricCLI:
    # Mininet's starts to read lines where it is made.
    monkeypatch.setattr(CLI, "__init__", lambda self, mininet: None)
    monkeypatch.setenv("COLUMNS", "200")
    network = SimpleNamespace(fabric=small_fabric(), mininet=None, rate_factor=1e-3, mtu=DEFAULT_MTU)
    return FabricCLI(network, {load.name: single(load) for load in LOADS})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("uniform", ("uniform", "rails", 0)),
        ("sparse 0.4", ("sparse 0.4", "rails", 0)),
        ("sparse 0.4 ecmp 7", ("sparse 0.4", "ecmp", 7)),
    ],
)
def test_a_replay_is_tried_as_asked_and_shown_with_its_verdict(
    cli: FabricCLI,
    trials: Trials,
    capsys: pytest.CaptureFixture[str],
    line: str,
    asked: tuple[str, str, int],
) -> None:
    cli.onecmd(f"replay {line}")
    assert trials.tried == [asked]
    assert trials.judged_by == [(-0.03, ["a port is not shaped"])]
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith(f"{asked[0]}, {asked[1]}: CCT ")
    assert said.endswith("(faithful)")


def test_what_was_planned_is_replayed_as_it_is(
    trials: Trials, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(CLI, "__init__", lambda self, mininet: None)
    monkeypatch.setenv("COLUMNS", "200")
    network = SimpleNamespace(fabric=small_fabric(), mininet=None, rate_factor=1e-3, mtu=DEFAULT_MTU)
    jobs = {load.name: single(load) for load in LOADS}
    planned = Experiment(small_fabric(), jobs["uniform"], "reps", Dilation(1e-3, 0.5), 5)
    cli = FabricCLI(network, jobs, planned={"uniform": planned})  # type: ignore[arg-type]
    for line in ("replay uniform", "replay uniform rails", "replay sparse 0.4"):
        cli.onecmd(line)
    assert trials.tried == [("uniform", "reps", 5), ("sparse 0.4", "rails", 0)]
    assert "reps is all there is to replay; type replay uniform" in capsys.readouterr().out


def test_a_void_replay_says_void_why_and_what_to_do(
    cli: FabricCLI, trials: Trials, capsys: pytest.CaptureFixture[str]
) -> None:
    trials.verdict = VOID
    cli.onecmd("replay uniform")
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith("(void)")
    assert rest == [f"  void: {VOID.reasons[0]}", f"  void: {VOID.advice}"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("replay", "no workload is named; choose among: uniform, sparse 0.4"),
        ("replay [/foo]", "there is no workload '[/foo]'; choose among: uniform, sparse 0.4"),
        ("replay uniform nobody", "there is no scheme named 'nobody'"),
        ("replay uniform [/b]", "there is no scheme named '[/b]'"),
        ("replay uniform rails abc", "the seed 'abc' is not a whole number; type replay"),
        ("replay uniform rails -1", "the seed '-1' is not a whole number; type replay"),
        ("replay uniform rails 1 2", "unknown words '2'; type replay"),
    ],
)
def test_a_slip_is_told_in_a_sentence_and_nothing_is_tried(
    cli: FabricCLI, trials: Trials, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    cli.onecmd(line)
    assert said in capsys.readouterr().out
    assert not trials.tried


@pytest.mark.parametrize("line", ["rates", "replay uniform"])
def test_a_link_that_is_down_does_not_end_the_cli(
    cli: FabricCLI, trials: Trials, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    trials.stuck = True
    cli.onecmd(line)
    assert "0>1 made no progress for 15 s; see [/logs]" in capsys.readouterr().out
    trials.stuck = False
    cli.onecmd("rates")
    assert "-3.0%" in capsys.readouterr().out
