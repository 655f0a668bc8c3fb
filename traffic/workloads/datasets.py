"""Where a public data set lies on this machine; the project itself contains none.

A file is looked for in this order: what ``--trace`` names, ``$LIGHTRAIL_DATA``, ``data/`` of
the checkout, ``../shared/data/`` beside the checkout. Each of the last three holds a folder per
data set, named as in `ORIGINS`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from topologies.errors import TraceError
from traffic.readers.text import files_of

CHECKOUT = Path(__file__).resolve().parents[2]
ENVIRONMENT = "LIGHTRAIL_DATA"
"""The environment variable that names a directory of data sets."""
ORIGINS = {
    "aicb": "https://github.com/aliyun/aicb",
    "chakra": "https://github.com/mlcommons/chakra",
    "flame-moe": "https://huggingface.co/datasets/CMU-FLAME/FLAME-MoE-Traces",
    "htsim": "https://github.com/Broadcom/csg-htsim",
    "infinitehbd-trace": "https://github.com/stepfun-ai/InfiniteHBD-Trace",
}
"""The public repository of each data set, by its folder."""
NO_TRACE = "none"
"""A word for ``--trace``: nothing is replayed, though the data set is found."""
A100_LOG = "aicb/A100_example.csv"
"""A measured MoE training on 8 A100s: tp 2, ep 4, dp 4."""
GPT_STEP = "aicb/G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100.txt"
"""A training step of a GPT of 13 billion weights, tp 8, with compute times of A100s."""
FAULT_TRACE = "infinitehbd-trace/fault_trace.json"
"""Node faults of 400 servers of 8 GPUs over 348 days."""


def dataset_path(
    name: str,
    trace: Path | None = None,
    *,
    checkout: Path = CHECKOUT,
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """Return where a data set's file lies.

    Parameters
    ----------
    name
        Its folder and path, such as ``aicb/A100_example.csv``.
    trace
        The file or directory that the user named instead, if any.
    checkout
        The checkout that has ``data/`` in it and ``shared/`` beside it.
    environment
        The environment variables.

    Raises
    ------
    TraceError
        If the user's is neither, or the data set lies nowhere; it then says which public
        repository has it and where to put it.
    """
    if trace is not None:
        files_of(trace)
        return trace
    for place in _places(checkout, environment):
        if (place / name).is_file():
            return place / name
    folder = name.partition("/")[0]
    raise TraceError(
        f"the data set {name} is not on this machine",
        f"get it from {ORIGINS.get(folder, 'its publisher')} and put it at {checkout / 'data' / name}, "
        f"under ${ENVIRONMENT}, or name a file with --trace",
    )


def _places(checkout: Path, environment: Mapping[str, str]) -> list[Path]:
    told = environment.get(ENVIRONMENT, "")
    return [*([Path(told)] if told else []), checkout / "data", checkout.parent / "shared" / "data"]
