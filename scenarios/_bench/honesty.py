"""Whether verdicts are honest: a healthy run, and runs of which each is disturbed in one known respect.

Each returns what came of it, judged as a run of a scenario is: by its own evidence, and by a control
before and after it. `CASES` says what its word has to be, and its agreement.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios._bench.figure import figure
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.machine.commands import output_of
from testbed.machine.datapath import Datapath, default_datapath
from testbed.machine.residue import until
from testbed.model.predict import predict
from testbed.network.link_sample import worst_link_error
from testbed.network.network import Network
from testbed.trust.agreement import agreement_text, agrees
from testbed.trust.control import control
from testbed.trust.fidelity import with_control
from testbed.trust.outcome import Outcome, bound_s
from testbed.trust.scale import load_of
from testbed.trust.trial import tried
from topologies.addresses import interface
from topologies.fabric import Fabric, Port
from topologies.rail import rail_fabric
from traffic.packets import DEFAULT_MTU, frame_bytes
from traffic.steps import single
from traffic.workloads.synthetic import uniform

RATE = 2e-4
"""100 Gbit/s is 20 Mbit/s here."""
FABRIC = rail_fabric(4, 2, 2)
LASTS_S, SHORT_S = 1.5, 0.3
"""How long a run's lower bound is at emulated scale [s]: so long that it can be disturbed in its middle; and
short beside the second after which the last packet of a message counts as lost."""
CROWDED = replace(rail_fabric(4, 2, 2, uplink_bps=50e9), buffer_bytes=2 * frame_bytes(DEFAULT_MTU))
"""Receivers grant what their own links take, and that is twice what uplinks carry, whatever path a message
takes. Ports hold two packets: of 672 they dropped 250 to 330."""
BEGUN_BYTES = 500_000
"""Bytes that a port has sent when a run is surely under way, and far from its end."""
MIDDLE_S = 20.0
STOPPED_S = 0.5
THROTTLED = 0.8
PAUSED_S, RUNS_S = 0.08, 0.02
PAUSING = """
import os, select, signal, sys, time
engine, paused_s, runs_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
print(flush=True)
while not select.select([sys.stdin], [], [], runs_s)[0]:
    os.kill(engine, signal.SIGSTOP)
    time.sleep(paused_s)
    os.kill(engine, signal.SIGCONT)
"""
"""Stops the engine again and again until its standard input is closed; a program, since the engine cannot."""
BURNERS = 4
"""Busy loops that starve two CPUs."""
REPEATS = 5


@dataclass(frozen=True)
class DisturbedRun:
    """A run that is disturbed, and what has to be said of it."""

    disturbed: Callable[[Network], AbstractContextManager[object]]
    """Disturbs a network while a run is on its way."""
    words: tuple[str, ...]
    """The right words."""
    agrees: bool | None
    """Whether emulated and predicted agree; None where it does not matter."""
    said: str = ""
    """Text that a reason or a finding has to contain."""
    scheme: str = "rails"
    fabric: Fabric = FABRIC
    lasts_s: float = LASTS_S

    def outcome(self, datapath: Datapath) -> Outcome:
        """Return the outcome of the run, judged by a control before and after it too."""
        experiment = _experiment(self.fabric, self.scheme, self.lasts_s)
        rate = experiment.dilation.rate
        load = (load_of(experiment, predict(experiment)) * rate).hop_bps
        with Network(self.fabric, rate, datapath) as network:
            sampled = worst_link_error(network, experiment.seed)
            before = control(network, load, datagrams=True)
            with self.disturbed(network):
                outcome = tried(experiment, network, sampled)
            after = control(network, load, datagrams=True)
        return with_control(with_control(outcome, before), after)

    def right(self, outcome: Outcome) -> bool:
        """Return whether the right things are said of an outcome."""
        text = "; ".join((*outcome.verdict.reasons, *outcome.findings))
        return (
            outcome.verdict.word in self.words
            and self.agrees in (None, agrees(outcome.over_predicted))
            and self.said in text
        )


@figure("share of right verdicts", "1")
def honesty() -> tuple[float, str]:
    """Return the share of runs with the right verdict, and the verdicts of each case."""
    said, right, datapath = [], 0, default_datapath()
    cases = cases_over(datapath)
    for name, case in cases.items():
        outcomes = [case.outcome(datapath) for _ in range(REPEATS)]
        mine = sum(map(case.right, outcomes))
        right += mine
        found = [f"{o.verdict.word} {agreement_text(o.over_predicted)}" for o in outcomes]
        said.append(f"{name}: {', '.join(found)}, right {mine} of {REPEATS}")
    return right / (REPEATS * len(cases)), "; ".join(said)


@contextmanager
def starved(_network: Network) -> Iterator[None]:
    """Have busy loops of the same priority use the CPUs all the time."""
    with ExitStack() as stack:
        for _ in range(BURNERS):
            burner = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(burner.kill)
        yield


@contextmanager
def paused(_network: Network) -> Iterator[None]:
    """Have the engine run for a fifth of the time only, as a quota of its CPU would, however fast it is."""
    command = [sys.executable, "-c", PAUSING, str(os.getpid()), str(PAUSED_S), str(RUNS_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pausing:
        assert pausing.stdin
        assert pausing.stdout
        pausing.stdout.readline()
        try:
            yield
        finally:
            pausing.stdin.close()


def stopped(network: Network) -> AbstractContextManager[None]:
    """Stop Open vSwitch for half a second in mid-run."""

    def stop() -> None:
        os.kill(network.openvswitch.pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        os.kill(network.openvswitch.pid, signal.SIGCONT)

    return _in_mid_run(network, stop)


def throttled(network: Network) -> AbstractContextManager[None]:
    """Lower the rate of a switch's port by a fifth in mid-run, behind the controller's back."""
    port = network.fabric.links[0].b
    shape = network.wiring.shapes[port]

    def throttle() -> None:
        rate, name = f"{THROTTLED * shape.rate_bps:.0f}bit", interface(network.fabric, port)
        limits = ["burst", str(shape.burst_bytes), "limit", str(shape.queue_bytes)]
        command = ["tc", "qdisc", "change", "dev", name, "root", "tbf", "rate", rate, *limits]
        with network.wiring.inside(port.node):
            output_of(command)

    return _in_mid_run(network, throttle)


@contextmanager
def polarised(network: Network) -> Iterator[None]:
    """Have every leaf hash all connections to the first of its spines."""
    leaves = [switch.name for switch in network.fabric.switches if switch.tier == 0]
    choices, modify, mark = (
        (_routes, _route, " nexthop ") if network.wiring.routers else (_groups, _modify, ",bucket=")
    )
    before: dict[str, list[str]] = {}
    for leaf in leaves:
        with network.wiring.inside(leaf):
            before[leaf] = choices(leaf)
            modify(leaf, [mark.join(choice.split(mark)[:2]) for choice in before[leaf]])
    try:
        yield
    finally:
        for leaf, whole in before.items():
            with network.wiring.inside(leaf):
                modify(leaf, whole)


CASES = {
    "healthy": DisturbedRun(nullcontext, ("faithful",), True),
    "starved": DisturbedRun(starved, ("strained", "void"), None),
    "paused": DisturbedRun(paused, ("strained", "void"), None, "the engine was"),
    "stopped": DisturbedRun(stopped, ("strained", "void"), None, "switches could not run for"),
    "throttled": DisturbedRun(throttled, ("void",), None, f"port {FABRIC.links[0].b} is shaped to"),
    "shallow": DisturbedRun(nullcontext, ("faithful",), False, "queues dropped", "ecmp", CROWDED, SHORT_S),
    "polarised": DisturbedRun(polarised, ("faithful",), True, "the model's own paths", "ecmp"),
}
"""Polarised connections take the paths that the prediction then has too: it agrees, and both are slow. The
free prediction has its own, and is not."""


def cases_over(datapath: Datapath) -> dict[str, DisturbedRun]:
    """Return the cases that there are: where packet switches route there is no daemon to be stopped."""
    return {name: case for name, case in CASES.items() if (datapath, name) != ("route", "stopped")}


def _experiment(fabric: Fabric, scheme: str, lasts_s: float) -> Experiment:
    """Return a uniform all-to-all whose lower bound takes so long at emulated scale [s]."""
    full = Experiment(fabric, single(uniform(fabric.gpus)), scheme, Dilation(RATE, 1.0))
    return replace(full, dilation=Dilation(RATE, lasts_s * RATE / bound_s(full)))


@contextmanager
def _in_mid_run(network: Network, disturb: Callable[[], None]) -> Iterator[None]:
    """Disturb a network when its first link has carried so much that a run is under way."""
    port = network.fabric.links[0].b
    before = _sent_bytes(network, port)

    def wait_and_disturb() -> None:
        if until(lambda: _sent_bytes(network, port) > before + BEGUN_BYTES, MIDDLE_S):
            disturb()

    with ThreadPoolExecutor() as pool:
        done = pool.submit(wait_and_disturb)
        yield
        done.result()


def _sent_bytes(network: Network, port: Port) -> int:
    """Return the bytes that a port has sent so far, by /proc/net/dev."""
    with network.wiring.inside(port.node):
        text = Path("/proc/thread-self/net/dev").read_text()
    counts = text.split(f"{interface(network.fabric, port)}:")[1].split()
    return int(counts[8])


def _groups(bridge: str) -> list[str]:
    """Return the groups of a switch, as ``ovs-ofctl`` writes and reads them."""
    dump = ["ovs-ofctl", "-OOpenFlow13", "dump-groups", bridge]
    return [line.strip() for line in output_of(dump).splitlines() if "group_id=" in line]


def _modify(bridge: str, groups: list[str]) -> None:
    for group in groups:
        output_of(["ovs-ofctl", "-OOpenFlow13", "mod-group", bridge, group])


def _routes(_switch: str) -> list[str]:
    """Return the routes of this namespace that have several next hops, as ``ip`` reads them."""
    spread = [each for each in json.loads(output_of(["ip", "-j", "route"])) if "nexthops" in each]
    to = " nexthop via {gateway} dev {dev} onlink"
    return ["".join([each["dst"], *(to.format_map(hop) for hop in each["nexthops"])]) for each in spread]


def _route(_switch: str, routes: list[str]) -> None:
    for route in routes:
        output_of(["ip", "route", "replace", *route.split()])
