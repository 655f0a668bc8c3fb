"""Megatron-core's router trace: a JSON object per line, one for each rank, step and layer.

``{"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": 3, "rank": 1, "num_tokens": 2,
"topk": 2, "top_indices": [[4, 1], [0, 4]]}``: the experts of each of the rank's tokens. Ranks write
files of their own, ``router_trace_rank*.jsonl``, so a trace is a directory of them.

- Lines of one step, stage, block, MTP head (``mtp_idx``) and layer are one all-to-all. A step is an
  iteration, so a rank has such lines for each micro-batch: its n-th is of the n-th all-to-all of these.
- There are as many GPUs as the largest rank says. The records of all ranks have the same of the optional
  keys: one that lacks a key would be of an all-to-all of its own.
- An all-to-all is between the ranks that have a line of it, also one without tokens. Ranks that have
  some in common are a group, and the experts live on the ranks of each group. A trace in which a rank
  lacks a line of its group's is refused, because what is left would be an all-to-all that never was.
- A group's all-to-alls follow each other as they first occur. Groups, such as the stages of a
  pipeline, go on at the same time. Replicas, and stages whose layers have the same numbers, cannot be
  told from one larger group, so the note names the groups that were taken.

References
----------
Megatron-LM, ``megatron/core/transformer/moe/router_trace.py``.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topologies.errors import TraceError
from topologies.strict_json import object_of, shown
from traffic.compose import placed, side_by_side
from traffic.job import Job
from traffic.readers.routing import Hosting, check_differ, check_room
from traffic.readers.text import bad_line, file_name, files_of, first_bytes, trace_name

MAX_LINE_BYTES = 64 << 20
"""Longest line; a rank's 4,096 tokens of top 8 have about 150 kB [bytes]."""
EXPECTED = "a JSON object with step, layer, rank and top_indices"
"""A line of a router trace, in words."""
_FORMS = {"step": int, "stage": str, "block": str, "mtp_idx": int, "layer": int}
_KEYS = tuple(_FORMS)
_WORDS = {int: "a whole number from 0", str: "a text"}

Key = tuple[object, ...]
"""An all-to-all: the values of `_KEYS`, and how many of the same values came before it."""
Place = tuple[Path, int]
"""A file, and a line in it."""
Loads = Mapping[int, NDArray[np.int64]]
"""By rank, how many of its tokens each expert has."""


def is_router_trace(path: Path) -> bool:
    """Return whether the first line of a file is a record of a router trace."""
    if first_bytes(path).lstrip()[:1] not in (b"{", b""):
        return False
    return next((_record(line) is not None for _, line in _lines(path)), False)


def router_files(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of a router trace, and those beside them that are left out.

    Megatron writes hidden states, logits and weights beside its traces; directories are not entered. A trace
    whose first line is damaged is known by its name; under another name it is among what is left out.

    Raises
    ------
    TraceError
        If the path is a directory without a router trace.
    """
    files = files_of(path)
    if files == [path]:
        return files, []
    traces = {file for file in files if is_router_trace(file)}
    if not traces:
        raise TraceError(
            f"{path} is a directory, and {files[0].name} in it is not a router trace of Megatron",
            "give a directory of router_trace_rank*.jsonl, or the path of a single file",
        )
    traces |= {file for file in files if file.suffix == ".jsonl"}
    beside = [each for each in sorted(path.iterdir()) if not each.name.startswith(".") and each not in traces]
    return [file for file in files if file in traces], beside


def read_megatron(path: Path, hosting: Hosting, *, all_to_alls: int | None = None) -> Job:
    """Return the all-to-alls of a router trace.

    Parameters
    ----------
    path
        The directory that holds a file per rank, or one file with all ranks.
    hosting
        The experts, and how many GPUs there are at most; rank r is GPU r, and the job is for as many as
        there are ranks.
    all_to_alls
        At most so many, the first that occur, of each group in turn; by default all.

    Raises
    ------
    TraceError
        If a file cannot be read, a line is no record, contradicts itself or another, or names a rank or an
        expert that does not exist, a token has an expert twice, a rank is missing or in two files, or no two
        ranks have an all-to-all in common.
    """
    files, others = router_files(path)
    loads, present = _loads(path, files, hosting, all_to_alls)
    if not loads:
        raise TraceError(f"{path} holds no record", f"expected {EXPECTED}")
    chains = _chains(present)
    turns = [key for turn in zip_longest(*chains.values()) for key in turn if key is not None]
    wanted = {key: loads[key] for key in turns[:all_to_alls]}
    hosting = replace(hosting, gpus=1 + max(map(max, chains)))
    _check_ranks(path, wanted, list(chains), hosting.gpus)
    _check_groups(path, chains)
    taken = {group: [wanted[key] for key in chain if key in wanted] for group, chain in chains.items()}
    groups = {_shown(sorted(group)): group for group, own in taken.items() if own}
    also = [_said_of_groups([*groups], len(chains)), *_said_of_others(others)]
    note = hosting.note(f"Megatron router {trace_name(path)}", len(wanted), len(present), also)
    jobs = [_job_of(path, sorted(group), taken[group], hosting, note) for group in groups.values()]
    if len(jobs) == 1:
        return jobs[0]
    named = [replace(job, name=name) for job, name in zip(jobs, groups, strict=True)]
    return side_by_side(trace_name(path), named)


def _loads(
    path: Path, files: Sequence[Path], hosting: Hosting, all_to_alls: int | None
) -> tuple[dict[Key, dict[int, NDArray[np.int64]]], dict[Key, set[int]]]:
    """Return the loads of all-to-alls as they first occur, and the ranks of all that there are.

    With ``all_to_alls`` a rank begins at most so many, so that the loads hold those of each group's first.
    """
    loads: dict[Key, dict[int, NDArray[np.int64]]] = {}
    present: dict[Key, set[int]] = {}
    top_k: dict[Key, tuple[object, Place]] = {}
    times, parts = Counter[Key](), Counter[int]()
    file_of: dict[int, Path] = {}
    cells = 0
    for (file, number), record in _records(files):
        rank = _rank(file, number, record, hosting)
        if file_of.setdefault(rank, file) != file:
            raise TraceError(
                f"{path} has rank {rank} in {file_of[rank].name} and in {file.name}", "take one of them away"
            )
        named = tuple(record.get(name) for name in _KEYS)
        key = (*named, times[rank, *named])
        times[rank, *named] += 1
        present.setdefault(key, set()).add(rank)
        if key not in loads and all_to_alls is not None and parts[rank] >= all_to_alls:
            continue
        parts[rank] += 1
        chosen = _chosen(file, number, record, hosting)
        own_k = chosen.shape[1] if len(chosen) else record.get("topk")
        if own_k is not None:
            _check_alike(top_k, named[1:], own_k, f"top {shown(own_k)}", (file, number))
        loads.setdefault(key, {})[rank] = np.bincount(chosen.ravel(), minlength=hosting.experts)
        cells += max(hosting.experts, hosting.gpus)
        check_room(path, len(loads), cells)
    return loads, present


def _chains(present: Mapping[Key, Set[int]]) -> dict[frozenset[int], list[Key]]:
    """Return the all-to-alls of each group of ranks that have some in common, by the groups' first ranks."""
    groups: list[frozenset[int]] = []
    for ranks in dict.fromkeys(map(frozenset, present.values())):
        shared = [group for group in groups if group & ranks]
        groups = [group for group in groups if group not in shared] + [ranks.union(*shared)]
    of = {rank: group for group in groups for rank in group}
    chains: dict[frozenset[int], list[Key]] = {group: [] for group in sorted(groups, key=min)}
    for key, own in present.items():
        chains[of[next(iter(own))]].append(key)
    return chains


def _check_ranks(
    path: Path, wanted: Mapping[Key, Loads], groups: Sequence[frozenset[int]], gpus: int
) -> None:
    """Refuse a trace without a rank, or with an all-to-all in which a rank of the group has no line."""
    absent = frozenset(range(gpus)).difference(*groups)
    of = {rank: group for group in groups for rank in group}
    for number, (key, present) in enumerate(wanted.items()):
        group = of[next(iter(present))]
        if missing := sorted(absent or group - present.keys()):
            *values, before = key
            where = [f"{n} {value}" for n, value in zip(_KEYS, values, strict=True) if value is not None]
            hint = "give the directory with the files of all ranks"
            if number and not absent:
                hint += f", or take the {number} all-to-alls before it (all_to_alls, --all-to-alls)"
            raise TraceError(
                f"{path} lacks {len(missing)} of {gpus if absent else len(group)} ranks, the first is rank "
                f"{missing[0]}, in {', '.join(where)}{f', record {before}' if before else ''}",
                hint,
            )


def _check_groups(path: Path, chains: Mapping[frozenset[int], Sequence[Key]]) -> None:
    """Refuse ranks that have no all-to-all in common, and groups that do not begin together."""
    if all(len(group) == 1 for group in chains):
        alone = _shown(sorted(rank for group in chains for rank in group))
        raise TraceError(
            f"{path} has no all-to-all between two ranks, only records of {alone}",
            "give the directory with the files of all ranks of a run with expert parallelism",
        )
    begins = {chain[0][:2]: group for group, chain in chains.items()}
    if len(begins) > 1:
        said = [
            f"{_shown(sorted(group))} with step {step}" + (f", stage {stage}" if stage is not None else "")
            for (step, stage), group in [*begins.items()][:2]
        ]
        raise TraceError(f"{path} begins on {' and on '.join(said)}", "give the files that one run wrote")


def _job_of(path: Path, ranks: Sequence[int], loads: Sequence[Loads], hosting: Hosting, note: str) -> Job:
    """Return the all-to-alls of a group, one after the other, on its ranks."""
    own = replace(hosting, gpus=len(ranks))
    to_gpu = np.eye(len(ranks), dtype=np.int64)[own.homes]
    counts = (np.array([each[rank] for rank in ranks]) @ to_gpu for each in loads)
    return placed(own.job(trace_name(path), note, counts), ranks, of=hosting.gpus)


def _shown(ranks: Sequence[int]) -> str:
    """Return ranks in order as people write them: ranks 0-3, or one by one."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    in_a_row = ranks[-1] - ranks[0] == len(ranks) - 1
    return f"ranks {f'{ranks[0]}-{ranks[-1]}' if in_a_row else _few([*map(str, ranks)])}"


def _said_of_groups(groups: Sequence[str], of: int) -> str:
    """Return the groups that are taken, of so many in the trace, for its note."""
    if of == 1:
        return f"{groups[0]}: one group with all experts"
    some = f"{len(groups)} of {of} groups, " * (len(groups) < of)
    return f"{_few(groups, ' and ')}: {some}each with all experts, at the same time"


def _said_of_others(files: Sequence[Path]) -> list[str]:
    names = [f"{file_name(file)}/" if file.is_dir() else file_name(file) for file in files]
    return [f"left out: {_few(names)}"] if files else []


def _few(names: Sequence[str], between: str = ", ") -> str:
    """Return some of many names, and how many more there are."""
    more = [f"{len(names) - 8} more"] if len(names) > 8 else []
    return between.join([*names[:8], *more])


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not blank, with their numbers."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                if len(line) == MAX_LINE_BYTES:
                    raise bad_line(path, number, f"over {len(line)} bytes", EXPECTED)
                if line.strip():
                    yield number, line
    except OSError as error:
        raise TraceError(f"read {path}: {error.strerror}", "give a file that can be read") from error


def _record(
    line: bytes, pairs: Callable[[list[tuple[str, object]]], dict[str, object]] = dict
) -> dict[str, object] | None:
    """Return the record that a line is, if it is one; an object is made of its ``pairs``."""
    try:
        record = json.loads(line, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None
    is_one = isinstance(record, dict) and {"step", "layer", "rank", "top_indices"} <= record.keys()
    return record if is_one else None


def _records(files: Sequence[Path]) -> Iterator[tuple[Place, dict[str, object]]]:
    """Yield the records of files, all of which name all-to-alls by the same keys, and where each is."""
    has: dict[Key, tuple[object, Place]] = {}
    for file in files:
        for number, line in _lines(file):
            try:
                record = _record(line, object_of)
            except TraceError as error:
                raise TraceError(f"{file}, line {number}: {error.sentence}", "leave one of them") from error
            if record is None:
                raise bad_line(file, number, line[:80].decode("utf-8", "replace"), EXPECTED)
            _check_keys(record, (file, number), has)
            yield (file, number), record


def _check_keys(record: Mapping[str, object], place: Place, has: dict[Key, tuple[object, Place]]) -> None:
    """Refuse a record that names its all-to-all by other keys than the first, or by no number or text."""
    for name, form in _FORMS.items():
        value = record.get(name)
        is_there = value is not None or name in ("step", "layer")
        is_below = isinstance(value, int) and value < 0
        if is_there and (type(value) is not form or is_below):
            raise bad_line(*place, f"{name} {shown(value)}", f"{_WORDS[form]} as {name}")
        block = record.get("block") if name == "mtp_idx" else None  # the decoder has no such key
        _check_alike(has, (name, block), is_there, f"{'a' if is_there else 'no'} key {name!r}", place)


def _check_alike(
    known: dict[Key, tuple[object, Place]], of: Key, value: object, said: str, place: Place
) -> None:
    """Refuse a value that is another than at the first place of its key, which ``known`` keeps."""
    first, (file, line) = known.setdefault(of, (value, place))
    if value != first:
        raise TraceError(
            f"{place[0]}, line {place[1]}: found {said}, unlike {file.name}, line {line}",
            "give the files that one run wrote",
        )


def _rank(path: Path, number: int, record: Mapping[str, object], hosting: Hosting) -> int:
    rank = record["rank"]
    if type(rank) is not int or not 0 <= rank < hosting.gpus:
        raise bad_line(path, number, f"rank {rank}", f"a rank from 0 to {hosting.gpus - 1}, one per GPU")
    return rank


def _chosen(path: Path, number: int, record: Mapping[str, object], hosting: Hosting) -> NDArray[np.int64]:
    """Return the experts of a record's tokens, shape (tokens, top k)."""
    try:
        chosen = np.array(record["top_indices"])
    except (ValueError, OverflowError) as error:
        raise bad_line(
            path, number, "top_indices of several lengths", "a list of k experts per token"
        ) from error
    if chosen.shape == (0,):
        chosen = np.zeros((0, 1), dtype=np.int64)
    if chosen.ndim != 2 or chosen.dtype.kind != "i":
        raise bad_line(path, number, f"top_indices of shape {chosen.shape}", "a list of k experts per token")
    told = record.get("num_tokens", len(chosen)), record.get("topk", chosen.shape[1])
    if told[0] != len(chosen) or (len(chosen) and told[1] != chosen.shape[1]):
        raise bad_line(
            path, number, f"top_indices of shape {chosen.shape}", f"{told[0]} tokens, top {told[1]}"
        )
    wrong = chosen[(chosen < 0) | (chosen >= hosting.experts)]
    if len(wrong):
        raise bad_line(path, number, f"expert {wrong[0]}", f"an expert from 0 to {hosting.experts - 1}")
    check_differ(f"{path}, line {number}", chosen, 0)
    return chosen
