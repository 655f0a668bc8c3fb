"""Commands whose options are mutated: scenarios that say what they would do, or predict, and boot nothing.

Left out are those that cannot but count or boot for long when their options are sound: `mfabric_scale`,
`infinitehbd_faults`, `infinitehbd_orchestration`, `ocs_explore`, `bench`.
"""

import os
import re
import resource
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path
from random import Random
from threading import Timer

from tests.calibrated import calibrated
from tests.fuzz.mutations import options_mutated
from tests.scenarios.command import ran

MOST_S = 10.0
"""CPU time of a command [s]."""
HANGS_S = 60.0
"""After how long a command is killed, whatever it does [s]."""
SMALL = ["--servers", "2", "--rails", "2", "--schemes", "ecmp", "--seeds", "1"]
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "rails_uniform": (SMALL, ["--spines", "--rate", "--fabric"]),
    "rails_sparse": (
        [*SMALL, "--sparsity", "0.5"],
        [
            "--trace",
            "--experts",
            "--token-bytes",
            "--tokens-per-gpu",
            "--all-to-alls",
            "--start-unit",
            "--rate",
        ],
    ),
    "rails_sender_skew": ([*SMALL, "--exponent", "1.2"], ["--spines", "--rate"]),
    "rails_mixtral": ([*SMALL, "--placements", "sparse"], ["--phases"]),
    "job": (
        ["--job", "job.json", "--servers", "2", "--rails", "2"],
        ["--jitter", "--seeds", "--schemes", "--fabric"],
    ),
    "ring_trace": (
        ["--servers", "2", "--rails", "2", "--layers", "1", "--trace", "none", "--tp", "2"],
        ["--least-mb", "--seeds", "--rings", "--fabric-kind", "--rate"],
    ),
    "infinitehbd_ring": (
        ["--nodes", "5", "--node-gpus", "2", "--tp", "6", "--dying", "1", "--hops", "2", "--mb", "1"],
        ["--after", "--at", "--known-us", "--rate"],
    ),
    "infinitehbd_alltoall": (["--bundles", "2", "--node-gpus", "2", "--mb", "4"], ["--volume"]),
    "infinitehbd_dcn": (
        [
            "--nodes",
            "8",
            "--tor-nodes",
            "2",
            "--domain-nodes",
            "8",
            "--node-gpus",
            "2",
            "--tp",
            "2",
            "--faulty",
            "1",
        ],
        ["--hops", "--job-percent", "--oversubscription", "--seed"],
    ),
    "mfabric_prototype": (
        ["--models", "qwen-moe", "--layers", "1", "--micro-batches", "1"],
        ["--sparsity", "--delay-ms", "--rate", "--seed"],
    ),
    "ocs_spectra": (
        ["--servers", "4", "--ocses", "2", "--schedulers", "less", "--line-ms", "100", "--delay-ms", "1"],
        ["--workload", "--meetings", "--device", "--rest", "--slot-ms", "--seeds"],
    ),
}
"""By scenario, options with their values, and others that it has."""
COMMON = [
    "--volume", "--mtu", "--buffer", "--emulated-rate", "--fail", "--detect-us", "--transport",
    "--initial-window", "--least-rto-ms", "--entropies", "--marks", "--out", "--datapath", "--link-delay-us",
    "--loss",
]  # fmt: skip
JOB = """{"format": "lightrail job 1", "name": "step", "gpus": 4,
          "nodes": [{"kind": "all_to_all", "name": "a", "uniform_bytes": 4000000}]}"""


def command(rng: Random, folder: Path) -> tuple[str, Callable[[], None]]:
    """Run a scenario dry, or predict it."""
    name = rng.choice(list(COMMANDS))
    words, others = COMMANDS[name]
    how = "--dry-run" if rng.random() < 0.8 else "--model-only"
    given = [how, *options_mutated(rng, words, [*others, *COMMON])]
    return f"{name} {given}", lambda: _run(folder, name, given)


def _run(folder: Path, name: str, words: list[str]) -> None:
    env = {**os.environ, **calibrated(folder / "cache")}
    (folder / "job.json").write_text(JOB)
    before_s = _children_s()
    end = Timer(HANGS_S, _kill_children)
    end.start()
    try:
        done = ran(name, *words, cwd=folder, env=env)
    finally:
        end.cancel()
    took_s = _children_s() - before_s
    # What is taken instead, how old measurements are, and how to go on.
    beside = re.compile("going on with| ago|what was finished is in|--resume ")
    said = [line for line in done.stderr.splitlines() if line and not beside.search(line)]
    # Typer's own errors come in a box, under the usage.
    in_a_sentence = len(said) == 1 or done.stderr.startswith("Usage: ")
    assert took_s < MOST_S, f"{took_s:.0f} s"
    assert done.returncode == 0 or (done.returncode == 2 and in_a_sentence), (
        done.returncode,
        done.stderr[-1500:],
    )


def _kill_children() -> None:
    for child in active_children():
        child.kill()


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
