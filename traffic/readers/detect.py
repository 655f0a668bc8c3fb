"""A file of any known format as a job: the format is recognised by the content, never the name."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topologies.errors import LightrailError, ScenarioError, TraceError
from traffic.job import Job
from traffic.readers import flame, npy
from traffic.readers.aicb import aicb_phases, is_aicb, read_aicb
from traffic.readers.htsim import HEADERS, StartUnit, read_htsim
from traffic.readers.matrix import demand_of_array, is_csv, read_csv
from traffic.readers.megatron import EXPECTED, is_router_trace, read_megatron, router_files
from traffic.readers.mixnet import read_mixnet
from traffic.readers.nccl import read_nccl
from traffic.readers.routing import Hosting, dealt
from traffic.readers.simai import is_simai, simai_phases
from traffic.readers.text import MAX_GPUS, Taken, bad_line, file_name, first_bytes, is_number, text_of
from traffic.readers.vllm import vllm_rows
from traffic.steps import single
from traffic.training import Phases, job_of_phases
from traffic.workloads.synthetic import HIDDEN, NUMBER_BYTES

KNOWN = (
    "the start of an nccl-tests matrix, a CSV of numbers alone, MixNet's list of lists, htsim's .cm, AICB's"
    " CSV, a SimAI workload or a routing trace of Megatron, vLLM or FLAME-MoE"
)
OTHER_JSON = re.compile(r"\s*(\{|\[\s*(\{|\[\s*\[[^\[]))")
"""The start of JSON that is not read: an object, a list of objects, or a list of lists of lists."""
NOT_READ = (
    "Kineto's profiles and Chakra's traces are not read; of an answer of vLLM save routed_experts as .npy"
)
STEPS = "AICB's CSV or a SimAI workload"
OPTIONS = {
    "experts": "experts",
    "bytes_per_token": "token-bytes",
    "tokens_per_gpu": "tokens-per-gpu",
    "start_unit": "start-unit",
}
"""The command lines' options by key."""
TOKEN_BYTES = HIDDEN * NUMBER_BYTES
"""Size of a token, unless the caller gives one [bytes]."""


def read_trace(
    path: Path | str,
    *,
    gpus: int | None = None,
    experts: int | None = None,
    bytes_per_token: int | None = None,
    tokens_per_gpu: int | None = None,
    all_to_alls: int | None = None,
    start_unit: StartUnit | None = None,
) -> Job:
    """Return the job that a file describes.

    Parameters
    ----------
    path
        An nccl-tests matrix, a ``.csv`` or square ``.npy`` of bytes, MixNet's list of lists, htsim's
        connection matrix, AICB's CSV, a SimAI workload, or a routing trace: FLAME-MoE's parquet, vLLM's
        ``.npy`` of three dimensions, Megatron's JSON lines, which may be a directory of files, one per rank.
    gpus
        How many GPUs, where the format leaves it open: AICB without group sizes, SimAI, and routing traces;
        at most so many where ranks are named, as in Megatron's.
    experts
        How many routed experts the model has, of a routing trace; FLAME-MoE has 64.
    bytes_per_token
        Size of a token, where the format counts tokens: MixNet and routing traces; by default `TOKEN_BYTES`
        [bytes].
    tokens_per_gpu
        How many tokens each GPU has in an all-to-all, of a routing trace without ranks, FLAME-MoE's and
        vLLM's; by default all of the trace, spread evenly, in one.
    all_to_alls
        At most so many steps, the first ones; by default all. A SimAI workload is one step as a whole, and
        a graph of htsim's connections has none.
    start_unit
        The unit of starts of htsim's connection matrix, us or ps, which it does not say; needed where
        connections start at different times.

    Returns
    -------
    Job
        Between as many GPUs as the file says; `traffic.workloads.placement.placed` puts it on a fabric.

    Raises
    ------
    TraceError
        If the file cannot be read as any of the formats; it says what was expected where.
    ScenarioError
        If an argument is given that its format does not need.
    MachineError
        If it is parquet and pyarrow is not installed.
    """
    path = Path(path)
    if all_to_alls is not None and all_to_alls < 1:
        raise TraceError(f"{all_to_alls} all-to-alls of {path.name}", "take at least one")
    files, _ = router_files(path)
    start, is_router = first_bytes(files[0]), files != [path] or is_router_trace(path)
    array = npy.npy_array(path) if start.startswith(npy.MAGIC) else None
    rows = vllm_rows(path, array) if array is not None and array.ndim != 2 else None
    is_flame = start.startswith(flame.MAGIC)
    if is_router or start.startswith((npy.MAGIC, flame.MAGIC)):
        _check_no_connections(path, start_unit)
    if is_router or is_flame or rows:
        experts = flame.EXPERTS if experts is None and is_flame else experts
        if is_router:
            _check_needed(f"{path} has the tokens of each rank", tokens_per_gpu=tokens_per_gpu)
        hosting = _hosting(path, gpus, experts, bytes_per_token, tokens_per_gpu)
        if is_router:
            return read_megatron(path, hosting, all_to_alls=all_to_alls)
        note = f"{'FLAME-MoE' if is_flame else 'vLLM'} routing trace {file_name(path)}"
        return dealt(path, rows or flame.flame_rows(path), hosting, note=note, all_to_alls=all_to_alls)
    if array is None:
        job = _read_text(path, gpus, bytes_per_token, all_to_alls, start_unit)
    else:
        job = single(demand_of_array(path, array))
        _check_needed(f"{path} counts no tokens", bytes_per_token=bytes_per_token)
    _check_needed(f"{path} is no routing trace", experts=experts, tokens_per_gpu=tokens_per_gpu)
    return job


def gpus_of(path: Path, options: Mapping[str, Any]) -> int | None:
    """Return between how many GPUs a file is; None where its format leaves that open, or it cannot be read.

    Parameters
    ----------
    path, options
        As of `read_trace`, but for ``gpus``.
    """
    try:
        is_router = path.is_dir() or is_router_trace(path)
        return read_trace(path, gpus=MAX_GPUS if is_router else None, **options).gpus
    except LightrailError:  # whoever reads it in earnest gets the sentence
        return None


def _check_no_connections(path: Path, start_unit: StartUnit | None) -> None:
    _check_needed(f"{path} is no connection matrix of htsim", start_unit=start_unit)


def _check_needed(why: str, **given: int | str | None) -> None:
    """Raise ScenarioError if an argument is given that the format does not need."""
    if idle := [f"{key} (--{OPTIONS[key]})" for key, value in given.items() if value is not None]:
        raise ScenarioError(f"{why}, so {' and '.join(idle)} would have no effect", "leave it out")


def read_step(path: Path, *, gpus: int | None = None, alike: int | None = None, least_bytes: int = 0) -> Job:
    """Return a training step with all of its collectives, rings among them.

    Parameters
    ----------
    path
        AICB's CSV or a SimAI workload.
    gpus, alike, least_bytes
        As of `traffic.readers.text.Taken`; smaller collectives are left out.

    Raises
    ------
    TraceError
        If the file cannot be read as either.
    """
    read = read_phases(path, Taken(gpus, alike, least_bytes))
    return job_of_phases(read, least_bytes=least_bytes)


def read_phases(path: Path, wanted: Taken) -> Phases:
    """Return a training step as phases.

    Parameters
    ----------
    path
        AICB's CSV or a SimAI workload.
    wanted
        What is taken of it.

    Raises
    ------
    TraceError
        If the file cannot be read as either.
    """
    lines = [line for line in text_of(path).splitlines() if line.strip()]
    first = lines[0]
    if is_aicb(lines):
        return aicb_phases(path, wanted)
    if is_simai(first):
        return simai_phases(path, wanted)
    raise bad_line(path, 1, first, f"the start of {STEPS}")


def _hosting(
    path: Path,
    gpus: int | None,
    experts: int | None,
    bytes_per_token: int | None,
    tokens_per_gpu: int | None,
) -> Hosting:
    if gpus is None or experts is None:
        asked = [("experts", "experts (--experts, or the key of a study)")] * (experts is None) + [
            ("GPUs", "gpus")
        ] * (gpus is None)
        raise TraceError(
            f"{path} is a routing trace, which does not tell "
            + " and ".join(f"how many {what} there are" for what, _ in asked),
            f"give {' and '.join(key for _, key in asked)}",
        )
    return Hosting(gpus, experts, _or_usual(bytes_per_token), tokens_per_gpu)


def _or_usual(bytes_per_token: int | None) -> int:
    return TOKEN_BYTES if bytes_per_token is None else bytes_per_token


def _read_text(
    path: Path,
    gpus: int | None,
    bytes_per_token: int | None,
    all_to_alls: int | None,
    start_unit: StartUnit | None,
) -> Job:
    text = text_of(path)
    lines = [line for line in text.splitlines() if line.strip()]
    first, bare = lines[0], next((line for line in lines if not line.lstrip().startswith("#")), "")
    if OTHER_JSON.match(text):
        raise TraceError(bad_line(path, 1, first, f"{EXPECTED}, or {KNOWN}").sentence, NOT_READ)
    if not bare.startswith(HEADERS):
        _check_no_connections(path, start_unit)
    if first.lstrip().startswith("[") and not is_aicb(lines):
        return single(read_mixnet(path, bytes_per_token=_or_usual(bytes_per_token)))
    if is_aicb(lines):
        job = read_aicb(path, gpus=gpus, all_to_alls=all_to_alls)
    elif is_simai(first):
        job = job_of_phases(simai_phases(path, Taken(gpus)))
    elif bare.startswith(HEADERS):
        job = read_htsim(path, all_to_alls=all_to_alls, start_unit=start_unit)
    elif is_csv(bare):
        job = single(read_csv(path))
    elif bare and is_number(bare.split()[0]):
        job = single(read_nccl(path))
    else:
        raise bad_line(path, 1, first, KNOWN)
    _check_needed(f"{path} counts no tokens", bytes_per_token=bytes_per_token)
    return job
