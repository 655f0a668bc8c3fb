"""A study from a TOML file: the cross product of its lists is its points (docs/reference/study.md)."""

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Annotated, Any, cast

import pandas as pd
from pydantic import Field

from controller.circuits.rule import Rule
from testbed.experiment.circuits_registry import CircuitsRule, OwnCircuits
from testbed.experiment.circuits_rule import bound, scheme_alone
from testbed.experiment.dilation import UNSCALED
from testbed.experiment.experiment import MOST_SEED, Experiment
from testbed.experiment.ocs_plan import plan_of
from testbed.report.claims import Claim
from testbed.report.page import Findings
from testbed.report.run_json import Kind
from testbed.study.glances import PlannedFailures
from testbed.study.named_trace import leave_out_others, size_fabric
from testbed.study.options import (
    buffer_bytes,
    check_volume,
    emulated_bps,
    faults,
    known_after_s,
    seed_range,
    transport_named,
)
from testbed.study.study import Options, Study, no_claims, no_findings
from testbed.study.study_tables import (
    FORMS,
    PAGE,
    Name,
    TableRow,
    circuits_of,
    experiment_of,
    fabric_of,
    is_drawn,
    job_of,
    keys_of,
    points_of,
    rows,
    too_many,
    unknown,
    validated,
)
from testbed.study.toml_document import (
    MOST_POINTS,
    Document,
    Keys,
    MistakeError,
    Override,
    Table,
    alternatives,
    read_document,
    value_at,
)
from testbed.trust.outcome import Outcome
from testbed.trust.scale import RINGS_S
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.own import check_returns, is_a, own_code, own_files, own_object, say_own
from topologies.own_routing import ROUTING
from topologies.routing import Routing
from topologies.strict_json import Strict, shown
from traffic.fault_text import DETECT_S
from traffic.job import Job
from traffic.packets import DEFAULT_MTU, check_mtu
from traffic.scheme_setup import WHILE_LIT, SchemeSetup, WhileLitSetup
from traffic.spraying.registry import policy_named

ONE = "leave out the one or the other"
USUAL_SCHEME = "ecmp"
TABLES = [*FORMS, "grid", "options"]


class Whole(Strict):
    """The keys outside of tables; one that is a list takes its values one after the other."""

    title: Name = Field("", description="What the report is called.")
    about: str = Field("", description="What --help says of it.")
    scheme: list[Name] = Field(
        [USUAL_SCHEME],
        description="Spraying schemes: ecmp, plb, minrtt, reps, spray, pxn, rails, optimal; ecmp:4, reps:8,"
        " pxn:4 have so many entropies; or your own as module:function (docs/howto/own_scheme.md).",
    )
    seed: list[Annotated[int, Field(ge=0, lt=MOST_SEED)]] = Field(
        [0], description="Seeds; each draws the workload, and what the switches hash, anew."
    )
    seeds: int | None = Field(
        None, description="How many seeds; each draws the workload, and what the switches hash, anew."
    )
    transport: list[Name] = Field([], description="What moves bytes between NICs, as of --transport.")
    routing: list[Name] = Field(
        [],
        description="By which NIC servers send on that forward between circuits: a routing of your own as"
        " module:Class (docs/howto/own_routing.md); by default by the shortest path.",
    )
    mtu: list[int] = Field([DEFAULT_MTU], description="MTU of the emulation's links [bytes].")
    buffer: list[int] = Field([], description="What a switch port holds before it drops [full packets].")
    volume: float | None = Field(None, description="Emulated over real bytes.")
    emulated_rate_mbps: float | None = Field(None, description="What a NIC is shaped to [Mbit/s].")
    faults: Name | None = Field(None, description="What fails, by commas, as of --fail.")
    detect_us: float = Field(DETECT_S * 1e6, description="How long until faults are known [us].")
    claims: Name | None = Field(None, description="What the summary is held against, as module:function.")
    claims_over: str = Field("", description="The fabric that the claims are about.")
    findings: Name | None = Field(None, description="What else is said of outcomes, as module:function.")
    report: Kind = Field("schemes", description="What the report is about.")
    baseline: str = Field("", description="The scheme that busbw is relative to.")
    rings_s: float = Field(RINGS_S, description="How long a point with rings may take at emulated scale [s].")
    most_nic_mbps: float | None = Field(
        None, description="What a NIC is shaped to at most, by default [Mbit/s]."
    )


CHECKS: Mapping[str, Callable[[Any], object]] = {
    "scheme": policy_named,
    "seeds": seed_range,
    "transport": transport_named,
    "mtu": check_mtu,
    "volume": check_volume,
    "emulated_rate_mbps": emulated_bps,
    "faults": faults,
    "detect_us": partial(known_after_s, option="detect_us"),
}
"""What refuses a value of a key, or each of its list."""
REPLACED = {
    "claims_over": ("fabric", "builder", "file"),
    "baseline": ("scheme", "circuits", "rule", "scheduler"),
}
"""By a key that names something of the study, the keys by which that is another."""
TWINS: Mapping[Keys, Keys] = {("seed",): ("seeds",), ("seeds",): ("seed",)}
"""Keys that say the same."""
LISTED = [key for key, field in Whole.model_fields.items() if str(field.annotation).startswith("list")]


def study_of_file(file: Path, assignments: Sequence[Override] = ()) -> Study:
    """Return the study that a file describes.

    Parameters
    ----------
    file
        The TOML file; paths in it are relative to it, and modules are found beside it too.
    assignments
        Values of the command line, in place of the file's.

    Raises
    ------
    LightrailError
        If something is wrong with it; the sentence has the place in the file.
    """
    document = read_document(file, list(FORMS))
    _say_own(document, assignments)
    document = settled(document, assignments)
    whole = _whole(document)
    points = _named_apart(list(_points(document, whole)))
    if not points:
        raise document.mistake(("workload", 0), "no workload is left", PAGE)
    if len(points) > len({point.experiment.key for point in points}):
        raise document.mistake(("workload", 0), "some points are there twice", "leave out equal tables")
    experiments, made = [each.experiment for each in points], [each.made for each in points]
    _check_about(document, whole, experiments)
    names = dict.fromkeys(each.fabric.name for each in experiments)
    workloads = ", ".join(dict.fromkeys(each.job.name for each in experiments))
    titled = "{workload} over a {fabric} fabric" if document.left_out else whole.title or file.stem
    title = titled.replace("{fabric}", " and ".join(names))
    return Study(
        name=file.stem,
        title=title.replace("{workload}", workloads),
        experiments=experiments,
        claims=_function(document, whole, "claims", made) if whole.claims_over in ("", *names) else no_claims,
        report=whole.report,
        findings=_function(document, whole, "findings", made),
        baseline=whole.baseline,
        rings_s=whole.rings_s,
        most_nic_bps=math.inf if whole.most_nic_mbps is None else whole.most_nic_mbps * 1e6,
        failures=_failures(document, whole, experiments),
        usual=Options(emulated_rate_mbps=whole.emulated_rate_mbps, volume=whole.volume),
        transports=",".join(whole.transport),
        parameters=_by_key(points),
    )


def _say_own(document: Document, assignments: Sequence[Override]) -> None:
    """Say which code the file names, and have modules found beside it if there is one among them.

    Only then: libraries look for modules that may be there, and would take those of a file that names none.
    """
    given, beside = {each.key for each in assignments}, document.file.absolute().parent
    known = str(beside) in sys.path
    if not known:
        sys.path.append(str(beside))
    say_own(document.file, {key: value for key, value in document.values.items() if key not in given})
    named = own_files([document.values, *(each.value for each in assignments)])
    if not known and not any(each.is_relative_to(beside) for each in named.values()):
        sys.path.remove(str(beside))


# What is outside of tables


def _check_about(document: Document, whole: Whole, experiments: Sequence[Experiment]) -> None:
    """Refuse claims, a baseline and a report about nothing in the study, unless an option replaced that."""
    known = {"claims_over": {each.fabric.name for each in experiments}}
    known["baseline"] = {each.name for each in experiments}
    for key, names in known.items():
        name = getattr(whole, key)
        replaced = any(document.is_given(keys) for keys in document.sources if keys[-1] in REPLACED[key])
        if name and name not in names and (document.is_given((key,)) or not replaced):
            said = f"nothing in the study is named {shown(name)}"
            raise document.mistake((key,), said, unknown(name, sorted(names)))
    with document.at(("report",)):
        rules: list[Rule | None] = [each.rule for each in experiments if each.rule]
        for rule in (rules or [None]) if whole.report == "circuits" else ():
            plan_of(rule)


def _whole(document: Document) -> Whole:
    values = {key: value for key, value in document.values.items() if key not in TABLES}
    for key in values.keys() & LISTED:
        values[key] = alternatives(document, (key,), values[key])
    whole = cast(Whole, validated(document, Whole, (), values, TABLES))
    if "seeds" in values and "seed" in values:
        raise document.mistake(("seeds",), "both seed and seeds are given", "leave out one of them")
    for key, check in CHECKS.items():
        found = getattr(whole, key) if key in values else []
        with document.at((key,)):
            for value in found if isinstance(found, list) else [found]:
                check(value)
    return whole if whole.seeds is None else whole.model_copy(update={"seed": [*seed_range(whole.seeds)]})


def _failures(document: Document, whole: Whole, experiments: Sequence[Experiment]) -> PlannedFailures | None:
    """Return what fails; MistakeError if a fabric has no such part."""
    if whole.faults is None:
        return None
    written = tuple(faults(whole.faults))
    with document.at(("faults",)):
        for fault, fabric in product(written, {each.fabric for each in experiments}):
            fault.site_of(fabric)
    return PlannedFailures(written, known_after_s(whole.detect_us))


def _function(document: Document, whole: Whole, key: str, points: Sequence[object]) -> Callable[..., Any]:
    """Return the function that a key names, checked; one that has a parameter ``points`` gets these."""
    (what, checked, nothing), name = SAID[key], getattr(whole, key)
    if name is None:
        return nothing
    with document.at((key,)):
        found = own_object(key, name)
        if not callable(found):
            raise document.mistake((key,), f"{name} is not a function", PAGE)
        check_returns(key, name, found, *RETURNS[key], "docs/reference/study.md")
    made = partial(found, points=points) if "points" in signature(found).parameters else found
    try:
        signature(made).bind(what)
    except TypeError as error:
        raise document.mistake((key,), f"{name} does not take {what}: {error}", PAGE) from error
    return partial(checked, name, made)


def _judged(name: str, judge: Callable[[pd.DataFrame], list[Claim]], table: pd.DataFrame) -> list[Claim]:
    """Return what a function rules, of the user's own or lightrail's; ScenarioError if it does not."""
    with own_code("claims", name):
        claims = list(judge(table))
    if strange := [each for each in claims if not isinstance(each, Claim)]:
        raise ScenarioError(f"the claims {name!r} hold {strange[0]!r}", "return a list of Claim")
    return claims


def _told(name: str, tell: Callable[[Sequence[Outcome]], Findings], outcomes: Sequence[Outcome]) -> Findings:
    """Return what a function says of outcomes; ScenarioError if it says nothing that a report has."""
    with own_code("findings", name):
        found = tell(outcomes)
    if not isinstance(found, Findings):
        raise ScenarioError(f"the findings {name!r} are {found!r}", "return Findings")
    return found


SAID: Mapping[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "claims": ("a summary", _judged, no_claims),
    "findings": ("outcomes", _told, no_findings),
}
"""By key, what its function takes, what checks what that says, and what stands for no function."""
RETURNS: Mapping[str, tuple[str, Callable[[type], bool]]] = {
    "claims": ("list[Claim]", is_a(Claim)),
    "findings": ("Findings", is_a(Findings)),
}
"""By key, what its function is annotated to return, and what tells whether it is."""

# Points


@dataclass(frozen=True, eq=False)
class _Setting:
    """What is the same for all workloads, seeds and schemes."""

    fabric: Fabric
    circuits: CircuitsRule | OwnCircuits | None
    circuits_at: Keys
    """Their table."""
    routing: Routing | None
    mtu: int
    words: Mapping[str, object]
    """What the file says of it, by dotted key."""


@dataclass(frozen=True, eq=False)
class _Point:
    """A point, and what the file says of it."""

    experiment: Experiment
    words: Mapping[str, object]
    """By dotted key."""
    made: object
    """The experiment, or what a function of the file returned that holds it."""


def _points(document: Document, whole: Whole) -> Iterator[_Point]:
    """Yield the points of functions, and the cross product of fabrics, workloads, seeds and schemes."""
    functions, is_product = rows(document, "points"), bool(document.tables("workload"))
    if functions and not is_product:
        _check_decided(document, functions)
    yield from _of_functions(document, whole, functions)
    if is_product or not functions:
        yield from _product(document, whole)


def _of_functions(document: Document, whole: Whole, functions: Sequence[TableRow]) -> Iterator[_Point]:
    """Yield what functions return, each for every seed if it takes one."""
    if (count := len(functions) * len(whole.seed)) > MOST_POINTS:
        raise too_many(document, (), count)
    calls = [(row, seed) for row in functions for seed in (whole.seed if is_drawn(row) else [0])]
    words = [{**row.words, "points.seed": seed} for row, seed in calls]
    if whole.findings and len(calls) > 1:
        varied = next((key for some in _short(words) for key in some), "function")
        at = ("seed",) if varied == "seed" else (*calls[0][0].keys, varied)
        hint = "give one value; a list where the function of [points] takes lists"
        raise document.mistake(at, "the findings are about one value of it", hint)
    for (row, seed), said in zip(calls, words, strict=True):
        for made in points_of(document, row, seed):
            yield _Point(experiment_of(made), said, made)


def _check_decided(document: Document, functions: Sequence[TableRow]) -> None:
    """Refuse what the functions of ``[points]`` decide."""
    decided = ["fabric", "circuits", "scheme", "routing", "mtu", "buffer"]
    decided += [] if any(map(is_drawn, functions)) else ["seed", "seeds"]
    for key in decided:
        if key in document.values:
            raise document.mistake((key,), "the function of [points] decides it", "leave it out")


def _product(document: Document, whole: Whole) -> Iterator[_Point]:
    """Yield the cross product: fabrics change slowest, then workloads, seeds, and schemes fastest."""
    workloads = rows(document, "workload")
    size_fabric(document, workloads)
    beside = len(whole.mtu) * len(whole.buffer or [None])
    if (count := len(rows(document, "fabric")) * beside * max(len(whole.seed), 1)) > MOST_POINTS:
        raise too_many(document, (), count)  # before so many fabrics are wired
    settings = list(_settings(document, whole))
    if not (workloads and settings):
        raise document.mistake((), f"no {'fabric' if workloads else 'workload'} is given", PAGE)
    for row in workloads:
        with document.at((*row.keys, "scheme")):
            policy_named(cast(str, row.values.get("scheme", USUAL_SCHEME)))
    sizes = [len(_values(whole, row, "seed")) * len(_values(whole, row, "scheme")) for row in workloads]
    if (count := len(settings) * sum(sizes)) > MOST_POINTS:
        raise too_many(document, (), count)
    for setting, row in product(settings, workloads):
        for seed, job in _jobs(document, row, setting.fabric, _values(whole, row, "seed")):
            for scheme in _values(whole, row, "scheme"):
                with document.at(row.keys):
                    experiment = _experiment(document, setting, row, job, scheme, seed)
                words = {**setting.words, **row.words, "seed": seed, "scheme": scheme}
                yield _Point(experiment, words, experiment)


def _settings(document: Document, whole: Whole) -> Iterator[_Setting]:
    """Yield fabrics with circuits, routings, MTUs and buffers."""
    fabrics = [(row.words, fabric_of(document, row)) for row in rows(document, "fabric")]
    rules = rows(document, "circuits")
    circuits = [(row.words, circuits_of(document, row), row.keys) for row in rules] or [({}, None, ())]
    buffers: Sequence[int | None] = whole.buffer or [None]
    routings: list[tuple[Table, Routing | None]] = [({}, None)]
    if whole.routing:
        with document.at(("routing",)):
            routings = [({"routing": name}, ROUTING.named(name)) for name in whole.routing]
    for (words, fabric), (of_rule, rule, at), (of_routing, routing), mtu, buffer in product(
        fabrics, circuits, routings, whole.mtu, buffers
    ):
        with document.at(("buffer",)):
            held = fabric if buffer is None else fabric.with_buffer(buffer_bytes(buffer, mtu))
        said = {**words, **of_rule, **of_routing, "mtu": mtu, "buffer": buffer}
        yield _Setting(held, cast("OwnCircuits | None", rule), at, routing, mtu, said)


def _values(whole: Whole, row: TableRow, key: str) -> list[Any]:
    """Return a workload's own seed or scheme, else the study's."""
    return [row.values[key]] if key in row.values else cast(list[Any], getattr(whole, key))


def _jobs(
    document: Document, row: TableRow, fabric: Fabric, seeds: Sequence[int]
) -> Iterator[tuple[int, Job]]:
    """Yield the job of each seed: one for all where no seed matters."""
    job = None
    for seed in seeds:
        job = job if job and not is_drawn(row) else job_of(document, row, fabric, seed)
        if job is None:
            return
        yield seed, job


def _experiment(
    document: Document, setting: _Setting, row: TableRow, job: Job, scheme: str, seed: int
) -> Experiment:
    fabric, circuits = setting.fabric, setting.circuits
    sent: str | SchemeSetup = scheme
    if circuits is not None:
        with document.at(setting.circuits_at):
            rule = bound(circuits, fabric, job, UNSCALED, seed, {})
        alone = scheme_alone(rule, fabric)
        if alone == WHILE_LIT and rule.leaves:
            alone = WhileLitSetup(rest=scheme)
        elif alone and ("scheme" in row.values or "scheme" in document.values):
            said = f"the circuits carry all, and leave nothing to {scheme}"
            at = (*row.keys, "scheme") if "scheme" in row.values else ("scheme",)
            raise document.mistake(at, said, "leave it out")
        sent = alone or sent
    return Experiment(
        fabric, job, sent, seed=seed, circuits=circuits, routing=setting.routing, mtu=setting.mtu
    )  # fmt: skip


# What varies


def _named_apart(points: Sequence[_Point]) -> list[_Point]:
    """Return points of which tables take none for another: what differs is said after the workload's name."""
    alike = defaultdict[tuple[str, str], list[_Point]](list)
    for point in points:
        alike[point.experiment.job.name, point.experiment.name].append(point)
    renamed: dict[tuple[int, str], Job] = {}
    said: dict[int, str] = {}
    for some in alike.values():
        for point, words in zip(some, _short([_settings_of(point) for point in some]), strict=True):
            said[id(point)] = "".join(f", {key} {_word(value)}" for key, value in words.items())
    return [_renamed(point, said[id(point)], renamed) for point in points]


def _by_key(points: Sequence[_Point]) -> dict[str, dict[str, object]]:
    """Return what varies beside seeds and schemes, which rows have, by the key of a point."""
    keys = (point.experiment.key for point in points)
    return dict(zip(keys, _short([_settings_of(point) for point in points]), strict=True))


def _settings_of(point: _Point) -> dict[str, object]:
    """Return what the file says of a point but for seed and scheme, which tables have."""
    in_tables = ("seed", "scheme", "workload.seed", "workload.scheme", "points.seed")
    return {key: value for key, value in point.words.items() if key not in in_tables}


def _renamed(point: _Point, said: str, renamed: dict[tuple[int, str], Job]) -> _Point:
    """Return a point whose workload has something after its name; equal ones share a job."""
    if not said:
        return point
    job = point.experiment.job
    named = renamed.setdefault((id(job), said), replace(job, name=f"{job.name}{said}"))
    experiment = replace(point.experiment, job=named)
    is_all = point.made is point.experiment
    made = experiment if is_all else replace(cast(Any, point.made), experiment=experiment)
    return replace(point, experiment=experiment, made=made)


def _short(points: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Return what varies at each of some points, by words without their table where these are clear."""
    keys = dict.fromkeys(key for words in points for key in words)
    varied = [key for key in keys if len({repr(words.get(key)) for words in points}) > 1]
    last = [key.rpartition(".")[2] for key in varied]
    short = {key: word if last.count(word) == 1 else key for key, word in zip(varied, last, strict=True)}
    return [{short[key]: words[key] for key in varied if words.get(key) is not None} for words in points]


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# What the command line and [grid] say


def settled(document: Document, assignments: Sequence[Override]) -> Document:
    """Return the document with the values of ``[grid]`` and of the command line where they belong."""
    grid = document.table("grid")
    document.values.pop("grid", None)
    for keys, value in _flat(grid, ("grid",)):
        _settle(document, ".".join(map(str, keys[1:])), value, keys)
    for name, key in document.table("options").items():
        if str(key) not in FORMS:
            homes(document, str(key), ("options", name))
    whole = [each for each in assignments if each.key in FORMS]
    for each in whole:
        others = [other for other in assignments if other is not each]
        if both := [other.source for other in others if f"{other.key}.".startswith(f"{each.key}.")]:
            raise MistakeError(f"{each.source} says what {' and '.join(both)} says too", ONE)
        _put(document, (each.key,), _tables_named(each.key, each.value), each.source)
    for each in assignments:
        if each not in whole:
            _settle(document, each.key.removeprefix("grid."), each.value, each.source)
    leave_out_others(document)
    return document


def _settle(document: Document, key: str, value: object, source: Keys | str) -> None:
    """Give a key a value where it belongs: that of a file once, and in its place that of the command line."""
    for home in homes(document, key, source):
        for same in (home, TWINS.get(home, home)):
            given = document.sources.get(same)
            if isinstance(source, str) and isinstance(given, str):
                raise MistakeError(f"{source} says what {given} says too", ONE)
            if not isinstance(source, str) and value_at(document.values, same) is not None:
                raise document.mistake(source, "it is given elsewhere too", ONE)
        _put(document, home, value, source)


def _tables_named(table: str, value: object) -> list[Table]:
    """Return the tables that names stand for: of what comes with lightrail, the user's own, or files."""
    forms = [*FORMS[table]]
    names = value if isinstance(value, list) else [value]
    return [{forms[-1 if ":" not in str(name) or Path(str(name)).exists() else 0]: name} for name in names]


def _flat(table: Mapping[str, object], keys: Keys) -> Iterator[tuple[Keys, object]]:
    """Yield the values of ``[grid]``: a dotted key without quotes is a table in a table."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, (*keys, key))
        else:
            yield (*keys, key), value


def homes(document: Document, key: str, source: Keys | str) -> list[Keys]:
    """Return where a dotted or a plain key belongs: outside of tables, or in each table that takes it."""
    if key in Whole.model_fields:
        return [(key,)]
    table, _, rest = key.partition(".")
    names, rest = ([table], rest) if table in FORMS else ([*FORMS], key)
    taken = {
        (name, number): keys_of(document, (name, number), each)
        for name in names
        for number, each in enumerate(document.tables(name))
    }
    found = [
        keys
        for keys, takes in taken.items()
        if rest.partition(".")[0] in takes or (table == "circuits" and rest)
    ]
    kinds = list(dict.fromkeys(str(name) for name, _ in found))
    if len(kinds) == 1:
        return [(*keys, *rest.split(".")) for keys in found]
    document.sources[(key,)] = source
    if not kinds:
        known = sorted({*Whole.model_fields, *(each for takes in taken.values() for each in takes)})
        raise document.mistake((key,), f"unknown key {shown(key)}", unknown(rest, known))
    said, hint = f"{' and '.join(kinds)} take it", f"write {' or '.join(f'{kind}.{key}' for kind in kinds)}"
    raise document.mistake((key,), said, hint)


def _put(document: Document, keys: Keys, value: object, source: Keys | str) -> None:
    """Give some keys a value, with where it comes from; seed and seeds take each other's place."""
    inside: object = document.values
    for key in keys[:-1]:
        if isinstance(inside, dict):
            inside = inside.setdefault(key, {})
        elif isinstance(inside, list) and isinstance(key, int):
            inside = inside[key]
    document.sources[keys] = source
    if not isinstance(inside, dict):
        raise document.mistake(keys, f"there is {shown(inside)}, and no table", PAGE)
    inside[str(keys[-1])] = value
    for twin in TWINS.get(keys, ()):
        document.values.pop(str(twin), None)
