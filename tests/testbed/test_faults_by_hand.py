"""Faults by hand on a network that is not there: what is cut, what is lit, and what is said to a slip."""

from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from mininet.cli import CLI

from controller.circuits.foreseen import Foreseen
from controller.circuits.ring_faults import Mode
from scenarios._infinitehbd.ring.dying import Dying, dying_ring
from testbed.cli.cli import FabricCLI
from testbed.cli.faults_by_hand import FaultsByHand
from testbed.experiment.experiment import Experiment
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Link
from topologies.khop_ring import KHopRing
from traffic.steps import single
from traffic.workloads.synthetic import uniform


def asked(*nodes: int, mode: Mode = "shrink") -> Experiment:
    """Return AllReduces over the nodes 0 to 2 of two GPUs, some of which die."""
    return dying_ring(KHopRing(5, 2, 2), 6, 10_000, Dying(nodes, mode, 0.4, 1e-5, 1), gpu_bps=6.4e12)


class Network:
    """Stands for a network: notes what OCSes light, and which links work."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.northbound, self.mininet = fabric, self, None
        self.has_hosts = False
        self.lit: dict[str, tuple[tuple[int, int], ...]] = {}
        self.down: set[Link] = set()
        self.waited_for: list[str] = []

    def turn_links(self, links: Iterable[Link], *, works: bool) -> None:
        """Note links that go down or up."""
        (self.down.difference_update if works else self.down.update)(links)

    def links_down(self) -> list[Link]:
        """Return none: those that are down are of faults."""
        return []

    def set_delay(self, name: str, _delay: object, _seed: int) -> None:
        """Note nothing: a delay lights nothing."""
        assert name.startswith("n")

    def light(self, name: str, circuits: tuple[tuple[int, int], ...], *, busy: str) -> None:
        """Note circuits."""
        assert busy == "replace", "a program of a replay may never end"
        self.lit[name] = circuits

    def wait_idle(self, name: str, _timeout_s: float) -> None:
        """Note who was waited for."""
        self.waited_for.append(name)

    def ocs(self, name: str) -> SimpleNamespace:
        """Return what an OCS shows."""
        return SimpleNamespace(circuits=self.lit[name], phase="lit", device="ocstrx", delay_s=0.1)

    def ocs_log(self, _name: str) -> list[object]:
        """Return no reconfigurations."""
        return []


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    monkeypatch.setattr(CLI, "__init__", lambda *_: None)  # it would read lines where it is made
    return Network(asked(1).fabric)


def foreseen_of(experiment: Experiment) -> Foreseen:
    assert isinstance(experiment.circuits, Foreseen)
    return experiment.circuits


def test_a_node_fails_and_all_is_mended(network: Network) -> None:
    experiment = asked(1, 0)
    by_hand = FaultsByHand(network, experiment)  # type: ignore[arg-type]
    by_hand.begin()
    first = dict(foreseen_of(experiment).first)
    assert (network.lit, network.down, by_hand.failed) == (first, set(), [])
    assert by_hand.fail("node 1") == ["n0b1", "n2b0"]
    assert network.lit == first | dict(foreseen_of(experiment).changes[0].circuits)
    assert network.waited_for[-2:] == ["n0b1", "n2b0"]
    links = [{*map(experiment.fabric.link_at.__getitem__, fault.ports)} for fault in experiment.faults]
    assert network.down == links[0]
    by_hand.fail("node 0")
    assert network.down == links[0] | links[1]
    by_hand.begin()
    assert (network.lit, network.down, by_hand.failed) == (first, set(), [])
    assert by_hand.fail("node 1") == ["n0b1", "n2b0"], "as if nothing had failed before"


def test_what_cannot_fail_now_changes_nothing(network: Network) -> None:
    by_hand = FaultsByHand(network, asked(1, 0))  # type: ignore[arg-type]
    by_hand.begin()
    before = dict(network.lit)
    with pytest.raises(ScenarioError, match="there is no fault 'node 3'; take node 1, node 0"):
        by_hand.fail("node 3")
    with pytest.raises(ScenarioError, match="are foreseen for node 0; foreseen are: node 1; node 0 and"):
        by_hand.fail("node 0")  # node 1 is to fail first
    assert (network.lit, network.down, by_hand.failed) == (before, set(), [])
    by_hand.fail("node 1")
    with pytest.raises(ScenarioError, match="node 1 has failed already"):
        by_hand.fail("node 1")


def test_an_experiment_over_packets_has_no_faults_by_hand(network: Network) -> None:
    experiment = Experiment(network.fabric, single(uniform(network.fabric.gpus)), "rails")
    with pytest.raises(ScenarioError, match="the circuits of rails are not lit by a rule alone"):
        FaultsByHand(network, experiment)  # type: ignore[arg-type]


def test_cli_lists_faults_has_one_happen_and_shows_what_changed(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = asked(1)
    cli = FabricCLI(network, {experiment.job.name: experiment.job}, by_rule=experiment)  # type: ignore[arg-type]

    def said(line: str) -> str:
        cli.onecmd(line)
        return " ".join(capsys.readouterr().out.split())

    assert said("fail") == "node 1; failed: nothing"
    table = said("fail node 1")
    assert "n0b1 0>4 1>5 4>0 5>1 lit ocstrx" in table
    assert "n0b0" not in table, "only what changed"
    assert said("circuits").count("links down") == 2  # the dead node's bundles
    assert "have no rates" in said("rates")
    assert said("fail") == "node 1; failed: node 1"
    assert "node 1 failed by hand" in said(f"replay {experiment.job.name}")
    assert said("mend") == "mended: node 1"
    assert said("mend") == "mended: nothing had failed"
    assert said("fail") == "node 1; failed: nothing"
    assert "is all there is to replay" in said(f"replay {experiment.job.name} rails")
    assert "there is no fault 'node 2'" in said("fail node 2")


def test_cli_without_foreseen_faults_takes_those_of_the_option(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = FabricCLI(network, {})  # type: ignore[arg-type]
    for line in ("fail node 1", "fail"):
        cli.onecmd(line)
        assert "nic:SERVER:NIC, link:NODE-NODE" in capsys.readouterr().out
