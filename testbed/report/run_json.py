"""A run: what was run, with what, on what; written as ``run.json``, from which it can be repeated."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict, cast, get_args

from testbed.machine.datapath import Datapath, datapath_named
from testbed.machine.files import read_whole
from testbed.machine.versions import machine, versions
from testbed.report.means import BASELINE
from testbed.run.agreement import LIMIT
from testbed.run.experiment import Experiment
from testbed.run.similitude import REAL_LINK_DELAY_S, Number
from topologies.errors import ScenarioError

FORMAT_VERSION = 6
HINT = "give the run.json of a results directory"

Kind = Literal["schemes", "circuits", "nodes", "rings"]
"""What a report compares: schemes over the same packet switches, schedules over OCSes, a job's nodes, or
its collectives."""


@dataclass(frozen=True)
class Run:
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
    """The dimensionless numbers of each workload that was emulated (`testbed.run.similitude`)."""
    inert: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By scheme and transport, the constants of a reactive scheme that could not act."""
    real_link_delay_s: float = REAL_LINK_DELAY_S
    """What a link of the real network delays in them, one way [s]."""
    versions: Mapping[str, str] = field(default_factory=versions)
    """Of Python, the kernel, Open vSwitch, the checkout and its packages."""
    machine: Mapping[str, str | int] = field(default_factory=machine)
    """What the machine is."""
    own_modules: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of the source of each module that is a user's own (`topologies.own.own_sources`)."""
    alike: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By transport, those that are predicted as it is and left out, where nothing is emulated."""

    @property
    def command_line(self) -> str:
        """The command as one types it."""
        return shlex.join(self.command)


class Known(TypedDict, total=False):
    """What is known of a run only once its networks stand; each as in `Run`."""

    calibration: Mapping[str, object]
    settings: Mapping[str, object]
    similitude: Mapping[str, Sequence[Number]]


def run_json(run: Run, planned: Sequence[str]) -> str:
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
    return "{\n" + ",\n".join([*lines, *planned]) + "\n}\n"


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


def datapath_of(run_file: Path) -> Datapath:
    """Return which datapath forwarded in a run, as its ``run.json`` says.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or its datapath is unknown.
    """
    return datapath_named(str(_read(run_file)["datapath"]))


def settings_of(run_file: Path) -> dict[str, Any]:
    """Return the settings of a run; errors are those of `datapath_of`."""
    return dict(_read(run_file)["settings"])


def sources_of(run_file: Path) -> str:
    """Return the sources of lightrail that a run began with; errors are those of `datapath_of`."""
    return str(_read(run_file)["versions"].get("sources", "of an older version"))


def with_readings(run: Run, run_file: Path) -> Run:
    """Return a run with what another read back of its machine, too; errors are those of `datapath_of`."""
    data = _read(run_file)
    numbers = {name: tuple(Number(**each) for each in kept) for name, kept in data["similitude"].items()}
    return replace(
        run,
        command=data["command"],
        started=datetime.fromisoformat(data["started"]),
        calibration=run.calibration or data["calibration"],
        settings={**data["settings"], **run.settings},
        similitude={**numbers, **run.similitude},
    )


def real_link_delay_of(run_file: Path) -> float:
    """Return what a link of the real network delays in a run's numbers [s]; errors as of `datapath_of`."""
    return float(_read(run_file).get("real_link_delay_s", REAL_LINK_DELAY_S))


def kind_of(run_file: Path) -> Kind:
    """Return what the report of a run is about; errors are those of `datapath_of`."""
    kind = _read(run_file)["report"]
    if kind not in get_args(Kind):
        raise ScenarioError(f"{run_file} has a report of the kind {kind!r}", HINT)
    return cast(Kind, kind)


def changed_modules(run_file: Path, sources: Mapping[str, str]) -> list[str]:
    """Return which modules have another source now than in a run; errors are those of `datapath_of`.

    Parameters
    ----------
    run_file
        The ``run.json``; one without sources, of an older version, has no module that is known to differ.
    sources
        Those of now, as `Run.own_modules`. A module that one of the two lacks is not compared: then what
        imports it has another source too.
    """
    before = _read(run_file).get("own_modules", {})
    return [module for module, source in sources.items() if before.get(module, source) != source]


def experiments_of(run_file: Path) -> list[Experiment]:
    """Return the experiments of a ``run.json``, to run them again.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or is not a run of this format.
    """
    data = _read(run_file)
    made: dict[tuple[str, int], Experiment] = {}
    return [_experiment(each, data, made) for each in data["experiments"]]


def _experiment(
    document: dict[str, Any], data: Mapping[str, Any], made: dict[tuple[str, int], Experiment]
) -> Experiment:
    """Return an experiment of a run; those of one fabric share it, and those of one job."""
    places = {name: (name, document[name]) for name in ("fabric", "job")}
    parts = {
        name: getattr(made[place], name) if place in made else data[f"{name}s"][place[1]]
        for name, place in places.items()
    }
    experiment = Experiment.from_json(document | parts)
    for place in places.values():
        made.setdefault(place, experiment)
    return experiment


def _read(run_file: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_whole(run_file))
        if data["format"] != FORMAT_VERSION:
            raise ScenarioError(
                f"{run_file} has the format {data['format']}, and this version reads {FORMAT_VERSION}",
                "run the command line in it again",
            )
        for each in data["experiments"]:
            data["fabrics"][each["fabric"]], data["jobs"][each["job"]]
        data["datapath"], data["report"]
    except OSError as error:
        raise ScenarioError(f"{run_file} cannot be read: {error.strerror}", HINT) from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ScenarioError(f"{run_file} is not a valid run: {error}", HINT) from error
    return cast(dict[str, Any], data)
