"""What lightrail promises, measured on this machine: a JSON line per figure, each with its bar."""

import _checkout  # first: runs this file under the checkout's Python

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from scenarios._bench_mininet import SHAPED_BPS
from scenarios._bench_transports import scaled
from scenarios._figure import FIGURES, Figure, figure, measured
from testbed.live.emulate import emulate
from testbed.machine.commands import output_of
from testbed.machine.datapath import default_datapath
from testbed.machine.residue import MARKER, left_behind, things
from testbed.model.predict import predict
from testbed.network.link_sample import worst_link_error
from testbed.network.network import Network
from testbed.study.command import main
from testbed.study.output import standard_output
from testbed.study.worker import EmulationWorker
from testbed.trust.agreement import agreement_text
from testbed.trust.evidence import Watch
from testbed.trust.fidelity import verdict
from testbed.trust.kept import machine_name
from testbed.trust.outcome import Word, bound_s
from testbed.trust.trial import lent_real_bytes
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.metrics import communication_s
from traffic.workloads.synthetic import sparse

MIB = 1 << 20
SCENARIOS = Path(__file__).parent
LARGE_CCT_S = 8.0
KILLS = 20
VERDICT_VALUES: dict[Word, float] = {"faithful": 1.0, "strained": 0.5, "void": 0.0, "unsound": -1.0}


def bench(
    figures: Annotated[
        list[str] | None,
        typer.Argument(help="Names of figures, by default all; a wrong one is answered with the right ones."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Measure what lightrail promises on this machine: a JSON line per figure, each with its bar.

    Ratios are taken side by side in one run. Run it on an idle machine; as an ordinary user too, and where
    the kernel has a datapath also with LIGHTRAIL_DATAPATH=kernel.
    """
    for name in figures or list(FIGURES):
        if name not in FIGURES:
            raise ScenarioError(f"there is no figure {name!r}", f"choose among: {', '.join(FIGURES)}")
    for name in figures or list(FIGURES):
        figure = FIGURES[name]
        if figure.sandbox:
            with EmulationWorker() as worker:
                ((value, detail),) = worker.call(measured, name)
        else:
            value, detail = figure.measure()
        _print(name, figure, value, detail)


def _print(name: str, figure: Figure, value: float, detail: str) -> None:
    user = "root" if os.geteuid() == 0 else "ordinary user"
    line = {
        "figure": name,
        "value": value,
        "unit": figure.unit,
        "bar": figure.bar,
        "machine": machine_name(default_datapath()),
    }
    with standard_output("give one that can be"):
        print(json.dumps({**line, "detail": f"{detail}; {user}"}), flush=True)


@figure("ratio", "0.90 .. 1.15", sandbox=False)
def emulated_over_predicted_worst() -> tuple[float, str]:
    """All default points of rails_sparse: the emulated CCT over the predicted that is farthest from 1."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(SCENARIOS / "rails_sparse.py"), "--out", f"{folder}/out"]
        output_of(command)
        table = pd.read_csv(f"{folder}/out/summary.csv")
    ratio = (table["cct_s"] / table["predicted_s"]).to_numpy()
    worst = float(ratio[abs(ratio - 1).argmax()])
    words = table["verdict"].value_counts().to_dict()
    return worst, f"{len(ratio)} points, {ratio.min():.3f} to {ratio.max():.3f}, {words}"


@figure("s", "< 2")
def boot_s() -> tuple[float, str]:
    """Boot of 32 servers x 8 rails until the controller says ready, median of 3."""
    fabric = rail_fabric(32, 8, 0)
    times_s = [_boot_s(fabric) for _ in range(3)]
    spined_s = _boot_s(rail_fabric(32, 8))
    return statistics.median(times_s), f"256 NICs; with 32 spines, 512 links: {spined_s:.2f} s"


def _boot_s(fabric: Fabric) -> float:
    started = time.monotonic()
    with Network(fabric, SHAPED_BPS / fabric.nic_rate_bps(fabric.nics[0])):
        return time.monotonic() - started


@figure("bytes", f"< {3 * MIB << 9}")
def peak_memory_bytes() -> tuple[float, str]:
    """The most that all processes of a 32 x 8 run hold together, pages shared between them counted once."""
    experiment = scaled(sparse(256, 0.4, gating="gpu"), "ideal", rail_fabric(32, 8))
    peak, done = 0, threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(0.2):
            peak = max(peak, _memory_bytes())

    watcher = threading.Thread(target=look)
    watcher.start()
    with Network(experiment.fabric, experiment.dilation.rate) as network:
        emulation = emulate(experiment, network)
    done.set()
    watcher.join()
    return float(peak), f"{peak / MIB:.0f} MiB, {len(emulation.paths)} queue pairs"


def _memory_bytes() -> int:
    """Return what the processes of this PID namespace hold (proportional set size)."""
    total = 0
    for rollup in Path("/proc").glob("[0-9]*/smaps_rollup"):
        try:
            line = next(line for line in rollup.read_text().splitlines() if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
        total += int(line.split()[1]) << 10
    return total


@figure("things", "0", sandbox=False)
def kill_residue() -> tuple[float, str]:
    """A scenario's launcher killed by SIGKILL at 20 random moments: interfaces, mounts, processes left."""
    before, draw, left = things(), random.Random(0), []
    for number in range(KILLS):
        mark = f"bench-{os.getpid()}-{number}"
        with tempfile.TemporaryDirectory() as folder:
            launcher = subprocess.Popen(
                [sys.executable, str(SCENARIOS / "rails_sparse.py"), "--seeds", "1", "--out", folder],
                env=os.environ | {MARKER: mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(draw.uniform(0.1, 6.0))
            launcher.kill()
            launcher.wait()
            left += left_behind(before, mark)
    return float(
        len(left)
    ), f"{KILLS} kills, 0.1 to 6 s after the start; {', '.join(left[:5]) or 'nothing left'}"


@figure("verdict", "1: faithful; 0.5 is strained, 0 is void, -1 unsound")
def servers128_verdict(transport: str = "ideal") -> tuple[float, str]:
    """128 servers x 8 rails boot, answer ready and move one sparse all-to-all: its verdict."""
    started = time.monotonic()
    demand = sparse(1024, 0.4, top_k=1, gating="gpu")
    experiment = scaled(demand, transport, rail_fabric(128, 8, 8), lasts_s=LARGE_CCT_S)
    booting = time.monotonic()
    with Network(experiment.fabric, experiment.dilation.rate) as network:
        booted_s = time.monotonic() - booting
        sampled = worst_link_error(network, experiment.seed)
        with Watch(network) as watch:
            emulation = emulate(experiment, network, stuck_s=60.0)
        measures, lent_bytes = watch.measures(emulation, sampled), lent_real_bytes(experiment, network)
    bound = bound_s(experiment, lent_bytes)
    measured, predicted = (
        communication_s(emulation.run.tables),
        communication_s(predict(experiment, emulation.paths, lent_bytes=lent_bytes).tables),
    )
    judged = verdict(measures, measured_s=measured, bound_s=bound, unmet=watch.unmet)
    detail = (
        f"boot {booted_s:.1f} s, {len(emulation.paths)} queue pairs, CCT / bound {measured / bound:.2f}, "
        f"CCT / predicted {agreement_text(measured / predicted)}, "
        f"{time.monotonic() - started:.0f} s in all, {_own_memory_bytes() / MIB:.0f} MiB in this process"
    )
    return VERDICT_VALUES[judged.word], "; ".join([judged.word, *judged.reasons, detail])


@figure("verdict", "1: faithful; 0.5 is strained, 0 is void, -1 unsound")
def servers128_credit_verdict() -> tuple[float, str]:
    """The same over datagrams that receivers grant: its verdict."""
    return servers128_verdict("credit")


def _own_memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


for file in (*sorted(SCENARIOS.glob("_bench_*.py")), *sorted(SCENARIOS.glob("_*/bench.py"))):
    import_module(".".join(file.relative_to(SCENARIOS.parent).with_suffix("").parts))

if __name__ == "__main__":
    main(bench)
