"""AICB's CSV: the collectives of one rank of a training, in order, with results or without.

Sizes (``msg_size``) are bytes, times (``_elapsed_time``) **milliseconds**; ``epoch_end`` rows
separate the training steps. `read_aicb` replays the expert all-to-alls of one step: the rows
``all_to_all`` of ``ep_group``, or of ``dp_group`` in a micro-benchmark that has no other.
`aicb_phases` are all collectives of a step, one after another, with the computes between them.

The log is one rank's. All groups of the kind are taken to do the same at the same time, as they
do in training, with Megatron's order of ranks: tensor-parallel ranks are neighbours, and
expert-parallel groups stride over them (tp 2 and ep 4 on 8 GPUs: 0 2 4 6 and 1 3 5 7). Each
rank splits ``msg_size`` evenly over its group, itself included, as NCCL's alltoall does.

Rows of ``computation`` have the shapes of a product in place of bytes. Their time is milliseconds too in a
log, whose collectives have times, and **nanoseconds** in a workload that was not run. Without such rows, as
where a log was made without AIOB, there is no compute.

The ``busbw`` column is not read: it was computed with n = 8 for groups of every size.

References
----------
aliyun/aicb, log_analyzer/log.py; Megatron-LM, core/parallel_state.py.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from topologies.errors import TraceError
from traffic.demand import Demand
from traffic.job import Job
from traffic.readers.text import ALL, MAX_GPUS, Taken, bad_line, count_of, text_of, trace_name
from traffic.steps import Step, job_of_steps
from traffic.training import Call, GroupKind, Layout, Phase, Phases, first_alike, in_turn
from traffic.workloads.gating import apportioned

COLUMNS = ("comm_type", "comm_group", "msg_size")
"""The columns without which a CSV is not AICB's."""
EXPERT_GROUPS = ("ep_group", "dp_group")
CALLS: dict[str, Call] = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
}
COMPUTATION = "computation"
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
        How many GPUs, where the file does not say the sizes of its tp and dp groups.
    all_to_alls
        At most so many of the step's all-to-alls, its first ones; by default all.

    Returns
    -------
    Job
        A step per all-to-all, between ``tp * dp`` GPUs. Its note says what was taken and the
        median that the log measured.

    Raises
    ------
    TraceError
        If the file cannot be read, a row is malformed, no step has an all-to-all, or the groups
        do not fit each other.
    """
    rows = _rows(path)
    group = next((g for g in EXPERT_GROUPS if any(row.group == g for row in rows if _exchanges(row))), "")
    steps = _training_steps(rows, group)
    if not steps:
        raise TraceError(f"{path} holds no step with expert all-to-alls")
    layout = _layout(path, rows, group, gpus)
    taken = steps[0][:all_to_alls]
    note = (
        f"AICB log {path.name}, step 0 of {len(steps)}: {len(taken)} of {len(steps[0])} "
        f"all-to-alls in groups of {layout.ep}{_measured(taken)}"
    )
    demands = {row.size_bytes: _demand(path, layout, row.size_bytes, note) for row in taken}
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
    rows = _rows(path)
    least = max(wanted.least_bytes, 1)
    steps = [epoch for epoch in _epochs(rows) if any(_call(row) and row.size_bytes >= least for row in epoch)]
    if not steps:
        raise TraceError(f"{path} holds no step with collectives of {least:g} bytes or more")
    pp = _group_size(path, rows, "pp_group") or 1
    stage = _layout(path, rows, "ep_group", wanted.gpus and wanted.gpus // pp)
    layout = replace(stage, pp=pp)
    counted = [row for row in steps[0] if _replays(row)]
    taken = _first_alike(counted, wanted)
    is_log = any(row.elapsed_s is not None for row in rows if _call(row) is not None)
    collectives = [sum(_call(row) is not None for row in some) for some in (taken, counted)]
    others = Counter(f"{row.operation} {row.group}" for row in steps[0] if not _replays(row))
    note = (
        f"AICB log {path.name}, step 0 of {len(steps)}: {collectives[0]} of {collectives[1]} "
        f"collectives, tp {layout.tp} dp {layout.dp} ep {layout.ep} pp {layout.pp}"
    )
    left = ", ".join(f"{what} ({count})" for what, count in others.items())
    note += f"; left out: {left}" if left else ""
    phases = tuple(_phase(number, row, is_log=is_log) for number, row in enumerate(taken))
    return Phases(trace_name(path), layout, phases, note)


def is_aicb(first_line: str) -> bool:
    """Return whether a file's first line is the header of AICB's CSV."""
    return set(COLUMNS) <= set(first_line.strip().split(","))


def _rows(path: Path) -> list[_Row]:
    header, *lines = text_of(path).splitlines()
    names = header.strip().split(",")
    if not is_aicb(header):
        raise bad_line(path, 1, header, f"AICB's header with the columns {', '.join(COLUMNS)}")
    rows = []
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        cells = _cells(line.strip())
        if len(cells) != len(names):
            raise bad_line(path, number, f"{len(cells)} columns", f"{len(names)}, as in the header")
        rows.append(_row(path, number, dict(zip(names, cells, strict=True))))
    return rows


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
    return _Row(
        cells["comm_type"].removeprefix("CommType."),
        cells["comm_group"].removeprefix("CommGroup."),
        None if size in ("None", "") else count_of(path, number, size, expected="a group size", least=1),
        0 if is_computation else count_of(path, number, cells["msg_size"], expected="bytes"),
        elapsed_s,
        cells.get("stage", ""),
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


def _computes(row: _Row) -> bool:
    return row.operation == COMPUTATION and bool(row.elapsed_s)


def _replays(row: _Row) -> bool:
    return _call(row) is not None or _computes(row)


def _first_alike(rows: list[_Row], wanted: Taken) -> list[_Row]:
    """Return the first of equal rows; of computes those of a stage are equal, whatever they took."""
    paired = [wanted.in_pairs and _exchanges(row) and row.group == "ep_group" for row in rows]
    keys = []
    for row, is_one, turn in zip(rows, paired, in_turn(paired), strict=True):
        stage = row.stage if _computes(row) else ""
        role = (turn, "backward" in row.stage) if is_one else ()
        keys.append((row.operation, row.group, row.size_bytes, stage, role))
    return [rows[place] for place in first_alike(range(len(rows)), wanted.alike, keys.__getitem__)]


def _phase(number: int, row: _Row, *, is_log: bool) -> Phase:
    """Return a row as a phase."""
    forward = "backward" not in row.stage
    if not _computes(row):
        name = f"{number} {row.group}"
        return Phase(name, 0.0, CALLS[row.operation], GROUPS[row.group], row.size_bytes, forward=forward)
    unit = 1.0 if is_log else 1e-6  # nanoseconds were read as milliseconds
    return Phase(f"{number} {row.stage or COMPUTATION}", unit * (row.elapsed_s or 0.0), forward=forward)


def _training_steps(rows: list[_Row], group: str) -> list[list[_Row]]:
    """Return the expert all-to-alls of each step that has some."""
    steps = [[row for row in step if _exchanges(row) and row.group == group] for step in _epochs(rows)]
    return [step for step in steps if step]


def _epochs(rows: list[_Row]) -> list[list[_Row]]:
    """Return the rows between those that end a step."""
    steps: list[list[_Row]] = [[]]
    for row in rows:
        if row.operation == "epoch_end":
            steps.append([])
        else:
            steps[-1].append(row)
    return steps


def _layout(path: Path, rows: list[_Row], group: str, gpus: int | None) -> Layout:
    tp = _group_size(path, rows, "tp_group") or 1
    dp = _group_size(path, rows, "dp_group") or ((gpus or 0) // tp)
    ep = (_group_size(path, rows, group) if group else None) or dp
    if not 1 <= tp * dp <= MAX_GPUS:
        raise TraceError(
            f"{path} has {tp} tensor-parallel and {dp or 'an unknown number of'} data-parallel ranks",
            f"say how many GPUs there are, at most {MAX_GPUS}",
        )
    if ep < 1 or dp % ep:
        raise TraceError(
            f"{path} has {dp} data-parallel ranks, no multiple of {ep} expert-parallel ones",
            "give a log whose groups fit",
        )
    return Layout(tp, dp, ep)


def _group_size(path: Path, rows: list[_Row], group: str) -> int | None:
    sizes = Counter(row.group_size for row in rows if row.group == group and row.group_size)
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
