"""A run: what was run, with what, on what; written as ``run.json``, from which it can be repeated.

Its last line but one is a checksum over all before it, so that a file is read only as it was written, or, if
somebody changed it on purpose, without that line.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, JsonValue, NonNegativeInt, ValidationError

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import LIMIT, Experiment
from testbed.live.sources import AckTraffic
from testbed.machine.datapath import Datapath
from testbed.machine.files import read_whole
from testbed.machine.versions import machine, versions
from testbed.report.means import BASELINE
from testbed.trust.marks import MarkingRule, marking_rule
from testbed.trust.outcome import Outcome
from testbed.trust.similitude import REAL_LINK_DELAY_S, Number
from topologies.errors import LightrailError, ScenarioError, TraceError
from topologies.own import say_own
from topologies.strict_json import first_of, object_of, shown
from traffic.job import LONGEST_S

FORMAT_VERSION: Literal[6] = 6
SEAL = '\n,"sha256": "'
HINT = "give the run.json of a results directory"

LATER = "typed", "congestion"
"""Keys that files of older versions lack."""

Kind = Literal["schemes", "circuits", "nodes", "rings"]
"""What a report compares: schemes over the same packet switches, schedules over OCSes, a job's nodes, or
its collectives."""


Value = str | bool | list[str] | None
"""An option as it was typed; None if it was not."""


@dataclass(frozen=True)
class Typed:
    """How a run was begun: what `--resume` with its directory takes from there."""

    program: str
    """The scenario's file, without its suffix."""
    options: Mapping[str, Value]
    """The options that decide results, and files, by the names of its parameters."""
    directory: str
    """Where it was started: names of files are relative to it."""


@dataclass(frozen=True)
class PointCongestion:
    """The knowledge of a point's congestion controls over datagrams, and the marks of their packets."""

    round_trip_us: tuple[float, float]
    """R, the round trip over the empty path, at real scale: the least and the most of all sources."""
    bdp_packets: tuple[float, float]
    """BDP, in packets of the emulation: the least and the most."""
    marks: MarkingRule
    acks: AckTraffic | None = None
    """The acknowledgements that were packets, at real scale; None where they are none."""


@dataclass(frozen=True)
class RunRecord:
    """All that is needed to run something again, but for the experiments themselves."""

    scenario: str
    """Name of the scenario."""
    title: str
    """What the report is called."""
    command: Sequence[str]
    """The command line."""
    started: datetime
    """When."""
    report: Kind = "schemes"
    """What its report and its table are about."""
    baseline: str = BASELINE
    """The scheme that busbw is relative to."""
    datapath: Datapath = "netdev"
    """Which of Open vSwitch's forwards them, or would."""
    calibration: Mapping[str, object] = field(default_factory=dict)
    """What this machine was measured to carry; anything that JSON can hold."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The effective settings, read back from the machine; anything that JSON can hold."""
    similitude: Mapping[str, Sequence[Number]] = field(default_factory=dict)
    """The dimensionless numbers of each workload that was emulated (`testbed.trust.similitude`)."""
    inert: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By scheme and transport, the constants of a reactive scheme that could not act."""
    congestion: Mapping[str, PointCongestion] = field(default_factory=dict)
    """By point, the round trips and bandwidth-delay products of its sources, and its marks."""
    real_link_delay_s: Annotated[float, Field(ge=0, le=LONGEST_S)] = REAL_LINK_DELAY_S
    """What a link of the real network delays in them, one way [s]."""
    versions: Mapping[str, str] = field(default_factory=versions)
    """Of Python, the kernel, Open vSwitch, the checkout and its packages."""
    machine: Mapping[str, str | int] = field(default_factory=machine)
    """What the machine is."""
    own_modules: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of the source of each module that is a user's own (`topologies.own.own_sources`)."""
    alike: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By transport, those that are predicted as it is and left out, where nothing is emulated."""
    typed: Typed | None = None
    """How it was begun; None if a script of a user's own did, or an older version."""

    @property
    def command_line(self) -> str:
        """The command as one types it."""
        return shlex.join(self.command)


class Known(TypedDict, total=False):
    """What is known of a run only once its networks stand; each as in `RunRecord`."""

    calibration: Mapping[str, object]
    settings: Mapping[str, object]
    similitude: Mapping[str, Sequence[Number]]


def congestion_of(outcome: Outcome) -> PointCongestion | None:
    """Return the knowledge of an outcome's congestion controls; None where none had something to send."""
    if outcome.queueing is None:
        return None
    least_us, most_us = (1e6 * each for each in outcome.queueing.round_trip_s)
    return PointCongestion(
        (least_us, most_us),
        outcome.queueing.bdp_packets,
        marking_rule(outcome.experiment),
        outcome.queueing.acks,
    )


def run_json(run: RunRecord, planned: Sequence[str]) -> str:
    """Return ``run.json``, a line per key.

    Parameters
    ----------
    run
        The run.
    planned
        The lines of all that it consists of (`planned_lines`).
    """
    head = {"format": FORMAT_VERSION, **asdict(run), "started": run.started.isoformat(timespec="seconds")}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    content = "{\n" + ",\n".join([*lines, *planned])
    return content + _seal(content)


def _seal(content: str) -> str:
    """Return the end of a file, with its checksum on a line that can be taken out."""
    return f'{SEAL}{sha256(content.encode()).hexdigest()}"\n}}\n'


def planned_lines(experiments: Sequence[Experiment]) -> list[str]:
    """Return the lines that ``run.json`` has of experiments: each fabric, job and experiment once."""
    about = {
        "transports": list(dict.fromkeys(experiment.transport_name for experiment in experiments)),
        "fluid_limits": sorted({e.name for e in experiments if e.predicted_as == LIMIT}),
        "seeds": sorted({experiment.seed for experiment in experiments}),
        "dilations": [asdict(dilation) for dilation in dict.fromkeys(e.dilation for e in experiments)],
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in about.items()]
    return lines + [f'"{name}": [\n  {_lines(each)}\n]' for name, each in _documents(experiments).items()]


def _lines(texts: Iterable[str]) -> str:
    return ",\n  ".join(texts)


def _documents(experiments: Sequence[Experiment]) -> dict[str, Iterable[str]]:
    """Return the texts of fabrics, of jobs, and of experiments that have the numbers of theirs."""
    numbers: dict[str, dict[str, int]] = {"fabric": {}, "job": {}}
    texts = []
    for experiment in experiments:
        document = json.loads(experiment.to_json())
        for name, known in numbers.items():
            document[name] = known.setdefault(json.dumps(document[name]), len(known))
        texts.append(json.dumps(document))
    return {"fabrics": numbers["fabric"], "jobs": numbers["job"], "experiments": texts}


class _Placed(BaseModel):
    """An experiment: the numbers of its fabric and its job, and the rest of its document."""

    model_config = ConfigDict(strict=True, extra="allow")
    fabric: NonNegativeInt
    job: NonNegativeInt


class _RunFile(BaseModel):
    """All that a ``run.json`` has."""

    model_config = ConfigDict(strict=True, extra="forbid")
    format: Literal[6]
    run: RunRecord
    """The fields of `RunRecord`, which the file has beside the other keys."""
    transports: list[str]
    fluid_limits: list[str]
    seeds: list[int]
    dilations: list[Dilation]
    fabrics: list[JsonValue]
    jobs: list[JsonValue]
    experiments: list[_Placed]


def datapath_of(run_file: Path) -> Datapath:
    """Return which datapath forwarded in a run, as its ``run.json`` says.

    Raises
    ------
    ScenarioError
        If the file cannot be read, is not what was written, or not a run of this format.
    """
    return _read(run_file).run.datapath


def settings_of(run_file: Path) -> dict[str, Any]:
    """Return the settings of a run; errors are those of `datapath_of`."""
    return dict(_read(run_file).run.settings)


def sources_of(run_file: Path) -> str:
    """Return the sources of lightrail that a run began with; errors are those of `datapath_of`."""
    return _read(run_file).run.versions.get("sources", "of an older version")


def typed_of(run_file: Path) -> Typed | None:
    """Return how a run was begun, after what it names of a user's own code is said.

    Errors are those of `datapath_of`.
    """
    if (typed := _read(run_file).run.typed) is not None:
        texts = (
            text
            for value in typed.options.values()
            for text in (value if isinstance(value, list) else [value])
        )
        say_own(run_file, [word for text in texts for word in str(text).split(",")])
    return typed


def begun_as(run_file: Path) -> tuple[str, str]:
    """Return the scenario of a run, and the command as one types it; errors are those of `datapath_of`."""
    run = _read(run_file).run
    return run.scenario, run.command_line


def with_readings(run: RunRecord, run_file: Path) -> RunRecord:
    """Return a run with what another read back of its machine, too; errors are those of `datapath_of`."""
    before = _read(run_file).run
    return replace(
        run,
        command=before.command,
        typed=before.typed,
        started=before.started,
        calibration=run.calibration or before.calibration,
        settings={**before.settings, **run.settings},
        similitude={**before.similitude, **run.similitude},
    )


def real_link_delay_of(run_file: Path) -> float:
    """Return what a link of the real network delays in a run's numbers [s]; errors as of `datapath_of`."""
    return _read(run_file).run.real_link_delay_s


def kind_of(run_file: Path) -> Kind:
    """Return what the report of a run is about; errors are those of `datapath_of`."""
    return _read(run_file).run.report


def changed_modules(run_file: Path, sources: Mapping[str, str]) -> list[str]:
    """Return which modules have another source now than in a run; errors are those of `datapath_of`.

    Parameters
    ----------
    run_file
        The ``run.json``.
    sources
        Those of now, as `RunRecord.own_modules`. A module that one of the two lacks is not compared: then
        what imports it has another source too.
    """
    before = _read(run_file).run.own_modules
    return [module for module, source in sources.items() if before.get(module, source) != source]


def experiments_of(run_file: Path) -> list[Experiment]:
    """Return the experiments of a ``run.json``, to run them again.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or is not a run of this format.
    """
    data = _read(run_file)
    say_own(run_file, [data.jobs, *(each.model_extra for each in data.experiments)])
    made: dict[tuple[str, int], Experiment] = {}
    found = []
    for index, each in enumerate(data.experiments):
        try:
            found.append(_experiment(each, data, made))
        except LightrailError as error:
            raise _not_valid(run_file, f"experiments[{index}]: {error.sentence}") from error
    return found


def _experiment(placed: _Placed, data: _RunFile, made: dict[tuple[str, int], Experiment]) -> Experiment:
    """Return an experiment of a run; those of one fabric share it, and those of one job."""
    there = {"fabric": (placed.fabric, data.fabrics), "job": (placed.job, data.jobs)}
    parts = {
        name: getattr(made[name, number], name) if (name, number) in made else documents[number]
        for name, (number, documents) in there.items()
    }
    experiment = Experiment.from_json({**(placed.model_extra or {}), **parts})
    for name, (number, _) in there.items():
        made.setdefault((name, number), experiment)
    return experiment


def _read(run_file: Path) -> _RunFile:
    """Return the content of a file; ScenarioError as of `datapath_of`."""
    try:
        return _checked(run_file, read_whole(run_file).decode())
    except OSError as error:
        raise ScenarioError(f"{run_file} cannot be read: {error.strerror}", HINT) from error
    except ValueError as error:
        raise _not_valid(run_file, str(error)) from error


@lru_cache(maxsize=1)  # each of those above reads the file, which has megabytes where points are many
def _checked(run_file: Path, text: str) -> _RunFile:
    data = _document(run_file, text)
    if "format" not in data:
        raise _not_valid(run_file, "format: is missing")
    if (version := data["format"]) != FORMAT_VERSION:
        raise ScenarioError(
            f"{run_file} has the format {shown(version)}, and this version reads {FORMAT_VERSION}",
            "run the command line in it again",
        )
    head = {each.name: data.pop(each.name) for each in fields(RunRecord) if each.name in data}
    if missing := [each.name for each in fields(RunRecord) if each.name not in {*head, *LATER}]:
        raise _not_valid(run_file, f"{missing[0]}: is missing")
    try:
        read = _RunFile.model_validate_json(json.dumps({**data, "run": head}))
    except ValidationError as error:
        raise _not_valid(run_file, first_of(error).removeprefix("run.")) from error
    except LightrailError as error:  # a value of a class of ours that refuses it
        raise _not_valid(run_file, error.sentence) from error
    for index, each in enumerate(read.experiments):
        for name, number, there in (("fabric", each.fabric, read.fabrics), ("job", each.job, read.jobs)):
            if number >= len(there):
                raise _not_valid(run_file, f"experiments[{index}].{name}: {number} of {len(there)}")
    return read


def _document(run_file: Path, text: str) -> dict[str, Any]:
    """Return the JSON object of a file's text; ScenarioError as of `datapath_of`."""
    try:
        data = json.loads(_unsealed(run_file, text), object_pairs_hook=object_of)
    except (ValueError, RecursionError) as error:
        raise _not_valid(run_file, str(error)) from error
    except TraceError as error:  # a key is there twice
        raise _not_valid(run_file, error.sentence) from error
    if not isinstance(data, dict):
        raise _not_valid(run_file, "it is not an object")
    if "sha256" in data:
        raise _changed(run_file)
    return data


def _unsealed(run_file: Path, text: str) -> str:
    """Return a file's text without its checksum, which is checked; one without a checksum as it is."""
    content, seal, _ = text.rpartition(SEAL)
    if not seal:
        return text
    if text != content + _seal(content):
        raise _changed(run_file)
    return content + "\n}\n"


def _changed(run_file: Path) -> ScenarioError:
    return ScenarioError(
        f"{run_file} is not as it was written: its checksum does not agree",
        "restore a copy of it; if you changed it on purpose, delete its sha256, with the comma before it",
    )


def _not_valid(run_file: Path, why: str) -> ScenarioError:
    return ScenarioError(f"{run_file} is not a valid run: {why}", HINT)
