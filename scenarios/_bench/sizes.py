"""Sizes that a machine carries: boots of hundreds of links, the memory of a run, and 128 servers at once."""

import resource
import statistics
import threading
import time
from pathlib import Path

from scenarios._bench.figure import figure
from scenarios._bench.mininet import SHAPED_BPS
from scenarios._bench.transports import scaled
from testbed.live.emulate import emulate
from testbed.model.predict import predict
from testbed.network.link_sample import worst_link_error
from testbed.network.network import Network
from testbed.trust.agreement import agreement_text
from testbed.trust.evidence import Watch
from testbed.trust.fidelity import verdict
from testbed.trust.outcome import Word, bound_s
from testbed.trust.trial import lent_real_bytes
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.metrics import communication_s
from traffic.workloads.synthetic import sparse

MIB = 1 << 20
LARGE_CCT_S = 8.0
VERDICT_VALUES: dict[Word, float] = {"faithful": 1.0, "strained": 0.5, "void": 0.0, "unsound": -1.0}


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
    """Return the memory of the processes of this PID namespace (proportional set size)."""
    total = 0
    for rollup in Path("/proc").glob("[0-9]*/smaps_rollup"):
        try:
            line = next(line for line in rollup.read_text().splitlines() if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
        total += int(line.split()[1]) << 10
    return total


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
