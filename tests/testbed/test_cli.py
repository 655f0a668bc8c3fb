"""The CLI of rails on a network that is not there: what it replays and shows, and what it says to a slip."""

import os
import sys
from cmd import Cmd
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from mininet.cli import CLI

import testbed.cli.cli
from testbed.cli.cli import FabricCLI
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.trust.outcome import Outcome, Verdict
from tests.testbed.cases import VOID, outcome_of
from topologies.errors import StuckError
from topologies.fabric import Fabric, Link, Nic, Port
from topologies.rail import rail_fabric
from traffic.effects import Daemon, Slow
from traffic.job_file import write_job
from traffic.packets import DEFAULT_MTU
from traffic.steps import single
from traffic.transports.host_settings import HostSettings
from traffic.workloads.synthetic import sparse, uniform

LOADS = [uniform(4), sparse(4, 0.4, top_k=1)]


class Pings:
    """Stands for a node that runs a command, and has an answer at once."""

    waiting = True

    def monitor(self) -> str:
        self.waiting = False
        return "pong\n"


class Network:
    """Stands for a network: records which links and daemons work, and how hosts are set."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.mininet, self.rate_factor, self.mtu = fabric, None, 1e-3, DEFAULT_MTU
        self.has_hosts, self.hashing = False, "openvswitch"
        self.down: set[Link] = set()
        self.dead: set[Daemon] = set()
        self.shaped: dict[Link, tuple[float, float]] = {}
        """The share of its rate and the loss of each link that has not all of its rate."""
        self.hosts: list[HostSettings] = []

    @property
    def names(self) -> list[str]:
        """What is down, and what is slow or loses packets."""
        shaped = [(f"{link.a.node}-{link.b.node}", *shape) for link, shape in self.shaped.items()]
        slow = sorted(f"{name} at {rate:g}, loss {loss:g}" for name, rate, loss in shaped)
        return [*sorted(f"{link.a.node}-{link.b.node}" for link in self.down), *sorted(self.dead), *slow]

    def turn_links(self, links: Iterable[Link], *, works: bool) -> None:
        """Turn links."""
        (self.down.difference_update if works else self.down.update)(links)

    def links_down(self) -> list[Link]:
        """Return the links that are down."""
        return sorted(self.down, key=str)

    def go_around(self) -> None:
        """Have switches go around what is down."""

    def shape_link(self, port: Port, rate: float, loss: float) -> None:
        """Shape a link, which is not as it was asked for already."""
        link = self.fabric.link_at[port]
        assert self.shaped.get(link, (1.0, 0.0)) != (rate, loss)
        self.shaped[link] = rate, loss
        if (rate, loss) == (1.0, 0.0):
            del self.shaped[link]

    def kill(self, daemon: Daemon, *, for_good: bool) -> None:
        """Kill a daemon, which is to be there again some time."""
        assert not for_good
        self.dead.add(daemon)

    def mend(self) -> None:
        """Start what was killed."""
        self.dead.clear()

    def set_hosts(self, host: HostSettings) -> None:
        """Set hosts."""
        self.hosts.append(host)


class Trials:
    """Stands for a trial on a network: judges it as a test wants it, and records it."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.experiments: list[Experiment] = []
        self.down: list[list[str]] = []
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
        self.experiments.append(experiment)
        self.down.append(self.network.names)
        self.tried.append((experiment.job.name, experiment.name, experiment.seed))
        self.judged_by.append((error, broken))
        return outcome_of(experiment, self.verdict)


@pytest.fixture
def network() -> Network:
    return Network(rail_fabric(2, 2, spines=1))


@pytest.fixture
def trials(network: Network, monkeypatch: pytest.MonkeyPatch) -> Trials:
    trials = Trials(network)
    monkeypatch.setattr(testbed.cli.cli, "link_errors", trials.link_errors)
    monkeypatch.setattr(testbed.cli.cli, "worst_link_error", trials.worst_link_error)
    monkeypatch.setattr(testbed.cli.cli, "tried", trials.trial)
    monkeypatch.setattr(testbed.cli.cli, "port_settings", lambda _network: {})
    monkeypatch.setattr(testbed.cli.cli, "unmet", lambda *_: ["a port is not shaped"])
    return trials


@pytest.fixture
def cli(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> FabricCLI:
    # Mininet's starts to read lines where it is made.
    monkeypatch.setattr(CLI, "__init__", lambda self, mininet: Cmd.__init__(self))
    monkeypatch.setenv("COLUMNS", "200")
    return FabricCLI(trials.network, {load.name: single(load) for load in LOADS})  # type: ignore[arg-type]


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


def test_a_command_without_a_host_says_how_to_run_it(
    cli: FabricCLI, trials: Trials, capsys: pytest.CaptureFixture[str]
) -> None:
    trials.network.mininet = {"h0": None}  # type: ignore[assignment]
    cli.onecmd("hostname -f")
    (said,) = capsys.readouterr().out.splitlines()
    assert said == "there is no command or node 'hostname'; type help; h0 COMMAND runs one on h0"


def test_piped_lines_are_read_by_the_cli_and_not_by_a_command_on_a_node(cli: FabricCLI) -> None:
    keyboard, hand = os.pipe()
    os.write(hand, b"h0 ping h1\n")
    node = Pings()
    with open(keyboard) as cli.stdin, open(hand, "w"):
        cli.waitForNode(node)
        assert not node.waiting
        assert os.read(keyboard, 20) == b"h0 ping h1\n"


def test_what_was_planned_is_replayed_as_it_is(
    trials: Trials, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(CLI, "__init__", lambda self, mininet: None)
    monkeypatch.setenv("COLUMNS", "200")
    jobs = {load.name: single(load) for load in LOADS}
    planned = Experiment(trials.network.fabric, jobs["uniform"], "reps", Dilation(1e-3, 0.5), 5)
    cli = FabricCLI(trials.network, jobs, planned={"uniform": planned})  # type: ignore[arg-type]
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
        ("replay [/foo]", "there is no workload '[/foo]'; choose among: uniform, sparse 0.4; or give a job"),
        ("replay /absent/job.json", "/absent/job.json does not exist"),
        ("replay 'job.json", "cannot be read: No closing quotation; type replay"),
        ("replay uniform --transport", "one transport is to follow --transport; type replay"),
        ("replay uniform --transport tcp --transport=credit", "one transport is to follow --transport"),
        ("replay uniform --transport udp", "there is no transport named 'udp'"),
        ("replay uniform nobody", "there is no scheme named 'nobody'"),
        ("replay uniform [/b]", "there is no scheme named '[/b]'"),
        ("replay uniform rails abc", "the seed 'abc' is not a whole number; type replay"),
        ("replay uniform rails -1", "the seed '-1' is not a whole number; type replay"),
        (f"replay uniform rails {'9' * 5000}", "is not a whole number; type replay"),
        ("replay uniform rails 1 2", "unknown words '2'; type replay"),
        ("fail nic:9:9", "nic:9:9"),
        ("fail nic:0", "nic:0"),
        ("fail switches@40%", "after switches@40% nothing is forwarded any more; say when it is back"),
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


def test_a_job_file_is_replayed(
    cli: FabricCLI, trials: Trials, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(replace(single(uniform(4)), name="own"), tmp_path / "a job.json")
    cli.onecmd(f"replay '{tmp_path}/a job.json' ecmp 3")
    assert trials.tried == [("own", "ecmp", 3)]
    assert capsys.readouterr().out.startswith("own, ecmp: CCT ")


def test_a_replay_goes_by_the_transport_that_is_asked_for(cli: FabricCLI, trials: Trials) -> None:
    for line in (
        "uniform",
        "uniform ecmp --transport tcp",
        "--transport=ideal sparse 0.4 rails 1",
        "uniform",
    ):
        cli.onecmd(f"replay {line}")
    assert [each.transport.name for each in trials.experiments] == ["credit", "tcp", "ideal", "credit"]
    assert trials.tried[1:3] == [("uniform", "ecmp", 0), ("sparse 0.4", "rails", 1)]
    assert trials.network.hosts == [each.host for each in trials.experiments]
    assert len(set(trials.network.hosts)) == 2, "those of tcp are of its own"


def test_a_replay_has_what_failed_and_all_works_while_links_are_sampled(
    cli: FabricCLI, trials: Trials, capsys: pytest.CaptureFixture[str]
) -> None:
    network = trials.network
    network.down = {network.fabric.links[0]}  # as by Mininet's link h0 leaf0 down
    cli.onecmd("rates")
    assert "link:h0-leaf0 failed; type mend, and rates then" in capsys.readouterr().out
    for fault in ("nic:1:1", "gpu:3"):
        cli.onecmd(f"fail {fault}")
    assert capsys.readouterr().out.splitlines()[-1] == "failed: nic:1:1, gpu:3, link:h0-leaf0"
    failed = ["h0-leaf0", "h1-leaf1"]
    assert network.names == failed
    cli.onecmd("replay uniform ecmp")
    assert trials.down == [[]]
    assert network.names == failed, "as before"
    assert "uniform, ecmp, nic:1:1, gpu:3, link:h0-leaf0: CCT " in capsys.readouterr().out
    (experiment,) = trials.experiments
    assert [(each.when.after_s, each.detect_s, each.when.lasts_s) for each in experiment.faults] == [
        (0, 0, None)
    ] * 3
    assert experiment.gone == {3}
    cli.onecmd("mend")
    assert "mended: nic:1:1, gpu:3, link:h0-leaf0" in capsys.readouterr().out
    assert network.names == []
    cli.onecmd("replay uniform")
    assert trials.experiments[-1].faults == ()


def test_a_link_is_slowed_by_hand_and_whole_when_it_is_mended(
    cli: FabricCLI, trials: Trials, capsys: pytest.CaptureFixture[str]
) -> None:
    network = trials.network
    for fault in ("nic:0:0=0.5", "link:h0-leaf0=0.5", "server:1=loss:0.01", "nic:1:1"):
        cli.onecmd(f"fail {fault}")
    cli.onecmd("fail gpu:1=0.5")
    assert "'gpu:1@0s=0.5': only links can be slowed" in capsys.readouterr().out
    failed = ["h1-leaf1", "h0-leaf0 at 0.25, loss 0", "h1-leaf0 at 1, loss 0.01", "h1-leaf1 at 1, loss 0.01"]
    assert network.names == failed
    cli.onecmd("replay uniform ecmp")
    assert trials.down == [[]]
    assert network.names == failed, "as before"
    (experiment,) = trials.experiments
    slow, twice, lossy, cable = experiment.faults
    assert slow.effects == (Slow((Port("h0", 0),), 0.5),)
    assert slow.is_standing
    assert (twice.name, lossy.loses, cable.ports) == ("link:h0-leaf0=0.5", True, (Port("h1", 1),))
    cli.onecmd("mend")
    assert network.names == []


def test_what_fails_at_a_time_fails_in_replays(
    cli: FabricCLI, trials: Trials, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.onecmd("fail nic:0:0@40%-70%")
    cli.onecmd("fail nic:0:0@40%-70%")
    assert "nic:0:0@40%-70% has failed already" in capsys.readouterr().out
    assert trials.network.names == []
    cli.onecmd("replay uniform")
    (fault,) = trials.experiments[0].faults
    healthy = replace(trials.experiments[0], faults=())
    assert fault.when.after_s == pytest.approx(0.4 * predict(healthy).iteration_s)
    cli.onecmd("mend")
    assert "mended: nic:0:0@40%-70%" in capsys.readouterr().out


def test_what_cannot_be_gone_around_is_named_and_stays_down(
    cli: FabricCLI, trials: Trials, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ("fail nic:0:0", "fail nic:0:1", "replay uniform ecmp"):
        cli.onecmd(line)
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("nic:0:0, nic:0:1 failed, and ")
    assert "without a working NIC" in said
    assert not trials.tried
    assert trials.network.names == ["h0-leaf0", "h0-leaf1"]


def test_a_controller_that_failed_is_there_for_the_sample_and_gone_again(
    cli: FabricCLI, trials: Trials, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.onecmd("fail controller")
    cli.onecmd("replay uniform")
    assert "uniform, rails, controller: CCT " in capsys.readouterr().out
    assert (trials.down, trials.network.names) == ([[]], ["controller"])


def test_without_switches_nothing_is_replayed(
    cli: FabricCLI, trials: Trials, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.onecmd("fail switches")
    cli.onecmd("replay uniform")
    assert "nothing is forwarded: switches failed by hand; type mend first" in capsys.readouterr().out
    assert not trials.tried


def commands(cli: FabricCLI, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the commands that help lists."""
    cli.stdout = sys.stdout
    cli.onecmd("help")
    return set(capsys.readouterr().out.split())


def test_help_lists_what_the_fabric_and_the_screen_have(
    cli: FabricCLI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    optical, displayed = {"circuits", "device", "light", "show"}, {"xterm", "gterm", "x"}
    listed = commands(cli, capsys)
    assert {"replay", "rates", "fail", "mend", "pingall", "link"} <= listed
    assert not listed & (optical | displayed | {"switch"})
    assert not set(cli.completenames("")) & (optical | displayed)
    for line in ("circuits", "light ocs0 0>1", "help show"):
        cli.onecmd(line)
        assert "fabric rail has no OCS" in capsys.readouterr().out
    cli.onecmd("xterm h0")
    assert "there is no display: DISPLAY is not set" in capsys.readouterr().out
    monkeypatch.setenv("DISPLAY", ":0")
    assert displayed <= commands(cli, capsys)


def test_what_it_says_of_itself_has_its_own_prompt() -> None:
    assert FabricCLI.prompt == "lightrail> "
    assert "mininet>" not in FabricCLI.helpStr
    assert FabricCLI.helpStr.count("lightrail>") == 3
