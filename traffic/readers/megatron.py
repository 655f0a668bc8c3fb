"""Megatron-core's router trace: a JSON object per line, one for each rank, step and layer.

``{"step": 0, "stage": "forward", "block": 0, "layer": 3, "rank": 1, "num_tokens": 2, "topk": 2,
"top_indices": [[4, 1], [0, 4]]}``: the experts of each of the rank's tokens. Lines of one step,
stage, block and layer are one all-to-all; the order is that in which these first occur. Ranks
write files of their own, so a trace is a directory of them. In every all-to-all each rank has a
line, also one without tokens; a trace in which a rank has none is refused, because what is left
of it would be an all-to-all that nobody saw.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topologies.errors import TraceError
from traffic.job import Job
from traffic.readers.routing import Hosting, check_room
from traffic.readers.text import bad_line, files_of, trace_name

MAX_LINE_BYTES = 64 << 20
"""Longest line; a rank's 4,096 tokens of top 8 have about 150 kB [bytes]."""
_KEYS = ("step", "stage", "block", "layer")
_EXPECTED = "a JSON object with step, layer, rank and top_indices"


def read_megatron(path: Path, hosting: Hosting, *, all_to_alls: int | None = None) -> Job:
    """Return the all-to-alls of a router trace.

    Parameters
    ----------
    path
        The directory that holds a file per rank and nothing else, or one file with all ranks.
    hosting
        The GPUs and experts; rank r is GPU r.
    all_to_alls
        At most so many, the first that occur; by default all.

    Raises
    ------
    TraceError
        If a file cannot be read, a line is no record, contradicts itself, or names a rank or
        an expert that does not exist, or a rank is missing.
    """
    counts: dict[tuple[object, ...], NDArray[np.int64]] = {}
    ranks: dict[tuple[object, ...], set[int]] = {}
    for file in files_of(path):
        for number, record in _records(file):
            key = tuple(record.get(name) for name in _KEYS)
            if key not in counts and all_to_alls is not None and len(counts) >= all_to_alls:
                continue
            rank, chosen = _chosen(file, number, record, hosting)
            sent = hosting.counts(f"{file}, line {number}", np.full(len(chosen), rank), chosen, 0)
            counts[key] = counts.get(key, 0) + sent
            ranks.setdefault(key, set()).add(rank)
            check_room(path, len(counts), len(counts) * hosting.gpus**2)
    if not counts:
        raise TraceError(f"{path} holds no record", f"expected {_EXPECTED}")
    _check_ranks(path, ranks, hosting.gpus)
    note = hosting.note(f"Megatron router {trace_name(path)}", len(counts), [])
    return hosting.job(trace_name(path), note, counts.values())


def _check_ranks(path: Path, ranks: dict[tuple[object, ...], set[int]], gpus: int) -> None:
    """Refuse a trace with an all-to-all in which a rank has no line."""
    for key, present in ranks.items():
        missing = sorted(set(range(gpus)) - present)
        if missing:
            where = ", ".join(f"{name} {value}" for name, value in zip(_KEYS, key, strict=True))
            raise TraceError(
                f"{path} lacks {len(missing)} of {gpus} ranks, the first is rank {missing[0]}, in {where}",
                "give the directory with the files of all ranks, and as many GPUs as there are ranks",
            )


def _records(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                if len(line) == MAX_LINE_BYTES:
                    raise bad_line(path, number, f"over {len(line)} bytes", _EXPECTED)
                if line.strip():
                    yield number, _record(path, number, line)
    except OSError as error:
        raise TraceError(f"read {path}: {error.strerror}", "give a file that can be read") from error


def _record(path: Path, number: int, line: bytes) -> dict[str, object]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise bad_line(path, number, line[:80].decode("utf-8", "replace"), _EXPECTED) from error
    if not isinstance(record, dict) or not {"step", "layer", "rank", "top_indices"} <= record.keys():
        raise bad_line(path, number, line[:80].decode("utf-8", "replace"), _EXPECTED)
    if any(isinstance(record.get(name), dict | list) for name in _KEYS):
        raise bad_line(path, number, "a list or object", f"a number or name as {', '.join(_KEYS)}")
    return record


def _chosen(
    path: Path, number: int, record: dict[str, object], hosting: Hosting
) -> tuple[int, NDArray[np.int64]]:
    """Return the rank, and the experts of its tokens, shape (tokens, top k)."""
    rank = record["rank"]
    if type(rank) is not int or not 0 <= rank < hosting.gpus:
        raise bad_line(path, number, f"rank {rank}", f"a rank from 0 to {hosting.gpus - 1}")
    try:
        chosen = np.array(record["top_indices"])
    except (ValueError, OverflowError) as error:
        raise bad_line(
            path, number, "top_indices of several lengths", "a list of k experts per token"
        ) from error
    if not chosen.size:
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
    return rank, chosen
