"""Each format of traces: valid records, how they are written, what they state, and how their file is read."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random

import numpy as np

from tests.fuzz.meanings import Format, Got, Record, Records, Stated, check, mutated
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import bytes_between
from traffic.job import Job
from traffic.readers.detect import read_step, read_trace
from traffic.readers.infinitehbd import read_fault_trace
from traffic.workloads.placement import placed

GPUS, EXPERTS, TOKEN_BYTES = 8, 16, 10
FABRIC = rail_fabric(4, 2, 2)


def _crossing(job: Job) -> Got:
    """Return a job with the bytes that GPUs send to others."""
    count = sum(int(bytes_between(node.pattern, job.gpus).sum()) for node in job.collectives)
    return Got(count, job.note, len(job.collectives))


def _owed(job: Job) -> Got:
    """Return a job with the bytes of its matrices, those that stay on a GPU too."""
    patterns = [node.pattern for node in job.collectives]
    count = sum(each.demand.total_bytes for each in patterns if isinstance(each, AllToAll))
    return Got(count, job.note, len(patterns))


def _routed_by(path: Path) -> Got:
    return _owed(read_trace(path, gpus=GPUS, experts=EXPERTS, bytes_per_token=TOKEN_BYTES))


# Matrices


def _rows(rng: Random) -> Records:
    return [{str(to): rng.choice([0, 1, 700, 10**9]) for to in range(4)} for _ in range(4)]


def _matrix(records: Records) -> Stated:
    rows = [list(record.values()) for record in records]
    if any(cell is None for row in rows for cell in row) or any(len(row) != len(rows) for row in rows):
        return Stated(None)
    crossing = sum(cell for at, row in enumerate(rows) for to, cell in enumerate(row) if at != to)
    return Stated(crossing or None)


def _tokens_matrix(records: Records) -> Stated:
    stated = _matrix(records)
    return Stated(stated.count and TOKEN_BYTES * stated.count)


def _text_of_rows(before: str, cell: str, row: str, after: str) -> Callable[[Records, Path], None]:
    def write(records: Records, path: Path) -> None:
        lines = [cell.join(json.dumps(number) for number in record.values()) for record in records]
        path.write_text(before + row.join(lines) + after)

    return write


def _array(records: Records, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.array([list(record.values()) for record in records], dtype=float))


def _placed_bytes(path: Path, bytes_per_token: int | None = None) -> Got:
    job = read_trace(path, bytes_per_token=bytes_per_token)
    placed(job, FABRIC)
    return _crossing(job)


# AICB: groups of which some sizes are unknown, set-up, and calls that overlap what follows

SENT_TIMES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
"""By call, how many times (n - 1) / n of its bytes each of n GPUs sends to others."""
AICB_COLUMNS = ("comm_type", "comm_group", "comm_group_size", "msg_size", "stage", "additional", "count")


def _sent(times: int, size_bytes: int, in_group: int) -> int:
    """Return the bytes that all GPUs send to others, in all groups at once."""
    return times * size_bytes * (in_group - 1) // in_group * GPUS


def _calls(rng: Random) -> Records:
    """Return calls of groups of 8 GPUs, some of an unknown size."""
    tp, ep = rng.choice([(1, 4), (2, 2), (2, 4), (4, 2)])
    sizes = {"tp": tp, "dp": GPUS // tp, "ep": ep}
    known = {group: rng.random() < 0.7 for group in sizes}
    kinds = [("all_reduce", "tp"), ("all_reduce", "dp"), ("all_to_all", "ep")]
    kinds += [(rng.choice([*SENT_TIMES, "broadcast"]), rng.choice(["tp", "dp"])) for _ in range(3)]
    return [
        {
            "call": call, "group": group, "size": sizes[group] if known[group] else None,
            "bytes": 64 * rng.randrange(1, 9), "stage": rng.choice(["init", *3 * ["forward"]]),
            "additional": rng.choice(["overlap", *3 * [""]]), "count": 1,
        }
        for call, group in kinds
    ]  # fmt: skip


def _log(records: Records, path: Path) -> None:
    """Write a workload whose title says how many ranks there are."""
    rows = [
        f"CommType.{one['call']},CommGroup.{one['group']}_group,{one['size']},{one['bytes']},"
        f"{one['stage']},{one['additional']},{one['count']}"
        for one in records
    ]
    path.write_text("\n".join([f"[rank0 ~ rank{GPUS - 1}]", ",".join(AICB_COLUMNS), *rows]))


def _group_sizes(records: Records, called: set[str]) -> Mapping[str, int] | None:
    """Return the sizes of groups as far as records and the title say them; None if they do not agree."""
    said = {(one["group"], one["size"]) for one in records if None not in (one["group"], one["size"])}
    sizes = dict(said)
    if len(said) > len(sizes) or 0 in sizes.values():
        return None
    tp, dp = sizes.get("tp", None if "tp" in called else 1), sizes.get("dp")
    if tp is None and dp is None:
        return None
    tp, dp = tp or GPUS // (dp or 1), dp or GPUS // (tp or 1)
    ep = sizes.get("ep", dp)
    return {"tp": tp, "dp": dp, "ep": ep} if tp * dp == GPUS and dp % ep == 0 else None


def _step(records: Records) -> Stated:
    replayed = [one for one in records if one["call"] in SENT_TIMES and one["group"] is not None]
    called = {one["group"] for one in replayed}
    sizes = _group_sizes(records, called)
    if sizes is None or any(one["bytes"] is None or one["count"] != 1 for one in records):
        return Stated(None)
    count, left = 0, Counter[str]()
    for one in records:
        what = f"{one['call']} {one['group']}_group{' overlap' * bool(one['additional'])}"
        if one["stage"] == "init":
            left["rows of init"] += 1
        elif one not in replayed:
            left[what] += 1
        elif sent := _sent(SENT_TIMES[one["call"]], one["bytes"], sizes[one["group"]]):
            count += sent
            left[what.removesuffix(" overlap")] += bool(one["additional"])
        else:
            left[f"{what} of {'one GPU' if one['bytes'] else '0 bytes'}"] += 1
    unknown = called - {one["group"] for one in records if one["size"]}
    named = [f"{what} ({times})" for what, times in left.items() if times]
    return Stated(count or None, [*named, *(f"{group}_group has no size" for group in unknown)])


# SimAI: layers whose groups the header gives

WORDS = {
    "NONE": ("", 0), "BROADCAST": ("", 0), "ALLREDUCE": ("", 2), "ALLGATHER": ("", 1),
    "REDUCESCATTER": ("", 1), "ALLTOALL_EP": ("ep", 1), "ALLREDUCE_DP_EP": ("dp_ep", 2),
}  # fmt: skip
"""By word, the groups that it names, and how often its bytes are sent as of `SENT_TIMES`."""
PASSES = {"forward": "tp", "input": "tp", "weight": "dp"}
HEADER = ("tp", "ep", "all_gpus")


def _layers(rng: Random) -> Records:
    tp, ep = rng.choice([(1, 4), (2, 2), (2, 4), (4, 2), (8, 1)])
    layers = [
        {f"{one} {what}": value for one in PASSES for what, value in _pass(rng).items()} for _ in range(3)
    ]
    return [{"tp": tp, "ep": ep, "all_gpus": GPUS}, *({**layer, "update": 0} for layer in layers)]


def _pass(rng: Random) -> Record:
    return {"ns": rng.choice([0, 7]), "word": rng.choice(list(WORDS)), "bytes": 64 * rng.randrange(1, 9)}


def _workload(records: Records, path: Path) -> None:
    heads = [record for record in records if "tp" in record]
    layers = [record for record in records if "tp" not in record]
    keys = " ".join(f"{key}: {head[key]}" for head in heads for key in HEADER)
    header = (
        f"HYBRID_TRANSFORMER_FWD_IN_BCKWD {keys.replace('tp:', 'model_parallel_NPU_group:')} checkpoints: 0"
    )
    rows = [f"layer -1 {' '.join(map(str, layer.values()))}" for layer in layers]
    path.write_text("\n".join([header, str(len(layers)), *rows]))


def _layered(records: Records) -> Stated:
    heads = [record for record in records if "tp" in record]
    layers = [record for record in records if "tp" not in record]
    if len(heads) != 1 or not all(heads[0].values()) or any(None in layer.values() for layer in layers):
        return Stated(None)
    tp, ep, gpus = (heads[0][key] for key in HEADER)
    if gpus % (tp * ep):
        return Stated(None)
    sizes = {"tp": tp, "dp": gpus // tp, "ep": ep, "dp_ep": gpus // tp // ep}
    count, left = 0, Counter[str]()
    for layer in layers:
        left["weight update"] += bool(layer["update"])
        for one, own in PASSES.items():
            word, size_bytes = layer[f"{one} word"], layer[f"{one} bytes"]
            kind, times = WORDS[word]
            left[word] += word == "BROADCAST"
            alone = times and size_bytes and sizes[kind or own] == 1
            left[f"of one {kind or own} rank"] += bool(alone)
            left["of 0 bytes"] += bool(times and not size_bytes)
            count += _sent(times, size_bytes, sizes[kind or own]) // GPUS * gpus
    return Stated(count, [what for what, number in left.items() if number])


# htsim: connections, and triggers that chain them


def _connections(rng: Random) -> Records:
    """Return two chains of connections."""
    return [
        {
            "chain": chain, "turn": turn, "from": 2 * chain, "to": 2 * chain + 1,
            "size": rng.randrange(1, 10**6), "prio": rng.choice([1, 1, 1, 2]),
        }
        for chain in range(2)
        for turn in range(rng.randrange(1, 4))
    ]  # fmt: skip


def _cm(records: Records, path: Path) -> None:
    """Write connections, each with a trigger for the next of its chain."""
    triggers = [f"trigger id {at + 1} oneshot" for at in range(len(records))]
    last: dict[object, int] = {}
    waits, fires = dict[int, int](), dict[int, int]()
    for at, one in enumerate(records):
        if (before := last.get(one["chain"])) is not None:
            waits[at], fires[before] = before + 1, before + 1
        last[one["chain"]] = at
    lines = [
        f"{one['from']}->{one['to']} id {at + 1} size {one['size']} prio {one['prio']} "
        + (f"trigger {waits[at]}" if at in waits else "start 0")
        + (f" send_done_trigger {fires[at]}" if at in fires else "")
        for at, one in enumerate(records)
    ]
    header = [f"Nodes {GPUS}", f"Connections {len(lines)}", f"Triggers {len(triggers)}"]
    path.write_text("\n".join([*header, *lines, *triggers]))


def _chained(records: Records) -> Stated:
    keys = ("from", "to", "size", "prio")
    if any(one[key] is None for one in records for key in keys) or not all(one["size"] for one in records):
        return Stated(None)
    crossing = sum(one["size"] for one in records if one["from"] != one["to"])
    named = ["priorities"] if len({one["prio"] for one in records}) > 1 else []
    return Stated(crossing, named)


# Routing traces: which experts tokens chose


def _micro_batches(rng: Random) -> Records:
    """Return lines of Megatron's: each rank has one per micro-batch and layer."""
    return [
        {
            "step": 0, "stage": "forward", "layer": layer, "rank": rank,
            "first": rng.randrange(EXPERTS), "tokens": rng.randrange(4),
        }
        for _ in range(rng.choice([1, 2]))
        for layer in range(2)
        for rank in range(GPUS)
    ]  # fmt: skip


def _router_lines(records: Records, path: Path) -> None:
    lines = []
    for one in records:
        told = {key: one[key] for key in ("step", "stage", "layer", "rank")}
        first = -1 if one["first"] is None else one["first"]
        chosen = [[first, (first + 1) % EXPERTS]] * (one["tokens"] or 0)
        lines.append(json.dumps({**told, "num_tokens": one["tokens"], "topk": 2, "top_indices": chosen}))
    path.write_text("\n".join(lines))


def _routed(records: Records) -> Stated:
    """Return the bytes of lines: those of one rank, step and layer are all-to-alls of their own."""
    if any(one[key] is None for one in records for key in ("step", "layer", "rank", "tokens")):
        return Stated(None)
    if len({one["stage"] for one in records}) > 1:
        return Stated(None)
    if any(one["first"] is None and one["tokens"] for one in records):
        return Stated(None)
    lines = Counter((one["step"], one["layer"], one["rank"]) for one in records)
    most = Counter[object]()
    for (step, layer, _), times in lines.items():
        most[step, layer] = max(most[step, layer], times)
    return Stated(2 * TOKEN_BYTES * sum(one["tokens"] for one in records), collectives=most.total())


def _tokens(rng: Random) -> Records:
    """Return tokens of vLLM's, with two experts in each of two layers; the first may be dense."""
    dense = rng.random() < 0.3
    records = []
    for _ in range(rng.randrange(1, 20)):
        a, b = rng.sample(range(EXPERTS), 2), rng.sample(range(EXPERTS), 2)
        a = [0, 0] if dense else a
        records.append({"a0": a[0], "a1": a[1], "b0": b[0], "b1": b[1]})
    return records


def _experts_array(records: Records, path: Path) -> None:
    cells = [[-1 if cell is None else cell for cell in record.values()] for record in records]
    with path.open("wb") as file:
        np.save(file, np.array(cells, dtype=np.int16).reshape(-1, 2, 2))


def _chosen(records: Records) -> Stated:
    if any(None in record.values() for record in records):
        return Stated(None)
    used = [any(record[f"{layer}0"] or record[f"{layer}1"] for record in records) for layer in "ab"]
    if any(
        is_used and any(record[f"{layer}0"] == record[f"{layer}1"] for record in records)
        for layer, is_used in zip("ab", used, strict=True)
    ):
        return Stated(None)
    named = [] if all(used) else ["dense"]
    return Stated(2 * TOKEN_BYTES * len(records) * sum(used) or None, named)


# Faults


def _faults(rng: Random) -> Records:
    times = sorted(rng.randrange(1, 90) for _ in range(4))
    pairs = [
        (times[0], "a", "start"),
        (times[1], "b", "start"),
        (times[2], "b", "end"),
        (times[3], "a", "end"),
    ]
    return [{"time": time, "node": node, "kind": kind} for time, node, kind in pairs]


def _events(records: Records, path: Path) -> None:
    events = [
        {"node_id": one["node"], "event_time": one["time"], "event_type": f"fault_{one['kind']}"}
        for one in records
    ]
    path.write_text(json.dumps(events))


def _begun(records: Records) -> Stated:
    """Return how many faults begin; None where one ends that has not begun, or time runs backwards."""
    if any(None in one.values() for one in records):
        return Stated(None)
    under_way = Counter[str]()
    for one in records:
        under_way[one["node"]] += 1 if one["kind"] == "start" else -1
        if under_way[one["node"]] < 0:
            return Stated(None)
    times = [one["time"] for one in records]
    return Stated(sum(one["kind"] == "start" for one in records) if times == sorted(times) else None)


def _found_faults(path: Path) -> Got:
    return Got(len(read_fault_trace(path).start_days), "", 0)


FORMATS: Mapping[str, Format] = {
    "nccl": Format(_rows, _text_of_rows("", " ", "\n", ""), _matrix, _placed_bytes),
    "csv": Format(_rows, _text_of_rows("", ",", "\n", ""), _matrix, _placed_bytes),
    "mixnet": Format(
        _rows,
        _text_of_rows("[[", ",", "],[", "]]"),
        _tokens_matrix,
        partial(_placed_bytes, bytes_per_token=TOKEN_BYTES),
    ),
    "npy": Format(_rows, _array, _matrix, _placed_bytes),
    "aicb": Format(_calls, _log, _step, lambda path: _crossing(read_step(path))),
    "simai": Format(_layers, _workload, _layered, lambda path: _crossing(read_step(path))),
    "htsim": Format(_connections, _cm, _chained, lambda path: _crossing(read_trace(path))),
    "megatron": Format(_micro_batches, _router_lines, _routed, _routed_by),
    "vllm": Format(_tokens, _experts_array, _chosen, _routed_by),
    "faults": Format(_faults, _events, _begun, _found_faults),
}


def meaning(rng: Random, folder: Path) -> tuple[str, Callable[[], object]]:
    """Read a trace whose meaning is mutated, and hold the job against its records."""
    name = rng.choice(list(FORMATS))
    records = mutated(rng, FORMATS[name].make(rng))
    return f"{name} {records}", lambda: check(FORMATS[name], records, folder / "meant")
