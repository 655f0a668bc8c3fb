"""A study: points, what they are held against, and what is said of them; and how it is carried out."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from testbed.machine.datapath import Datapath
from testbed.machine.processes import PROCESSES
from testbed.report.claims import Claim
from testbed.report.page import Findings
from testbed.report.run_json import Kind
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome
from testbed.run.scale import RINGS_S
from testbed.run.similitude import REAL_LINK_DELAY_S
from testbed.study.glances import Failures
from testbed.study.options import check_volume
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.transports.host_settings import TransportSetup


@dataclass(frozen=True)
class Options:
    """How a scenario is carried out; what it is, its points say."""

    emulated_rate_bps: float | None = None
    """What a NIC is shaped to [bit/s]; None for what this machine carries safely."""
    model_only: bool = False
    """Predict, and emulate nothing."""
    cli: bool = False
    """Open Mininet's CLI on the fabric, and measure nothing."""
    datapath: Datapath = "netdev"
    """Which of Open vSwitch's forwards."""
    sandbox: bool = True
    """Whether to run in a sandbox of its own."""
    out: Path | None = None
    """The results directory; None for one of its own."""
    volume: float | None = None
    """Emulated over real bytes; None for as much as takes long enough."""
    dry_run: bool = False
    """Print what the run would be, and boot nothing."""
    calibrate: bool = False
    """Whether to measure anew first what this machine carries."""
    real_link_delay_s: float = REAL_LINK_DELAY_S
    """Of a link of the real network, one way, for its dimensionless numbers [s]."""
    jobs: int = PROCESSES
    """How many processes predict at once."""
    resume: Path | None = None
    """The results directory of a run that is gone on with, instead of ``out``."""
    part: tuple[int, int] | None = None
    """Which part of how many is carried out, from (1, 1) on; None for all."""
    cluster: str | None = None
    """The address of the Ray cluster that carries points out; None for this machine."""

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        check_volume(self.volume)
        self._check_directory()
        if self.dry_run and (self.model_only or self.cli):
            other = "--model-only" if self.model_only else "--cli"
            raise ScenarioError(f"--dry-run and {other} exclude each other", "leave out the one or the other")
        for given, other in ((self.cli, "--cli"), (self.calibrate, "--calibrate")):
            if self.model_only and given:
                raise ScenarioError(
                    f"--model-only and {other} exclude each other", "leave out the one or the other"
                )

    def or_usual(self, usual: "Options") -> "Options":
        """Return the same, at another scale where this one has none."""
        rate_bps = usual.emulated_rate_bps if self.emulated_rate_bps is None else self.emulated_rate_bps
        volume = usual.volume if self.volume is None else self.volume
        return replace(self, emulated_rate_bps=rate_bps, volume=volume)

    def _check_directory(self) -> None:
        """Refuse what needs a directory and names none, or two; and a cluster without a name."""
        if self.cluster == "":
            raise ScenarioError("--cluster names no cluster", "give auto, HOST:PORT or ray://HOST:PORT")
        if self.resume and self.out:
            raise ScenarioError("--resume and --out name a directory each", "leave out --out")
        if self.part and not (self.resume or self.out):
            raise ScenarioError(
                "parts of a run write into one directory, and none is named", "give all parts the same --out"
            )
        if (self.resume or self.part or self.cluster) and (self.cli or self.dry_run):
            raise ScenarioError(
                "--resume, --part and --cluster are for points that are carried out",
                "leave them out with --cli and --dry-run",
            )


def no_claims(_table: pd.DataFrame) -> list[Claim]:
    """Return no claim: there is nothing to hold the summary against."""
    return []


def no_findings(_outcomes: Sequence[Outcome]) -> Findings:
    """Return nothing: the report of its kind says all."""
    return Findings()


@dataclass(frozen=True)
class Study:
    """One experiment in many points."""

    name: str
    """Of its file and its results."""
    title: str
    """What its report is called."""
    experiments: Sequence[Experiment]
    """Its points: at real scale over one fabric, for this machine to choose one, or all at a scale of their
    own. Those over equal fabrics at equal rates, whose hosts are set alike, share a network."""
    claims: Callable[[pd.DataFrame], list[Claim]] = no_claims
    """What its summary is held against."""
    report: Kind = "schemes"
    """What its report and its table are about."""
    findings: Callable[[Sequence[Outcome]], Findings] = no_findings
    """What it has to say of its outcomes itself."""
    baseline: str = ""
    """The scheme that busbw is relative to, where it is not the usual one."""
    rings_s: float = RINGS_S
    """How long a point may take at emulated scale so that the steps of its rings are long [s]."""
    most_nic_bps: float = math.inf
    """What NICs are shaped to at most, if the user does not say to what [bit/s]: for fabrics of so many ports
    that a packet costs the switch more than it does where the machine was calibrated."""
    slot_s: float | None = None
    """How long the shortest slot of a schedule is to be lit at emulated scale [s]; None for as long as the
    machine's OCSes need."""
    failures: Failures | None = None
    """What fails: each point runs without, and then with it."""
    usual: Options = Options()
    """Its scale, where the command line does not say another."""
    transports: str = ""
    """By commas, what moves bytes where ``--transport`` does not say; empty for those of its experiments."""
    parameters: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """What the study varies, by the key of a point at real scale: columns of its row."""

    @property
    def relights(self) -> bool:
        """Whether OCSes are reconfigured in it."""
        return any(each.rule and each.rule.delays and not each.rule.stays for each in self.experiments)

    @property
    def fabrics(self) -> list[Fabric]:
        """The fabrics of its points, each once."""
        return list(dict.fromkeys(experiment.fabric for experiment in self.experiments))

    @property
    def grid(self) -> str:
        """How many points there are, and what varies."""
        values = defaultdict[str, dict[str, None]](dict)
        for each in self.experiments:
            words = {**self.parameters_of(each), "seed": each.seed, "scheme": each.scheme_name}
            for key, value in words.items():
                values[key][str(value)] = None
        lists = "; ".join(f"{key} {', '.join(some)}" for key, some in values.items() if len(some) > 1)
        return f"{len(self.experiments):,} points" + (f": {lists}" if lists else "")

    def under(self, transports: Sequence[TransportSetup]) -> "Study":
        """Return the same points, each under each transport that moves bytes over its packet switches."""
        return self._with(
            lambda each: [
                replace(each, transport=transport)
                for transport in (transports if each.over_packets else transports[:1])
            ]
        )

    def sharing_queue_pairs(self) -> "Study":
        """Return the same points with one communicator, whose queue pairs all collectives share."""
        return self._with(lambda each: [replace(each, shared_queue_pairs=True)])

    def in_packets_of(self, mtu: int) -> "Study":
        """Return the same study at another MTU [bytes]."""
        return self._with(lambda each: [replace(each, mtu=mtu)])

    def failing(self, failures: Failures) -> "Study":
        """Return the same points, each without and then with what fails.

        Raises
        ------
        ScenarioError
            If it has faults of its own.
        """
        if any(each.faults or (each.rule and each.rule.foresees) for each in self.experiments):
            raise ScenarioError(
                f"{self.name} foresees what fails in it, and --fail would come on top", "leave out --fail"
            )
        return replace(self, failures=failures)

    def over(self, changed: Callable[[Fabric], Fabric]) -> "Study":
        """Return the same study over fabrics that are changed, each of as many GPUs as it was."""
        fabrics = {fabric: changed(fabric) for fabric in self.fabrics}
        return self._with(lambda each: [replace(each, fabric=fabrics[each.fabric])])

    def parameters_of(self, experiment: Experiment) -> Mapping[str, object]:
        """Return what the study varies in a point, at any scale and whatever fails in it."""
        if not self.parameters:
            return {}
        faults = () if self.failures else experiment.faults
        return self.parameters.get(replace(experiment.unscaled, faults=faults).key, {})

    def _with(self, made_of: Callable[[Experiment], Sequence[Experiment]]) -> "Study":
        """Return the study with what becomes of each point, which keeps its parameters."""
        pairs = [(new, old) for old in self.experiments for new in made_of(old)]
        parameters = (
            {new.key: self.parameters[old.key] for new, old in pairs if old.key in self.parameters}
            if self.parameters
            else {}
        )
        return replace(self, experiments=[new for new, _ in pairs], parameters=parameters)
