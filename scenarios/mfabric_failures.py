"""What failures cost a training step on mFabric, emulated in mid-step and after it (sections 5.4 and 7.5)."""

import _checkout  # first: runs this file under the checkout's Python

from dataclasses import replace

from scenarios._mfabric.fabrics import GPUS, NICS, PACKET_NICS
from scenarios._mfabric.failures.points import FAILURES, STEP, Failing, failing, failure_of, steady
from scenarios._mfabric.step.training import GATEWAYS, checked_delay, over_circuits, training
from testbed.experiment.experiment import Experiment
from testbed.study.options import known_after_s, share_at
from testbed.study.study_options import run_file
from topologies.mfabric import mfabric_fabric, region_gpus
from traffic.compose import placed
from traffic.models.moe import model_named

MODEL, SERVERS = "mixtral-8x22b", 8
"""The model that is trained, on a region of so many servers; a rank is a server's GPUs."""
SERVER, GPU = 3, 3
"""The server in which something fails, which receives many tokens with the default seed, and its GPU that
fails, if one does: no ring of gradients passes it."""


def training_failures(
    failures: list[Failing],
    layers: int,
    micro_batches: int,
    at: float,
    known_us: float,
    delay_ms: float,
    rate_bps: float,
    seed: int,
) -> list[Experiment]:
    """Return a training step, then for each failure the step in which it comes and one after it.

    Parameters
    ----------
    failures
        What fails: packet-nic, packet-nics, circuit-nic, gpu, server.
    layers
        Layers of a model that are run.
    micro_batches
        Micro-batches of an iteration, per replica.
    at
        When it fails, as a share of the least time that the combine of the last layer takes [%].
    known_us
        How long after a failure everybody knows, at real scale [us].
    delay_ms
        Reconfiguration delay of the OCSes [ms].
    rate_bps
        Rate of a NIC, at real scale [bit/s].
    seed
        Of the gates, and of the circuits before the first all-to-all.
    """
    delay = checked_delay(delay_ms, rate_bps)
    known_s, hit_at = known_after_s(known_us, "--known-us"), share_at(at)
    fabric = mfabric_fabric(
        SERVERS,
        gpus=GPUS,
        nics=NICS,
        packet_nics=PACKET_NICS,
        backup_gpu=True,
        spare_servers=1,
        one_packet_switch=True,
        rate_bps=rate_bps,
    )
    trained = training(
        replace(model_named(MODEL), pp=1),
        layers,
        micro_batches=micro_batches,
        gateways=GATEWAYS,
        seed=seed,
        sums_apart=[SERVER * GPUS + GPU],
    )
    job = placed(trained.job, region_gpus(fabric, GPUS), of=fabric.gpus)
    on_all = replace(trained, step=replace(trained.step, job=job))
    healthy = over_circuits(fabric, on_all, "block", delay, STEP, seed=seed)
    points, node = [healthy], f"F0 0.0 l{layers - 1} combine"
    for name in failures:
        gone = failure_of(FAILURES[name], fabric, SERVER, gpus=GPUS, gpu=GPU)
        points += [failing(healthy, gone, node, hit_at, known_s), steady(healthy, gone)]
    return points


if __name__ == "__main__":
    run_file(__file__)
