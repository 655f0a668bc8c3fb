"""Mininet's CLI on a live fabric, with ``replay``, ``rates``, and commands for circuits by hand."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from mininet.cli import CLI
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from controller.circuits.devices import DEVICES, ReconfigurationDelay, delay_of, device_named
from controller.schedulers.registry import scheduler_named
from testbed.network.link_sample import link_errors, worst_link_error
from testbed.network.network import Network
from testbed.network.readback import port_settings, unmet
from testbed.report.table import duration_text
from testbed.run.calibrate import volume_factor
from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.faults_by_hand import FaultsByHand
from testbed.run.ocs_plan import OcsSetup, dilation_for
from testbed.run.outcome import Outcome, bound_s
from testbed.run.predict import predict
from testbed.run.trial import tried
from topologies.errors import LightrailError, NetworkError, ScenarioError
from traffic.collectives.exchange import bytes_between
from traffic.job import Job
from traffic.spraying.registry import policy_named
from traffic.transports.host_settings import IDEAL as IDEAL_TRANSPORT
from traffic.transports.host_settings import TransportSetup

LONG_S = 10.0
"""From how long on a replay says how long it takes [s]."""
WAIT_S = 30.0
IDEAL = ReconfigurationDelay().device
"""What an OCS is called that is lit again at once; no device of the table."""
SLOT_S = 0.1
"""How long Spectra's shortest slot is lit when a schedule is replayed, at emulated scale."""
USAGE = "type replay WORKLOAD [SCHEME [SEED]], like replay uniform rails 1"


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
        What moves bytes over packet switches when a workload is replayed; the network was booted for it.
    foreseen
        An experiment whose circuits are foreseen: what is lit first is, its faults happen when they are asked
        for, and its job is replayed with them.
    planned
        Experiments that are replayed as they are, by the names of their jobs.
    """

    prompt = "lightrail> "

    def __init__(
        self,
        network: Network,
        jobs: Mapping[str, Job],
        *,
        ocs: OcsSetup | None = None,
        time: float = 1.0,
        transport: TransportSetup = IDEAL_TRANSPORT,
        foreseen: Experiment | None = None,
        planned: Mapping[str, Experiment] | None = None,
    ) -> None:
        self._transport, self._planned = transport, planned or {}
        self._network, self._jobs, self._ocs, self._time = network, jobs, ocs, time
        self._console = Console(highlight=False)
        self._foreseen = foreseen
        self._by_hand = FaultsByHand(network, foreseen) if foreseen else None
        if self._by_hand:
            self._by_hand.begin()
        super().__init__(network.mininet)

    def do_replay(self, line: str) -> None:
        """Carry a workload over the fabric: replay WORKLOAD [SCHEME [SEED]], e.g. replay sparse 0.4 rails."""
        self._told(lambda: self._replay(line))

    def do_rates(self, _line: str) -> None:
        """Measure a sample of links against their nominal rate: rates."""
        self._told(self._print_rates)

    def do_circuits(self, _line: str) -> None:
        """Show what every OCS lights: circuits."""
        self._told(self._print_circuits)

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
        """Have something fail and light what is foreseen for it, or list what can: fail node 2 (fail)."""
        self._told(lambda: self._fail(line.strip()))

    def do_mend(self, _line: str) -> None:
        """Have all that failed work again, and light what was lit first: mend."""
        self._told(self._mend)

    @property
    def _faults_by_hand(self) -> FaultsByHand:
        if self._by_hand is None:
            raise ScenarioError(
                "no faults are foreseen on this fabric",
                "have links fail by Mininet's link, like link h0 leaf0 down",
            )
        return self._by_hand

    def _fail(self, name: str) -> None:
        """Have a fault happen, and show what changed; without a name, what can fail."""
        faults = self._faults_by_hand
        if not name:
            self._console.print(f"{', '.join(faults.names)}; failed: {', '.join(faults.failed) or 'nothing'}")
            return
        changed = faults.fail(name)
        self._print_circuits(changed)

    def _mend(self) -> None:
        """Have all work again, and say what had failed."""
        mended = ", ".join(self._faults_by_hand.failed)
        self._faults_by_hand.begin()
        self._console.print(f"mended: {mended or 'nothing had failed'}")

    def _set_device(self, name: str, device: str) -> object:
        delay = (
            ReconfigurationDelay()
            if device == IDEAL
            else delay_of(device_named(device), self._time, self._network.rate_factor)
        )
        return self._network.northbound.set_delay(name, delay)

    def _ocses(self) -> list[str]:
        return [switch.name for switch in self._network.fabric.switches if switch.kind == "ocs"]

    def _command(self, line: str, example: str, command: Callable[[str, str], object]) -> None:
        """Give the OCS that a line names first what follows, and show what came of it."""
        name, rest = _halves(line)

        def given() -> None:
            self._check(name, rest, example)
            command(name, rest)
            self._network.northbound.wait_idle(name, WAIT_S)
            self._print_circuits()

        self._told(given)

    def _check(self, name: str, rest: str, example: str) -> None:
        """Refuse a line without an OCS of this network, or with nothing for it."""
        ocses = self._ocses()
        if not ocses:
            raise ScenarioError(f"fabric {self._network.fabric.name} has no OCS")
        if name and name not in ocses:
            raise ScenarioError(f"there is no OCS {name!r}", f"take {', '.join(ocses)}")
        if not rest:
            raise ScenarioError(f"nothing for {name} to do" if name else "no OCS is named", example)

    def _told(self, command: Callable[[], object]) -> None:
        """Do something, or say why not: an error shall not end the CLI."""
        try:
            command()
        except LightrailError as error:
            # As it is: what was typed may hold brackets, which are not rich's.
            self._console.print(str(error), style="red", markup=False, soft_wrap=True)

    def _replay(self, line: str) -> None:
        """Try and judge a workload as a run would, on the network as it is now."""
        experiment = self._experiment(line)
        broken = unmet(self._network, port_settings(self._network))
        worst = math.nan if experiment.over_circuits else worst_link_error(self._network, experiment.seed)
        lasts_s = experiment.dilation.emulated_s(predict(experiment).iteration_s)
        if lasts_s > LONG_S:
            self._console.print(f"this takes about {lasts_s:.0f} s")
        with self._devices_kept():
            outcome = tried(experiment, self._network, worst, broken)
        if self._by_hand:
            self._by_hand.begin()
        self._console.print(_told_of(outcome), markup=False, soft_wrap=True)

    @contextmanager
    def _devices_kept(self) -> Iterator[None]:
        """Have OCSes be after the block what they were before: a schedule sets them as it needs them."""
        before = {name: self._network.northbound.ocs(name) for name in self._ocses()}
        try:
            yield
        finally:
            for name, status in before.items():
                self._network.northbound.set_delay(name, ReconfigurationDelay(status.device, status.delay_s))

    def _print_rates(self) -> None:
        if self._by_hand:
            raise ScenarioError(
                "links over circuits have no rates to measure", "type replay, and see its CCT"
            )
        table = Table("NIC", "nominal Mbit/s", "measured Mbit/s", "off by")
        for nic, error in link_errors(self._network, np.random.default_rng()).items():
            nominal = self._network.fabric.nic_rate_bps(nic) * self._network.rate_factor / 1e6
            name = str(self._network.fabric.nic_port(nic))
            table.add_row(name, f"{nominal:.1f}", f"{nominal * (1 + error):.1f}", f"{error:+.1%}")
        self._console.print(table)

    def _dilation_of(self, job: Job, ocs: OcsSetup) -> Dilation:
        fabric, rate = self._network.fabric, self._network.rate_factor
        owed = bytes_between(job.collectives[0].pattern, job.gpus)
        line_s = owed * 8 / fabric.nic_rate_bps(fabric.nics[0])
        delay_s = ocs.delay.mean_s
        return dilation_for(line_s, len(self._ocses()), delay_s, rate=rate, slot_s=SLOT_S)

    def _experiment(self, line: str) -> Experiment:
        """Return what a line asks for, at a scale that its workload can be measured at."""
        name, words = _workload(line, self._jobs)
        if self._foreseen and self._by_hand:
            if self._by_hand.failed:
                failed = " and ".join(self._by_hand.failed)
                raise ScenarioError(
                    f"{failed} failed by hand; a replay has its own faults", "type mend first"
                )
            if words:
                raise ScenarioError(
                    f"{self._foreseen.scheme_name} is all there is to replay", f"type replay {name}"
                )
            return self._foreseen
        if planned := self._planned.get(name):
            if words:
                raise ScenarioError(f"{planned.scheme_name} is all there is to replay", f"type replay {name}")
            return planned
        if len(words) > 2:
            raise ScenarioError(f"unknown words {' '.join(words[2:])!r}", USAGE)
        scheme, seed = [*words, *("spectra" if self._ocs else "rails", "0")[len(words) :]]
        (scheduler_named if self._ocs else policy_named)(scheme)
        if not seed.isdecimal():
            raise ScenarioError(f"the seed {seed!r} is not a whole number", USAGE)
        fabric, job, rate = self._network.fabric, self._jobs[name], self._network.rate_factor
        if self._ocs:
            dilation = self._dilation_of(job, self._ocs)
            return Experiment(fabric, job, scheme, dilation, int(seed), ocs=self._ocs)
        full = Experiment(
            fabric,
            job,
            scheme,
            Dilation(rate, 1.0),
            int(seed),
            transport=self._transport,
            mtu=self._network.mtu,
        )
        volume = volume_factor(rate, [bound_s(full)], len(job.collectives))
        return replace(full, dilation=Dilation(rate, volume))

    def _print_circuits(self, ocses: Sequence[str] | None = None) -> None:
        """Show what some OCSes light, by default all."""
        table = Table("OCS", "circuits", "phase", "device", "delay", "dark for", box=None)
        for name in self._ocses() if ocses is None else ocses:
            try:
                status = self._network.northbound.ocs(name)
            except NetworkError as error:
                table.add_row(name, "unknown", escape(str(error)))
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


def _told_of(outcome: Outcome) -> str:
    """Return an outcome in a line, and under it why its verdict is not faithful."""
    experiment, judged = outcome.experiment, outcome.verdict
    times = {
        "CCT": outcome.cct_s,
        "predicted": outcome.predicted_s,
        "lower bound": outcome.bound_s,
    }
    words = ", ".join(f"{name} {seconds * 1e3:.4g} ms" for name, seconds in times.items())
    lines = [f"{experiment.job.name}, {experiment.scheme_name}: {words} ({judged.word})"]
    lines += [f"  {judged.word}: {why}" for why in (*judged.reasons, judged.advice) if why]
    lines += [f"  the model disagrees: {why}" for why in outcome.findings]
    return "\n".join(lines)


def _workload(line: str, jobs: Mapping[str, Job]) -> tuple[str, list[str]]:
    """Return the workload that a line begins with, and the words behind it."""
    for name in sorted(jobs, key=len, reverse=True):
        if f"{line.strip()} ".startswith(f"{name} "):
            return name, line.strip()[len(name) :].split()
    known = f"choose among: {', '.join(jobs)}"
    asked = f"there is no workload {line.strip()!r}" if line.strip() else "no workload is named"
    raise ScenarioError(asked, known)


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
