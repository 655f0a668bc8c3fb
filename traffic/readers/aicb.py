"""AICB's CSV: the collectives of one rank of a training, in order, with results or without.

Sizes (``msg_size``) are bytes, times (``_elapsed_time``) **milliseconds**; ``epoch_end`` rows
separate epochs. The first of several is set-up, or the warm-up of a micro-benchmark, as in AICB's generators
and its analysis; the others are the training steps. Rows of the stages ``init`` and ``warmup`` are set-up in
any epoch. `read_aicb` replays the expert all-to-alls of one step: the rows ``all_to_all`` of ``ep_group``, or
of ``dp_group`` in a micro-benchmark that has no other. `aicb_phases` are all collectives of a step, one after
another, with the computes between them.

The log is one rank's. All groups of the kind are taken to do the same at the same time, as they
do in training, with Megatron's order of ranks: tensor-parallel ranks are neighbours, and
expert-parallel groups stride over them (tp 2 and ep 4 on 8 GPUs: 0 2 4 6 and 1 3 5 7). Each
rank splits ``msg_size`` evenly over its group, itself included, as NCCL's alltoall does.

A published workload begins with a title, ``[rank0 ~ rank127]``, or has one before the rows of each pipeline
stage, ``[ pp_stage0: [rank0, rank1] ]``; the rows of the first stage stand for all. Titles name as many ranks
as the sizes of the groups give. A size that no row has follows from the others and the number of GPUs, and
the note says so; that of ``ep_group`` is dp's where nothing else is known. Groups of one GPU send nothing.

Rows of ``computation`` have the shapes of a product in place of bytes. Their time is milliseconds too in a
log, whose collectives have times, and **nanoseconds** in a workload that was not run; the note says which.
Without such rows, as where a log was made without AIOB, there is no compute.

AICB hides a collective whose ``additional`` is ``overlap`` behind what follows, and logs a time of 0. It is
sent, and what follows does not wait for it; `read_aicb`, whose all-to-alls follow each other, names it.

The columns ``algbw`` and ``busbw`` are not read: they follow from size and time, and ``busbw`` was computed
with n = 8 for groups of every size. Neither are ``src`` and ``dst``: only broadcasts and sends have them,
which are left out.

References
----------
aliyun/aicb, workload_generator/workload_generator.py (``__call__``), log_analyzer/log.py (``analyze``);
Megatron-LM, core/parallel_state.py.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from topologies.errors import TraceError
from traffic.demand import Demand
from traffic.job import Job
from traffic.readers.text import ALL, MAX_GPUS, Taken, bad_line, count_of, file_name, text_of, trace_name
from traffic.steps import Step, job_of_steps
from traffic.training import Call, GroupKind, Layout, Phases, StepPhase, first_alike, in_turn
from traffic.workloads.gating import apportioned

COLUMNS = ("comm_type", "comm_group", "msg_size")
"""The columns without which a CSV is not AICB's."""
OTHER_COLUMNS = (
    "comm_group_size", "stage", "dst", "src", "additional", "_elapsed_time", "algbw", "busbw", "count",
)  # fmt: skip
"""The others that AICB has."""
SETUP = ("init", "warmup")
"""The stages of set-up, up to their first full stop."""
NONE = ("None", "")
"""Cells without a value."""
OVERLAP = "overlap"
EXPERT_GROUPS = ("ep_group", "dp_group")
CALLS: dict[str, Call] = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "all_to_all": "all-to-all",
}
COMPUTATION = "computation"
BETWEEN_STAGES = ("isend", "irecv")
"""Sends between pipeline stages, in rows whose group has the size 1 whatever it is."""
TITLE = re.compile(r"\s*\[.*rank\d")
RANKS = re.compile(r"rank(\d+)(?:\s*~\s*rank(\d+))?")
"""A rank of a title, or the first and the last of several."""
GROUPS: dict[str, GroupKind] = {
    "tp_group": "tp",
    "dp_group": "dp",
    "ep_group": "ep",
    "ep_dp_group": "dp_ep",
    "pp_group": "pp",
    "all": "all",
}


@dataclass(frozen=True, slots=True)
class _Row:
    operation: str
    group: str
    group_size: int | None
    size_bytes: int
    elapsed_s: float | None
    """Read as milliseconds, as of collectives."""
    stage: str
    additional: str
    """Which way stages send, or that a row is beside something else; empty for neither."""


@dataclass(frozen=True, slots=True)
class _Log:
    rows: Sequence[_Row]
    """Of the first pipeline stage, where each has its own."""
    setup: Sequence[_Row]
    """Those before training."""
    steps: Sequence[Sequence[_Row]]
    """Those of each training step."""
    unread: Sequence[str]
    """The name of a column that is not AICB's, once for each of its values."""
    ranks: int | None
    """How many titles name; None without titles."""
    stages: int | None
    """How many pipeline stages have titles; None where none has."""


def read_aicb(
    path: Path,
    *,
    gpus: int | None = None,
    all_to_alls: int | None = None,
) -> Job:
    """Return the expert all-to-alls of the first training step that has some.

    Parameters
    ----------
    path
        The file.
    gpus
        How many GPUs, where the file does not say the sizes of all groups.
    all_to_alls
        At most so many of the step's all-to-alls, its first ones; by default all.

    Returns
    -------
    Job
        A step per all-to-all, between ``tp * dp`` GPUs. Its note says what was taken, what was left out and
        the median that the log measured.

    Raises
    ------
    TraceError
        If the file cannot be read, a row is malformed, no step has an all-to-all, or the groups
        do not fit each other.
    """
    log = _log(path)
    exchanged = {row.group for step in log.steps for row in step if _exchanges(row) and row.size_bytes}
    group = next((group for group in EXPERT_GROUPS if group in exchanged), "")

    def is_expert(row: _Row) -> bool:
        return _exchanges(row) and row.group == group and row.size_bytes > 0

    number, step = _first_step(log, is_expert)
    every, rest = _parted(step, is_expert)
    if not every:
        raise TraceError(f"{path} holds no step with expert all-to-alls", "give one of a mixture of experts")
    layout, told = _layout(path, log, gpus)
    layout = replace(layout, ep=layout.dp if group == "dp_group" else layout.ep)
    if layout.ep == 1:
        raise TraceError(
            f"{path} has its expert all-to-alls in groups of one GPU", "give a log of larger ones"
        )
    taken = every[:all_to_alls]
    note = _noted(
        log,
        f"AICB log {file_name(path)}, step {number} of {len(log.steps)}: {len(taken)} of {len(every)} "
        f"all-to-alls in groups of {layout.ep}{_measured(taken)}",
        *told,
        f"one of {layout.pp} pipeline stages" if layout.pp > 1 else "",
        left_out=map(_what, rest),
        additional=(row.additional for row in taken),
    )
    stage = replace(layout, pp=1)
    demands = {row.size_bytes: _demand(path, stage, row.size_bytes, note) for row in taken}
    return job_of_steps(trace_name(path), [Step(demands[row.size_bytes]) for row in taken], note)


def aicb_phases(path: Path, wanted: Taken = ALL) -> Phases:
    """Return all collectives of the first training step, one after another, with the computes between them.

    Parameters
    ----------
    path
        The file.
    wanted
        What is taken of it; by default all.

    Returns
    -------
    Phases
        Of the GPUs of all groups. Their note says what was left out: rows of other kinds, such as broadcasts
        and what pipeline stages send each other.

    Raises
    ------
    TraceError
        As of `read_aicb`.
    """
    log = _log(path)
    least = max(wanted.least_bytes, 1)
    number, step = _first_step(log, lambda row: bool(_call(row) and row.size_bytes))
    large, _ = _first_step(log, lambda row: bool(_call(row) and row.size_bytes >= least))
    if not number or large != number:
        before = f" before step {large}" if large else ""
        raise TraceError(
            f"{path} holds no step with collectives of {least:g} bytes or more{before}",
            "take smaller ones" if number else "give a training step with collectives",
        )
    layout, told = _layout(path, log, wanted.gpus)
    counted, rest = _parted(step, lambda row: _sends(row, layout) or _computes(row))
    if not counted:
        raise TraceError(f"{path} has its collectives in groups of one GPU", "give a log of larger groups")
    taken = _first_alike(counted, wanted)
    is_log = any(row.elapsed_s is not None for row in log.rows if _call(row) is not None)
    sent, calls = sum(_sends(row, layout) for row in taken), sum(_call(row) is not None for row in step)
    unit = "ms, as in a log" if is_log else "ns, as in a workload that was not run"
    beside = (f"{row.operation} {row.group}" for row in taken if row.additional == OVERLAP)
    note = _noted(
        log,
        f"AICB log {file_name(path)}, step {number} of {len(log.steps)}: {sent} of {calls} collectives, "
        f"tp {layout.tp} dp {layout.dp} ep {layout.ep} pp {layout.pp}",
        *told,
        f"the first of {log.stages} pipeline stages stands for all" if log.stages else "",
        _listed("overlapping what follows", beside),
        f"times of computes read as {unit}" if any(map(_computes, taken)) else "",
        left_out=(_what(row) + " of one GPU" * bool(_call(row) and row.size_bytes) for row in rest),
        additional=(row.additional for row in taken if row.additional != OVERLAP),
    )
    phases = tuple(_phase(number, row, is_log=is_log) for number, row in enumerate(taken))
    return Phases(trace_name(path), layout, phases, note)


def is_aicb(lines: Sequence[str]) -> bool:
    """Return whether a file's lines begin with the header of AICB's CSV, or with a title and then it."""
    header = lines[1] if len(lines) > 1 and TITLE.match(lines[0]) else lines[0]
    return set(COLUMNS) <= set(header.strip().split(","))


def _log(path: Path) -> _Log:
    titles, parts = list[tuple[int, str]](), list[list[tuple[int, str]]]()
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if is_title := TITLE.match(line):
            titles.append((number, line))
        elif not line.strip():
            continue
        if is_title or not parts:
            parts.append([])
        if not is_title:
            parts[-1].append((number, line.strip()))
    if titles and len(titles) < len(parts):
        raise bad_line(path, 1, parts[0][0][1], "a title such as [rank0 ~ rank7], as a later line is one")
    read = [_rows(path, part) for part in parts]
    stages = len(titles) if any("stage" in title for _, title in titles) else None
    if len(titles) > 1 and not stages:
        raise TraceError(f"{path} has {len(titles)} titles, not of pipeline stages", "give one log per file")
    rows, unread = read[0]
    setup, steps = _epochs(rows)
    if setup and not steps:
        raise TraceError(f"{path} holds set-up alone, of {len(setup)} rows", "give a training step behind it")
    return _Log(rows, setup, steps, unread, _ranks(path, titles) if titles else None, stages)


def _ranks(path: Path, titles: Iterable[tuple[int, str]]) -> int:
    """Return how many ranks titles name, each one by one or as the first and the last of several."""
    spans = list[range]()
    for number, title in titles:
        for first, last in RANKS.findall(title):
            low, high = (count_of(path, number, rank, expected="a rank") for rank in (first, last or first))
            if high < low:
                raise bad_line(path, number, f"rank{low} ~ rank{high}", "the lower rank first")
            spans.append(range(low, high + 1))
    if (ranks := sum(map(len, spans))) > MAX_GPUS:
        raise TraceError(f"{path} names {ranks} ranks in its titles", f"give at most {MAX_GPUS}")
    if len({rank for span in spans for rank in span}) < ranks:
        raise TraceError(f"{path} names a rank twice in its titles", "name each rank once")
    return ranks


def _rows(path: Path, lines: Sequence[tuple[int, str]]) -> tuple[list[_Row], list[str]]:
    """Return the rows, and the name of a column that is not AICB's once for each of its values."""
    first, header = lines[0] if lines else (1, "")
    names = header.split(",")
    if not is_aicb([header]):
        raise bad_line(path, first, header, f"AICB's header with the columns {', '.join(COLUMNS)}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise bad_line(path, first, f"the column {twice} twice", "each column once")
    unknown = set(names) - {*COLUMNS, *OTHER_COLUMNS}
    rows, unread = list[_Row](), list[str]()
    for number, line in lines[1:]:
        cells = _cells(line)
        if len(cells) != len(names):
            raise bad_line(path, number, f"{len(cells)} columns", f"{len(names)}, as in the header")
        named = dict(zip(names, cells, strict=True))
        rows.append(_row(path, number, named))
        unread += [f"column {name}" for name in names if name in unknown and named[name] not in NONE]
    return rows, unread


def _row(path: Path, number: int, cells: dict[str, str]) -> _Row:
    size = cells.get("comm_group_size", "None")
    elapsed = cells.get("_elapsed_time", "None")
    is_computation = cells["comm_type"].endswith(COMPUTATION)
    try:
        elapsed_s = None if elapsed == "None" else float(elapsed) * 1e-3
    except ValueError:
        elapsed_s = math.nan
    if elapsed_s is not None and not (math.isfinite(elapsed_s) and elapsed_s >= 0):
        raise bad_line(path, number, elapsed, "a time in ms")
    if (count := cells.get("count", "1")) not in ("1", "1.0"):
        raise bad_line(path, number, f"the count {count}", "1: a row per call")
    return _Row(
        cells["comm_type"].removeprefix("CommType."),
        cells["comm_group"].removeprefix("CommGroup."),
        None if size in NONE else count_of(path, number, size, expected="a group size", least=1),
        0 if is_computation else count_of(path, number, cells["msg_size"], expected="bytes"),
        elapsed_s,
        cells.get("stage", ""),
        "" if (additional := cells.get("additional", "")) in NONE else additional,
    )


def _cells(line: str) -> list[str]:
    """Return the cells of a row; AICB puts no quotes round the shapes of a product, which have commas."""
    if "(" not in line:
        return line.split(",")
    cells, depth = [""], 0
    for letter in line:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            cells.append("")
        else:
            cells[-1] += letter
    return cells


def _exchanges(row: _Row) -> bool:
    return row.operation == "all_to_all"


def _call(row: _Row) -> Call | None:
    """Return what a row's group does; None for a row that is not replayed."""
    return CALLS.get(row.operation) if row.group in GROUPS else None


def _sends(row: _Row, layout: Layout) -> bool:
    return bool(_call(row) and row.size_bytes and len(layout.groups(GROUPS[row.group])[0]) > 1)


def _computes(row: _Row) -> bool:
    return row.operation == COMPUTATION and bool(row.elapsed_s) and not row.additional


def _what(row: _Row) -> str:
    """Return words for a row that is left out."""
    empty = "of 0 bytes" if _call(row) and not row.size_bytes else ""
    return " ".join(filter(None, (row.operation, row.group, row.additional, empty)))


def _noted(log: _Log, head: str, *said: str, left_out: Iterable[str], additional: Iterable[str]) -> str:
    stages = (f"rows of {_of_stage(row)}" if row.stage else "rows without a stage" for row in log.setup)
    unread = [*log.unread, *(f"additional {word}" for word in additional if word)]
    lists = _listed("not read", unread), _listed("left out", left_out)
    return "; ".join(filter(None, (head, _listed("set-up left out", stages), *said, *lists)))


def _listed(what: str, items: Iterable[str]) -> str:
    counted = ", ".join(f"{item} ({count})" for item, count in Counter(items).items())
    return f"{what}: {counted}" if counted else ""


def _first_alike(rows: list[_Row], wanted: Taken) -> list[_Row]:
    """Return the first of equal rows; of computes those of a stage are equal, whatever they took."""
    paired = [wanted.in_pairs and _exchanges(row) and row.group == "ep_group" for row in rows]
    keys = []
    for row, is_one, turn in zip(rows, paired, in_turn(paired), strict=True):
        stage = row.stage if _computes(row) else ""
        role = (turn, "backward" in row.stage) if is_one else ()
        keys.append((row.operation, row.group, row.size_bytes, row.additional, stage, role))
    return [rows[place] for place in first_alike(range(len(rows)), wanted.alike, keys.__getitem__)]


def _phase(number: int, row: _Row, *, is_log: bool) -> StepPhase:
    """Return a row as a phase."""
    forward = "backward" not in row.stage
    if not _computes(row):
        name = f"{number} {row.group}"
        call, kind, blocks = CALLS[row.operation], GROUPS[row.group], row.additional != OVERLAP
        return StepPhase(name, 0.0, call, kind, row.size_bytes, blocks=blocks, forward=forward)
    unit = 1.0 if is_log else 1e-6  # nanoseconds were read as milliseconds
    return StepPhase(f"{number} {row.stage or COMPUTATION}", unit * (row.elapsed_s or 0.0), forward=forward)


def _epochs(rows: Sequence[_Row]) -> tuple[list[_Row], list[list[_Row]]]:
    """Return the rows of set-up, and those of each training step."""
    epochs: list[list[_Row]] = [[]]
    for row in rows:
        if row.operation == "epoch_end":
            epochs.append([])
        else:
            epochs[-1].append(row)
    filled = [epoch for epoch in epochs if epoch]  # AICB opens no epoch between two ends
    first, others = (filled[0], filled[1:]) if len(filled) > 1 else ([], filled)
    parted = [_parted(epoch, lambda row: _of_stage(row) in SETUP) for epoch in others]
    setup = [*first, *(row for rows_of_setup, _ in parted for row in rows_of_setup)]
    return setup, [step for _, step in parted if step]


def _of_stage(row: _Row) -> str:
    return row.stage.split(".")[0]


def _first_step(log: _Log, has: Callable[[_Row], bool]) -> tuple[int, Sequence[_Row]]:
    """Return the number, from 1, and the rows of the first training step that has such a row; 0 and none."""
    return next(((number, step) for number, step in enumerate(log.steps, 1) if any(map(has, step))), (0, []))


def _parted(rows: Iterable[_Row], is_taken: Callable[[_Row], bool]) -> tuple[list[_Row], list[_Row]]:
    """Return the rows that are taken, and the others."""
    taken, others = list[_Row](), list[_Row]()
    for row in rows:
        (taken if is_taken(row) else others).append(row)
    return taken, others


def _layout(path: Path, log: _Log, gpus: int | None) -> tuple[Layout, list[str]]:
    """Return the groups, and what the file does not say of them."""
    called = {row.group for row in log.rows if _call(row)}
    found = {group: _group_size(path, log.rows, group) for group in GROUPS}
    sizes = {group: found[group] or (None if group in called else 1) for group in ("tp_group", "pp_group")}
    sizes["pp_group"] = found["pp_group"] or log.stages or sizes["pp_group"]
    sizes["dp_group"] = found["dp_group"]
    stages = sizes["pp_group"] if log.stages == 1 else 1  # a title of one stage of several
    titled = log.ranks and stages and log.ranks * stages
    names = [ranks for ranks in (found["all"], titled) if ranks]
    told = _solve(path, sizes, names[0] if names else gpus)
    tp, dp, pp = (sizes[group] or 0 for group in ("tp_group", "dp_group", "pp_group"))
    for named in names:
        if named != tp * dp * pp:
            raise TraceError(
                f"{path} names {named} ranks, and its groups are tp {tp}, dp {dp}, pp {pp}",
                "correct the one or the other: the product of the groups is the number of ranks",
            )
    if not 1 <= tp * dp * pp <= MAX_GPUS:
        raise TraceError(f"{path} is between {tp * dp * pp} GPUs", f"give at most {MAX_GPUS}")
    ep, ep_told = _expert_ranks(path, found, called, dp)
    return Layout(tp, dp, ep, pp), [*told, *ep_told]


def _solve(path: Path, sizes: dict[str, int | None], gpus: int | None) -> list[str]:
    """Put in the one size that is unknown, of which all GPUs are the product, and return a sentence on it."""
    unknown = [group for group, size in sizes.items() if size is None]
    if not unknown:
        return []
    hint = "give their sizes in the column comm_group_size"
    if len(unknown) > 1:
        raise TraceError(f"{path} does not say the sizes of {' and '.join(sorted(unknown))}", hint)
    (group,), product = unknown, math.prod(size for size in sizes.values() if size)
    if gpus is None:
        raise TraceError(
            f"{path} does not say the size of {group}",
            "say how many GPUs there are, or give it in the column comm_group_size",
        )
    if gpus < 1 or gpus % product:
        known = ", ".join(f"{name} of {size}" for name, size in sizes.items() if size)
        raise TraceError(f"{path} has {known}, and there are {gpus} GPUs", f"take a multiple of {product}")
    sizes[group] = gpus // product
    return [f"{group} has no size: {sizes[group]}, of {gpus} GPUs"]


def _expert_ranks(
    path: Path, found: dict[str, int | None], called: set[str], dp: int
) -> tuple[int, list[str]]:
    """Return how many expert-parallel ranks a group has, and what the file does not say of it."""
    ep, alike, told = found["ep_group"], found["ep_dp_group"], list[str]()
    if ep is None and alike is None and "ep_dp_group" in called:
        raise TraceError(
            f"{path} does not say the size of ep_dp_group", "give it in the column comm_group_size"
        )
    if ep is None and "ep_group" in called:
        ep = dp // (alike or 1)
        told = [f"ep_group has no size: {ep}, of {dp} data-parallel ranks"]
    ep = ep or dp // (alike or dp)
    if ep < 1 or dp % ep or alike not in (None, dp // ep):
        said = f" in groups of {alike} alike" if alike else ""
        raise TraceError(
            f"{path} has {dp} data-parallel ranks, no multiple of {ep} expert-parallel ones{said}",
            "give a log whose groups fit",
        )
    return ep, told


def _group_size(path: Path, rows: Sequence[_Row], group: str) -> int | None:
    said = [row for row in rows if row.group == group and row.operation not in BETWEEN_STAGES]
    sizes = {row.group_size for row in said if row.group_size}
    if len(sizes) > 1:
        raise TraceError(f"{path} gives {group} the sizes {sorted(sizes)}", "expected one")
    return next(iter(sizes), None)


def _demand(path: Path, layout: Layout, size_bytes: int, note: str) -> Demand:
    matrix = np.zeros((layout.gpus, layout.gpus), dtype=np.int64)
    cells = apportioned(size_bytes, np.full(layout.ep, 1 / layout.ep))
    for ranks in layout.groups("ep"):
        for index, rank in enumerate(ranks):
            matrix[rank, list(ranks)] = np.roll(cells, index)
    return Demand(trace_name(path), matrix, note)


def _measured(rows: list[_Row]) -> str:
    times = [row.elapsed_s for row in rows if row.elapsed_s is not None]
    return f"; measured there: median {median(times) * 1e3:.3f} ms" if times else ""
