"""The tables of a study's file: each is made by a function, whose parameters are the table's other keys.

``[fabric] builder = "rail"`` is `rail_fabric`, and its keys ``servers`` and ``rails`` are that function's
parameters: names, types and defaults are those of its signature, and what they mean is in its docstring. So
a user's own function, ``module:function``, is used as those are that come with lightrail.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from inspect import Parameter, cleandoc, signature
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, cast, get_origin

from pydantic import BaseModel, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from testbed.experiment.circuits_registry import CIRCUITS, RULES
from testbed.experiment.experiment import Experiment
from testbed.study.output import say
from testbed.study.toml_document import MOST_POINTS, Document, Keys, Table, alternatives
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError, TraceError
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.own import check_returns, is_a, own_code, own_fabric, own_object
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.patch_panel import patch_panel_fabric
from topologies.rail import rail_fabric
from topologies.strict_json import Strict, said_of, shown
from traffic.demand import Demand
from traffic.jitter import jittered
from traffic.job import Job
from traffic.job_file import read_job
from traffic.readers.detect import read_trace
from traffic.steps import single
from traffic.workloads.datasets import NO_TRACE, dataset_path
from traffic.workloads.mixtral import mixtral_replay
from traffic.workloads.placement import placed
from traffic.workloads.synthetic import receiver_skew, sender_skew, sparse, uniform

PAGE = "see docs/reference/study.md"
GIVEN = ("fabric", "gpus", "seed", "path")
"""Parameters of functions that are no keys: the study gives them."""
Makes = Callable[..., object]
Name = Annotated[str, Field(min_length=1)]


def job_of_file(path: Path, seed: int, *, jitter: float = 0.0) -> Job:
    """Return the job of a file.

    Parameters
    ----------
    path, seed
        The file, and the seed of the jitter.
    jitter
        Spread of compute times: sigma of a lognormal factor of mean 1 per node and GPU.
    """
    return jittered(read_job(path), seed, jitter)


def fabric_of_file(path: Path) -> Fabric:
    """Return the fabric of a file that `Fabric.to_json` wrote."""
    return own_fabric(str(path))


def circuits_rule() -> None:
    """Stand for a rule: its fields are read where rules are (`CIRCUITS`)."""


FORMS: Mapping[str, Mapping[str, Mapping[str, Makes] | Makes]] = {
    "fabric": {
        "builder": {
            "rail": rail_fabric,
            "leaf_spine": leaf_spine_fabric,
            "fat_tree": fat_tree_fabric,
            "big_switch": big_switch_fabric,
            "parallel_ocs": parallel_ocs_fabric,
            "patch_panel": patch_panel_fabric,
        },
        "file": fabric_of_file,
    },
    "workload": {
        "generator": {
            "uniform": uniform,
            "sparse": sparse,
            "sender_skew": sender_skew,
            "receiver_skew": receiver_skew,
            "mixtral": mixtral_replay,
        },
        "trace": read_trace,
        "job": job_of_file,
    },
    "circuits": {"rule": dict.fromkeys(RULES, circuits_rule)},
    "points": {"function": {}},
}
"""By table and key, the functions that have names, or the one that reads a file."""


def holds_experiment(kind: type) -> bool:
    """Return whether objects of a class are experiments, or hold one."""
    fields = {name for base in kind.__mro__ for name in vars(base).get("__annotations__", ())}
    return issubclass(kind, Experiment) or "experiment" in fields or hasattr(kind, "experiment")


RETURNED: Mapping[str, tuple[str, Callable[[type], bool]]] = {
    "builder": ("Fabric", is_a(Fabric)),
    "generator": ("Job", is_a(Job, Demand)),
    "function": ("list[Experiment]", holds_experiment),
}
"""By key, what a user's own function is annotated to return, and what tells whether it is."""
MADE_BY = {
    "builder": "What wires the fabric; your own as module:function (docs/howto/own_fabric.md).",
    "file": "The fabric, a JSON file that Fabric.to_json wrote.",
    "generator": "What makes the workload; your own as module:function.",
    "trace": "A trace to replay; Megatron's file per rank as their directory; none for none where there is"
    " one by default.",
    "job": "The job, a JSON file as docs/reference/jobs.md describes.",
    "rule": "Which circuits are lit when; your own as module:Class (docs/howto/own_circuits.md).",
    "function": "What makes the points, as module:function.",
}
"""What the key means that says what makes a table."""
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "fabric": {
        "link_delay_us": (float, Field(0.0, description="Propagation delay of every link, one way [us].")),
        "loss": (float, Field(0.0, description="Share of packets that every link loses at random.")),
    },
    "workload": {
        "scheme": (Name, Field("", description="Its spraying scheme, in place of the study's.")),
        "seed": (Annotated[int, Field(ge=0)], Field(0, description="Its seed, in place of the study's.")),
        "if_found": (bool, Field(False, description="Whether the study goes on where its file is not.")),
    },
    "circuits": {},
    "points": {},
}
"""The keys of a table whatever it is made by."""


@dataclass(frozen=True, eq=False)
class TableRow:
    """What a table says with one value for each of its keys."""

    keys: Keys
    """The table."""
    form: str
    """The key that says what makes it: ``builder``."""
    makes: Makes
    """What makes it."""
    values: Mapping[str, object]
    """By key, as in the file."""
    arguments: Mapping[str, object]
    """Of the function: rates in bit/s."""

    @property
    def name(self) -> str:
        """What makes it, as the file names it; or the file that is read."""
        return str(self.values[self.form])

    @property
    def words(self) -> dict[str, object]:
        """Its values by dotted key."""
        return {f"{self.keys[0]}.{key}": value for key, value in self.values.items()}


def rows(document: Document, table: str) -> list[TableRow]:
    """Return the rows of all tables of a name: of each the product of its lists, the last key fastest."""
    return [
        _row(document, keys, values)
        for number, each in enumerate(document.tables(table))
        for keys in [(table, number)]
        if keys not in document.left_out
        for values in _product(document, keys, each)
    ]


def _product(document: Document, keys: Keys, table: Table) -> Iterator[Table]:
    takes = keys_of(document, keys, table)
    each = [_values(document, (*keys, key), value, takes.get(key)) for key, value in table.items()]
    if (count := prod(map(len, each))) > MOST_POINTS:
        raise too_many(document, keys, count)
    return (dict(zip(table, values, strict=True)) for values in product(*each))


def _values(document: Document, keys: Keys, value: object, field: FieldInfo | None) -> list[object]:
    """Return the values that a key takes one after the other; a list is one where the key takes lists."""
    found = alternatives(document, keys, value)
    is_one = field is not None and get_origin(field.annotation) is list and not isinstance(found[0], list)
    return [found] if is_one else found


def too_many(document: Document, keys: Keys, count: int) -> ScenarioError:
    """Return what is wrong with so many points."""
    return document.mistake(
        keys, f"{count:,} points", f"at most {MOST_POINTS:,} are one study: shorten its lists"
    )


def _row(document: Document, keys: Keys, values: Table) -> TableRow:
    form, makes = _maker(document, keys, values)
    model = _model(document, (*keys, form), makes, str(keys[0]), form)
    found = validated(document, model, keys, values) if makes is not circuits_rule else None
    taken = [
        each.name for each in _parameters(makes) if _written(each.name) in values and each.name not in GIVEN
    ]
    arguments = {name: _si(name, getattr(found, _written(name))) for name in taken}
    return TableRow(keys, form, makes, values, arguments)


def _maker(document: Document, keys: Keys, values: Mapping[str, object]) -> tuple[str, Makes]:
    """Return the key that says what makes a table, and the function."""
    forms = FORMS[str(keys[0])]
    found = [form for form in forms if form in values]
    if len(found) != 1:
        said = f"both {' and '.join(found)} are given" if found else f"no {' or '.join(forms)} is given"
        raise document.mistake(keys, said, f"give one of {', '.join(forms)}")
    (form,), at = found, (*keys, found[0])
    named, name = forms[form], values[form]
    if not isinstance(named, Mapping):
        return form, named
    if not isinstance(name, str) or not name:
        raise document.mistake(at, f"found {shown(name)}, expected a text", PAGE)
    if ":" not in name:
        if name not in named:
            near = "".join(f", did you mean {each}?" for each in get_close_matches(name, named, 1))
            choices = f"choose among {', '.join(named)}, or " if named else ""
            hint = f"{choices}name your own as module:function"
            raise document.mistake(at, f"unknown {form} {shown(name)}{near}", hint)
        return form, named[name]
    if form == "rule":
        return form, circuits_rule
    with document.at(at):
        own = own_object(str(keys[0]), name)
        if not callable(own):
            raise document.mistake(at, f"{name} is not a function", PAGE)
        check_returns(str(keys[0]), name, own, *RETURNED[form], "docs/reference/study.md")
    return form, own


# What a function takes


@cache
def _parameters(makes: Makes) -> list[Parameter]:
    found = signature(makes, eval_str=True).parameters.values()
    return [each for each in found if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]


def _written(name: str) -> str:
    """Return the key of a parameter: people write rates in Gbit/s."""
    return f"{name.removesuffix('_bps')}_gbps" if name.endswith("_bps") else name


def _in_gbps(name: str, text: str) -> str:
    return text.replace("[bit/s]", "[Gbit/s]") if name.endswith("_bps") else text


def _si(name: str, value: object) -> object:
    return value * 1e9 if name.endswith("_bps") and isinstance(value, int | float) else value


def _model(document: Document, at: Keys, makes: Makes, table: str, form: str) -> type[BaseModel]:
    try:
        return model_of(makes, table, form)
    except (PydanticUserError, NameError, ValueError, TypeError) as error:
        said = f"the parameters of {makes.__name__} have no types that a file can have"
        raise document.mistake(at, said, "give them types like int, float and str") from error


@cache
def model_of(makes: Makes, table: str, form: str) -> type[BaseModel]:
    """Return the keys of a table that is made by a function, with types, defaults and what they mean."""
    told = {name: _in_gbps(name, text) for name, text in _told(makes).items()}
    keys: dict[str, Any] = {
        _written(each.name): (
            str if each.annotation is each.empty else each.annotation,
            Field(... if each.default is each.empty else each.default, description=told.get(each.name)),
        )
        for each in _parameters(makes)
        if each.name not in GIVEN
    }
    keys |= {form: (Name, Field(description=MADE_BY[form])), **OTHERS[table]}
    return cast(type[BaseModel], create_model(makes.__name__, __base__=Strict, **keys))


def _told(makes: Makes) -> dict[str, str]:
    """Return what a numpy docstring says of each parameter."""
    part = re.search(
        r"\nParameters\n-+\n(.*?)(?:\n\n[A-Z]\w+\n-+\n|\Z)", cleandoc(makes.__doc__ or ""), re.DOTALL
    )
    found = re.findall(r"^(\w[\w, ]*)\n((?:    .*\n?|\n)+)", part[1] if part else "", re.MULTILINE)
    return {
        name: " ".join(text.replace("``", "").split()) for names, text in found for name in names.split(", ")
    }


def validated(
    document: Document,
    model: type[BaseModel],
    keys: Keys,
    values: Mapping[str, object],
    also: Sequence[str] = (),
) -> BaseModel:
    """Return what values say; the first that is wrong is a mistake with its place.

    Parameters
    ----------
    document, keys
        Where the values are.
    model
        Their keys and types.
    values
        By key.
    also
        Other keys that there are, for the hint at an unknown one.
    """
    for name, value in values.items():
        if not _is_unicode(value):
            raise document.mistake((*keys, name), f"found {shown(value)}, expected a text in Unicode", PAGE)
    try:
        return model.model_validate_json(json.dumps(values))  # in JSON a list may be a tuple, a text a path
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        # A key that is missing is mostly there, misspelt.
        misspelt = [each for each in wrong if each["type"] == "extra_forbidden"]
        first = misspelt[0] if misspelt and wrong[0]["type"] == "missing" else wrong[0]
        key, hint = first["loc"][0], PAGE
        if first["type"] == "missing":
            hint = f"add --set {key}=VALUE" if document.is_given(keys) else PAGE
            raise document.mistake(keys, f"{key} is missing", hint) from error
        if first["type"] == "extra_forbidden":
            hint = unknown(str(key), [*model.model_fields, *also])
            raise document.mistake((*keys, key), "unknown key", hint) from error
        raise document.mistake((*keys, key), said_of(error), hint) from error


def _is_unicode(value: object) -> bool:
    """Return whether a value can be written: a command line's bytes that are no text become surrogates."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def unknown(key: str, known: Sequence[str]) -> str:
    """Return a hint at what an unknown key may mean."""
    near = get_close_matches(key, known, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


# What is made


def fabric_of(document: Document, row: TableRow) -> Fabric:
    """Return the fabric of a row."""
    with document.at(row.keys):
        made = _made(document, row, {})
        if not isinstance(made, Fabric):
            raise document.mistake(
                (*row.keys, row.form), f"{row.name} returns {_a(made)}, and not a Fabric", PAGE
            )
        delay_us, loss = (cast(float, row.values.get(key, 0.0)) for key in ("link_delay_us", "loss"))
        return made.with_links(delay_s=delay_us / 1e6, loss=loss) if delay_us or loss else made


def job_of(document: Document, row: TableRow, fabric: Fabric, seed: int) -> Job | None:
    """Return the job of a row, on the first GPUs of a fabric; None if the study goes on without it."""
    if row.form == "trace" and row.name == NO_TRACE and row.values.get("if_found"):
        for key in row.arguments.keys() - {"path"}:
            raise document.mistake(
                (*row.keys, key), f"no trace is replayed, so {key} has no effect", "leave it out"
            )
        return None
    made_by = (*row.keys, row.form)
    with document.at(made_by if document.is_given(made_by) else row.keys):
        try:
            made = _made(document, row, {"fabric": fabric, "gpus": fabric.gpus, "seed": seed})
            made = single(made) if isinstance(made, Demand) else made
            if isinstance(made, Job):
                return made if row.form == "job" else placed(made, fabric)
        except TraceError as error:
            if not row.values.get("if_found") or document.is_given(made_by):
                raise
            say(f"{error}; going on without it")
            return None
        said = f"{row.name} returns {_a(made)}, and neither a Job nor a Demand"
        raise document.mistake(made_by, said, PAGE)


def points_of(document: Document, row: TableRow, seed: int) -> list[object]:
    """Return what the function of a row returns: experiments, or values that hold one each."""
    with document.at(row.keys):
        made = _made(document, row, {"seed": seed})
        points = [*made] if isinstance(made, Sequence) else [made]
        if strange := [each for each in points if not isinstance(experiment_of(each), Experiment)]:
            said = f"{row.name} returns {_a(strange[0])}, and not an Experiment"
            raise document.mistake((*row.keys, row.form), said, PAGE)
    return points


def experiment_of(point: object) -> Experiment:
    """Return the experiment of a point, which may hold more than that."""
    return cast(Experiment, point if isinstance(point, Experiment) else getattr(point, "experiment", None))


def circuits_of(document: Document, row: TableRow) -> object:
    """Return the rule of a row."""
    fields = {key: value for key, value in row.values.items() if key != row.form}
    with document.at(row.keys):
        return CIRCUITS.of_document({"rule": row.name, "fields": fields})


def keys_of(document: Document, keys: Keys, table: Table) -> Mapping[str, FieldInfo]:
    """Return the keys that a table takes: of circuits, whose rules read their fields, those that it has."""
    form = next((form for form in FORMS[str(keys[0])] if form in table), "")
    names = alternatives(document, (*keys, form), table[form]) if form else [None]
    made = [_maker(document, keys, table | ({form: name} if form else {})) for name in names]
    if any(makes is circuits_rule for _, makes in made):
        return {key: FieldInfo() for key in table}
    models = [_model(document, (*keys, form), makes, str(keys[0]), form) for form, makes in made]
    return {key: field for model in models for key, field in model.model_fields.items()}


def is_drawn(row: TableRow) -> bool:
    """Return whether what a row makes depends on the seed."""
    return any(each.name == "seed" for each in _parameters(row.makes))


def _made(document: Document, row: TableRow, given: Mapping[str, object]) -> object:
    """Return what the function of a row returns."""
    if not isinstance(FORMS[str(row.keys[0])][row.form], Mapping):
        given = {**given, "path": _path(document, row)}
    takes = {each.name for each in _parameters(row.makes)}
    with own_code(str(row.keys[0]), row.name):
        return row.makes(**{key: value for key, value in given.items() if key in takes}, **row.arguments)


def _path(document: Document, row: TableRow) -> Path:
    """Return the file that a row names: beside the study, where the command line says, or a data set."""
    if document.is_given((*row.keys, row.form)):
        return Path(row.name)
    beside = document.file.parent / row.name
    return beside if beside.exists() or row.form != "trace" or "/" not in row.name else dataset_path(row.name)


def _a(value: object) -> str:
    return f"a value of type {type(value).__name__}"
