"""Mininet's CLI on a live fabric, with ``replay``, ``rates``, ``fail``, and commands for circuits by hand."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
from mininet.cli import CLI
from mininet.log import output
from mininet.node import Node
from rich.table import Table

from controller.circuits.devices import DEVICES, ReconfigurationDelay, delay_of, device_named
from controller.schedulers.registry import scheduler_named
from testbed.apps.environment import host_environment, of_user, with_places
from testbed.apps.host_server import HostServer
from testbed.cli.all_hosts import run_on_all
from testbed.cli.faults_by_hand import FaultsByHand, StandingFaults
from testbed.cli.replay_line import ReplayLine, replay_line
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, dilation_for, plan_of
from testbed.machine.congestion import check_congestion_control
from testbed.machine.datapath import Datapath
from testbed.machine.sandbox import inside_sandbox
from testbed.model.predict import predict
from testbed.network.link_sample import link_errors, worst_link_error
from testbed.network.network import Network
from testbed.network.readback import port_settings, unmet
from testbed.report.doubts import doubts
from testbed.report.table import duration_text
from testbed.report.terminal import Terminal
from testbed.trust.outcome import Outcome, bound_s
from testbed.trust.scale import job_volume
from testbed.trust.trial import tried
from topologies.errors import LightrailError, NetworkError, ScenarioError
from topologies.fabric import Fabric
from traffic.fault_text import KINDS
from traffic.job import Job
from traffic.scheme_setup import WHILE_LIT
from traffic.spraying.registry import policy_named
from traffic.transports.host_settings import CREDIT, TransportSetup
from traffic.transports.registry import congestion_control

LONG_S = 10.0
"""From how long on a replay says how long it takes [s]."""
WAIT_S = 30.0
IDEAL = ReconfigurationDelay().device
"""What an OCS is called that is lit again at once; no device of the table."""
SLOT_S = 0.1
"""How long Spectra's shortest slot is lit when a schedule is replayed, at emulated scale."""
OF_OCSES = ("circuits", "device", "light", "show")
OF_DISPLAYS = ("gterm", "x", "xterm")
"""Commands that need an OCS, and a display."""


def explored(
    fabric: Fabric,
    rate_factor: float,
    datapath: Datapath,
    jobs: Mapping[str, Job],
    delay: ReconfigurationDelay,
    schedule: Scheduled,
    time: float,
) -> Iterator[None]:
    """Boot a fabric whose OCSes all have a delay, and open the CLI on it: what a worker is called with.

    Parameters
    ----------
    rate_factor, datapath
        As of `Network`.
    jobs, schedule, time
        As of `FabricCLI`.
    """
    with Network(fabric, rate_factor, datapath, hosts=inside_sandbox()) as network:
        for name in (switch.name for switch in fabric.switches if switch.kind == "ocs"):
            network.northbound.set_delay(name, delay)
        FabricCLI(network, jobs, ocs=schedule, time=time)
    yield from ()


class FabricCLI(CLI):  # type: ignore[misc]
    """Mininet's CLI over a network.

    Parameters
    ----------
    network
        A booted network.
    jobs
        What ``replay`` knows, by name.
    ocs
        How OCSes are reconfigured when a schedule is replayed; None where packet switches carry all.
    time
        Emulated time over real time, for the devices' delays when circuits are lit by hand.
    transport
        What moves bytes over packet switches when a workload is replayed, unless ``--transport`` says.
    by_rule
        An experiment that circuits alone carry, lit by a rule: what is lit first is, its faults happen when
        they are asked for, and its job is replayed with them.
    planned
        Experiments that are replayed as they are, by the names of their jobs.
    """

    prompt = "lightrail> "
    helpStr = (
        "A node's name and a command run it on that node; all and a command, on all hosts side by side:\n"
        f"  {prompt}h1 ping h2\n"
        f"  {prompt}all hostname\n"
        "A program that takes over the terminal needs noecho:\n"
        f"  {prompt}noecho h2 vi notes.txt\n\n"
    )

    def __init__(
        self,
        network: Network,
        jobs: Mapping[str, Job],
        *,
        ocs: Scheduled | None = None,
        time: float = 1.0,
        transport: TransportSetup = CREDIT,
        by_rule: Experiment | None = None,
        planned: Mapping[str, Experiment] | None = None,
    ) -> None:
        self._transport, self._planned = transport, planned or {}
        self._network, self._jobs, self._ocs, self._time = network, jobs, ocs, time
        self._console = Terminal()
        self._by_rule = by_rule
        self._standing = StandingFaults(network)
        self._by_hand = FaultsByHand(network, by_rule) if by_rule else None
        if self._by_hand:
            self._by_hand.begin()
        with ExitStack() as stack:
            if network.has_hosts:
                self._open_hosts(stack)
            super().__init__(network.mininet)

    @property
    def _missing(self) -> dict[str, str]:
        """The commands for which there is nothing here, and why."""
        missing = {"switch": "switches stop together, by: fail switches"}
        if not self._network.has_hosts:
            missing["all"] = "applications run on hosts in a sandbox alone: leave out --no-sandbox"
        if not self._ocses():
            missing |= dict.fromkeys(OF_OCSES, f"fabric {self._network.fabric.name} has no OCS")
        if not os.environ.get("DISPLAY"):
            missing |= dict.fromkeys(OF_DISPLAYS, "there is no display: DISPLAY is not set")
        if self._by_hand:
            missing["rates"] = "links over circuits have no rates to measure; type replay, and see its CCT"
        return missing

    def get_names(self) -> list[str]:
        """Return the names of methods, without commands that have nothing here: for help and completion."""
        missing = {f"do_{name}" for name in self._missing}
        return [name for name in super().get_names() if name not in missing]

    def onecmd(self, line: str) -> bool:
        """Run a line, or say why there is nothing to run it on."""
        words = line.split()
        command = "".join(words[1:2] if words[:1] == ["help"] else words[:1])
        if reason := self._missing.get(command):
            self._refuse(reason)
            return False
        try:
            return bool(super().onecmd(line))
        except LightrailError as error:  # it does not end the CLI
            self._refuse(str(error))
            return False

    def waitForNode(self, node: Node) -> None:
        """Print what a command on a node prints; lines that are piped in are the CLI's, not the command's."""
        if self.isatty():
            super().waitForNode(node)
        while node.waiting:
            output(node.monitor())

    def default(self, line: str) -> None:
        """Run a command on a node; hosts know the names of others by themselves."""
        name, command = _halves(line)
        if self._network.has_hosts and command and name in self._network.fabric.server_index:
            node = self._network.mininet.get(name)
            node.sendCmd(command)
            self.waitForNode(node)
        elif name not in self._network.mininet:
            raise ScenarioError(
                f"there is no command or node {name!r}", "type help; h0 COMMAND runs one on h0"
            )
        else:
            super().default(line)

    def do_all(self, line: str) -> None:
        """Run a command on all hosts side by side: all hostname, all ping -c 1 h0."""
        if not line.strip():
            raise ScenarioError("there is no command to run on all hosts", "type all hostname")
        run_on_all(self._network, line, self._say)

    def do_replay(self, line: str) -> None:
        """Carry a workload or a job file: replay sparse 0.4 rails 1, replay a.json ecmp --transport tcp."""
        # A workload is tried and judged as in a run, on the network as it is now. What has failed works while
        # links are sampled; then it fails again, as in a run with these faults.
        asked = self._experiment(replay_line(line, self._jobs))
        with self._standing.lifted(asked) as experiment, self._devices_kept():
            self._network.set_hosts(experiment.host)
            broken = unmet(self._network, port_settings(self._network))
            worst = math.nan if experiment.over_circuits else worst_link_error(self._network, experiment.seed)
            lasts_s = experiment.dilation.emulated_s(predict(experiment).iteration_s)
            if lasts_s > LONG_S:
                self._say(f"this takes about {lasts_s:.0f} s")
            outcome = tried(experiment, self._network, worst, broken)
        if self._by_hand:
            self._by_hand.begin()
        self._say(_summary(outcome))

    def do_rates(self, _line: str) -> None:
        """Measure a sample of links against their nominal rate: rates."""
        if failed := [fault.name for fault in self._standing.standing]:
            raise ScenarioError(f"{', '.join(failed)} failed", "type mend, and rates then")
        table = Table("NIC", "nominal Mbit/s", "measured Mbit/s", "off by")
        for nic, error in link_errors(self._network, np.random.default_rng()).items():
            nominal = self._network.fabric.nic_rate_bps(nic) * self._network.rate_factor / 1e6
            name = str(self._network.fabric.nic_port(nic))
            table.add_row(name, f"{nominal:.1f}", f"{nominal * (1 + error):.1f}", f"{error:+.1%}")
        self._console.print(table)

    def do_circuits(self, _line: str) -> None:
        """Show what every OCS lights: circuits."""
        self._print_circuits()

    def do_draw(self, line: str) -> None:
        """Draw the fabric, with the circuits that are lit now: draw, draw fabric.svg."""
        # Here: matplotlib takes long to import.
        from testbed.report.fabric_drawing import draw_fabric, fabric_caption

        fabric, file = self._network.fabric, line.strip() or "fabric.png"
        lit = {name: tuple(self._network.northbound.ocs(name).circuits) for name in self._ocses()}
        draw_fabric(fabric, file, lit)
        self._say(f"{file}: {fabric_caption(fabric, lit)}")

    def do_light(self, line: str) -> None:
        """Light circuits of an OCS, or none: light ocs0 0>3 3>0 (light ocs0 -)."""
        example = "type light ocs0 0>1 1>0, or light ocs0 - to darken it"
        self._command(line, example, self._network.northbound.light)

    def do_show(self, line: str) -> None:
        """Show days and nights: show ocs0 50ms 0>1,1>0 20ms - 50ms 0>2,2>0."""
        example = "type days and nights, like show ocs0 50ms 0>1,1>0 20ms -"
        self._command(line, example, self._network.northbound.show)

    def do_device(self, line: str) -> None:
        """Make an OCS behave as a device or as ideal, or list them: device ocs0 mems-3d (device)."""
        name, device = _halves(line)
        if not device and name in ["", *self._ocses()]:
            self._console.print(devices_table())
            return
        self._command(line, "type device for the list of devices", self._set_device)

    def do_fail(self, line: str) -> None:
        """Have something fail now or in replays, or list what can: fail nic:3:1, fail nic:3:1@40% (fail)."""
        if not (name := line.strip()):
            known = ", ".join(self._by_hand.names) if self._by_hand else KINDS
            self._say(f"{known}; failed: {', '.join(self._failed) or 'nothing'}")
        elif self._by_hand:
            self._print_circuits(self._by_hand.fail(name))
        else:
            self._standing.fail(name)
            self._say(f"failed: {', '.join(self._failed)}")

    def do_mend(self, _line: str) -> None:
        """Have all that failed work again, and light what was lit first: mend."""
        mended = ", ".join(self._failed)
        if self._by_hand:
            self._by_hand.begin()
        else:
            self._standing.mend()
        self._say(f"mended: {mended or 'nothing had failed'}")

    def _open_hosts(self, stack: ExitStack) -> None:
        """Have hosts' shells start others by lightrail-ssh, with the environment of commands on hosts."""
        stack.enter_context(HostServer(self._network))
        user = self._network.host_namespaces.user
        for number, host in enumerate(self._network.mininet.hosts):
            added = host_environment(self._network, number) | of_user(user, as_root=True)
            host.environment = with_places({**os.environ, **added})

    @property
    def _failed(self) -> list[str]:
        """What has failed, or is to fail in replays."""
        return self._by_hand.failed if self._by_hand else self._standing.names

    def _set_device(self, name: str, device: str) -> object:
        delay = ReconfigurationDelay() if device == IDEAL else delay_of(device_named(device), self._time)
        return self._network.northbound.set_delay(name, delay)

    def _ocses(self) -> list[str]:
        return [switch.name for switch in self._network.fabric.switches if switch.kind == "ocs"]

    def _command(self, line: str, example: str, command: Callable[[str, str], object]) -> None:
        """Give the OCS that a line names first what follows, and show what came of it."""
        name, rest = _halves(line)
        ocses = self._ocses()
        if name and name not in ocses:
            raise ScenarioError(f"there is no OCS {name!r}", f"take {', '.join(ocses)}")
        if not rest:
            raise ScenarioError(f"nothing for {name} to do" if name else "no OCS is named", example)
        command(name, rest)
        self._network.northbound.wait_idle(name, WAIT_S)
        if self._network.has_hosts:
            self._network.hosts.follow_light()
        self._print_circuits()

    def _refuse(self, reason: str) -> None:
        self._say(reason, style="red")

    def _say(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, soft_wrap=True)

    @contextmanager
    def _devices_kept(self) -> Iterator[None]:
        """Have OCSes be after the block what they were before: a schedule sets them as it needs them."""
        before = {name: self._network.northbound.ocs(name) for name in self._ocses()}
        try:
            yield
        finally:
            for name, status in before.items():
                self._network.northbound.set_delay(name, ReconfigurationDelay(status.device, status.delay_s))

    def _experiment(self, asked: ReplayLine) -> Experiment:
        """Return what a line asks for, at a scale that its workload can be measured at."""
        if fixed := self._by_rule or self._planned.get(asked.name):
            return self._as_it_is(fixed, asked)
        scheme = asked.scheme or ("spectra" if self._ocs else "rails")
        (scheduler_named if self._ocs else policy_named)(scheme)
        fabric, rate, seed = self._network.fabric, self._network.rate_factor, asked.seed or 0
        if self._ocs:
            if asked.transport:
                raise ScenarioError(
                    "schedules over OCSes send datagrams, whatever the transport", "leave out --transport"
                )
            scheduled = replace(self._ocs, scheduler=scheme)
            planned = Experiment(fabric, asked.job, WHILE_LIT, seed=seed, circuits=scheduled)
            plan = plan_of(planned.rule)
            scale = dilation_for(plan.line_s, len(plan.ocses), plan.delay_s, rate=rate, slot_s=SLOT_S)
            return replace(planned, dilation=scale)
        transport = TransportSetup(asked.transport) if asked.transport else self._transport
        unscaled = Dilation(rate, 1.0)
        full = Experiment(
            fabric,
            asked.job,
            scheme,
            unscaled,
            seed,
            transport=transport,
            mtu=self._network.mtu,
            hashing=self._network.hashing,
        )
        check_congestion_control(congestion_control(transport.name))
        lasts_s = predict(full).iteration_s
        volume = job_volume(
            asked.job, fabric, rate, [bound_s(full, forwarded=True)], lasts_s, self._network.mtu
        )
        return replace(full, dilation=Dilation(rate, volume))

    def _as_it_is(self, experiment: Experiment, asked: ReplayLine) -> Experiment:
        """Return an experiment that was planned before; refuse what a line would have otherwise."""
        if self._by_hand and self._by_hand.failed:
            failed = " and ".join(self._by_hand.failed)
            raise ScenarioError(f"{failed} failed by hand; a replay has its own faults", "type mend first")
        if not asked.is_plain:
            name = experiment.job.name
            raise ScenarioError(f"{experiment.name} is all there is to replay", f"type replay {name}")
        return experiment

    def _print_circuits(self, ocses: Sequence[str] | None = None) -> None:
        """Show what some OCSes light, by default all."""
        table = Table("OCS", "circuits", "phase", "device", "delay", "dark for", box=None)
        for name in self._ocses() if ocses is None else ocses:
            try:
                status = self._network.northbound.ocs(name)
            except NetworkError as error:
                table.add_row(name, "unknown", str(error))
                continue
            log = [entry for entry in self._network.northbound.ocs_log(name) if entry.lit_s]
            lit = " ".join(f"{a}>{b}" for a, b in status.circuits) or "-"
            phase = (
                f"{status.phase}, links down"
                if self._by_hand and self._by_hand.is_cut(name)
                else status.phase
            )
            dark = f"{((log[-1].lit_s or 0) - (log[-1].dark_s or 0)) * 1e3:.1f} ms" if log else "-"
            table.add_row(name, lit, phase, status.device, f"{status.delay_s * 1e3:g} ms", dark)
        self._console.print(table)


def _summary(outcome: Outcome) -> str:
    """Return an outcome in a line, and under it why its verdict is not faithful."""
    experiment, judged = outcome.experiment, outcome.verdict
    times = {
        "CCT": outcome.cct_s,
        "predicted": outcome.predicted_s,
        **({} if outcome.free is None else {"by its own paths and delays": outcome.free_s}),
        "lower bound": outcome.bound_s,
    }
    words = ", ".join(f"{name} {seconds * 1e3:.4g} ms" for name, seconds in times.items())
    lines = [f"{experiment.job.name}, {experiment.name}: {words} ({judged.word})"]
    lines += [f"  {doubt}" for doubt in doubts([judged])]
    lines += [f"  the model disagrees: {why}" for why in outcome.findings]
    return "\n".join(lines)


def devices_table() -> Table:
    """Return the table of devices, with their sources."""
    table = Table("device", "what", "ports", "delay", "p99", "source", box=None)
    for device in DEVICES.values():
        p99 = "" if device.delay_p99_s is None else duration_text(device.delay_p99_s)
        delay = duration_text(device.delay_s)
        table.add_row(device.name, device.what, str(device.ports or ""), delay, p99, device.source)
    return table


def _halves(line: str) -> tuple[str, str]:
    name, _, rest = line.strip().partition(" ")
    return name, rest.strip()
