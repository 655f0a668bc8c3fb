"""A study: points, what they are held against, and what is said of them; and how it is carried out."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypeVar

import pandas as pd
import typer

from testbed.experiment.dilation import UNSCALED
from testbed.experiment.experiment import Experiment
from testbed.machine.files import exists
from testbed.machine.processes import PROCESSES
from testbed.report.claims import Claim
from testbed.report.page import Findings, Format
from testbed.report.run_json import Kind, Typed
from testbed.study.glances import PlannedFailures
from testbed.study.options import (
    DatapathOption,
    DryRun,
    Events,
    NoSandbox,
    NoWait,
    Out,
    Plots,
    check_effect,
    check_jobs,
    check_volume,
    directory,
    emulated_bps,
    plot_formats,
)
from testbed.trust.outcome import Outcome
from testbed.trust.scale import RINGS_S
from testbed.trust.similitude import REAL_LINK_DELAY_S
from topologies.errors import ScenarioError
from topologies.fabric import Fabric

RUN = "run.json"
"""What describes a run, in its directory."""
Item = TypeVar("Item")


@dataclass(frozen=True)
class StudyPart:
    """A part of a study's points, of several that are carried out apart."""

    number: int
    """From 1 on."""
    parts: int
    """How many there are."""

    @classmethod
    def of(cls, text: str) -> "StudyPart":
        """Return the part that a text like 3/20 names; ScenarioError if it names none."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
        if found and 1 <= int(found[1]) <= int(found[2]):
            return cls(int(found[1]), int(found[2]))
        raise ScenarioError(f"{text!r} is not a part", "give --part like 3/20, from 1/20 to 20/20")

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return what is its own of some items: every N-th."""
        return items[self.number - 1 :: self.parts]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a study is carried out: options of its command, whose help says what each is."""

    emulated_rate_mbps: Annotated[
        float | None,
        typer.Option(
            "--emulated-rate",
            help="What a NIC is shaped to in the emulation [Mbit/s]; by default what this machine carries"
            " safely.",
        ),
    ] = None
    volume: Annotated[
        float | None,
        typer.Option(
            help="Emulated over real bytes, which makes times as much longer or shorter; by default as much"
            " as takes long enough to be timed."
        ),
    ] = None
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Measure anew first what this machine carries (25 s), on which the automatic rate depends.",
        ),
    ] = False
    dry_run: DryRun = False
    model_only: Annotated[
        bool,
        typer.Option("--model-only", help="Predict by the fluid model and emulate nothing; needs no rights."),
    ] = False
    cli: Annotated[
        bool,
        typer.Option(
            "--cli",
            help="Open Mininet's CLI on the live fabric, and measure nothing; it has replay, rates and fail"
            " too.",
        ),
    ] = False
    datapath: DatapathOption = "netdev"
    no_sandbox: NoSandbox = False
    no_wait: NoWait = False
    jobs: Annotated[
        int, typer.Option(help="How many processes predict and draw; by default as many as CPUs.")
    ] = PROCESSES
    resume: Annotated[
        Path | None,
        typer.Option(
            parser=directory,
            metavar="DIRECTORY",
            help="Go on with the run of a results directory: carry out the points that it lacks, and write"
            " its tables and its report anew (docs/reference/study.md).",
        ),
    ] = None
    part: Annotated[
        StudyPart | None,
        typer.Option(
            parser=StudyPart.of,
            metavar="K/N",
            help="Carry out the K-th of N parts of the points only, into the directory of --out, which all"
            " parts share; --resume with it joins them (docs/reference/cluster.md).",
        ),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Carry points out on the machines of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT"
            " (docs/reference/cluster.md).",
        ),
    ] = None
    out: Out = None
    plots: Plots = "png"
    events: Events = False
    typed: Typed | None = None
    """How the command was typed, for those who go on with its run; None without a command."""

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        check_volume(self.volume)
        if self.emulated_rate_mbps is not None:
            emulated_bps(self.emulated_rate_mbps)
        check_jobs(self.jobs)
        plot_formats(self.plots)
        self._check_directory()
        if self.cli or self.dry_run:
            why = f"{'--cli' if self.cli else '--dry-run'} carries out no point"
            check_effect(why, {"--events": self.events})
        if self.dry_run and (self.model_only or self.cli):
            other = "--model-only" if self.model_only else "--cli"
            raise ScenarioError(f"--dry-run and {other} exclude each other", "leave out the one or the other")
        for given, other in ((self.cli, "--cli"), (self.calibrate, "--calibrate")):
            if self.model_only and given:
                raise ScenarioError(
                    f"--model-only and {other} exclude each other", "leave out the one or the other"
                )

    @property
    def formats(self) -> list[Format]:
        """The formats of the plots."""
        return plot_formats(self.plots)

    @property
    def begun(self) -> Path | None:
        """The directory of a run that is gone on with, or that another part has begun; None for a new one."""
        return self.resume or (self.out if self.part and self.out and exists(self.out / RUN) else None)

    def or_usual(self, usual: "Options") -> "Options":
        """Return the same, at another scale where this one has none."""
        rate_mbps = usual.emulated_rate_mbps if self.emulated_rate_mbps is None else self.emulated_rate_mbps
        volume = usual.volume if self.volume is None else self.volume
        return replace(self, emulated_rate_mbps=rate_mbps, volume=volume)

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
    failures: PlannedFailures | None = None
    """What fails: each point runs without, and then with it."""
    usual: Options = Options()
    """Its scale, where the command line does not say another."""
    transports: str = ""
    """By commas, what moves bytes where ``--transport`` does not say; empty for those of its experiments."""
    real_link_delay_s: float = REAL_LINK_DELAY_S
    """Of a link of the real network, one way, for its dimensionless numbers [s]."""
    parameters: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """What the study varies, by the key of a point at real scale: columns of its row."""

    @property
    def waits_for_light(self) -> bool:
        """Whether OCSes are reconfigured in it, and its scale follows from how long they are dark."""
        relights = any(each.rule and each.rule.delays and not each.rule.stays for each in self.experiments)
        return relights and UNSCALED in {each.dilation for each in self.experiments}

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

    def failing(self, failures: PlannedFailures) -> "Study":
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

    def parameters_of(self, experiment: Experiment) -> Mapping[str, object]:
        """Return what the study varies in a point, at any scale and whatever fails in it."""
        if not self.parameters:
            return {}
        faults = () if self.failures else experiment.faults
        return self.parameters.get(replace(experiment.unscaled, faults=faults).key, {})

    def changed(self, made_of: Callable[[Experiment], Sequence[Experiment]]) -> "Study":
        """Return the study with what becomes of each point, which keeps its parameters."""
        pairs = [(new, old) for old in self.experiments for new in made_of(old)]
        parameters = (
            {new.key: self.parameters[old.key] for new, old in pairs if old.key in self.parameters}
            if self.parameters
            else {}
        )
        return replace(self, experiments=[new for new, _ in pairs], parameters=parameters)
