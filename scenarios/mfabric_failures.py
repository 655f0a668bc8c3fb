"""What failures cost a training step on mFabric, emulated in mid-step and after it (sections 5.4 and 7.5)."""

import _checkout  # first: runs this file under the checkout's Python

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from scenarios._mfabric.fabrics import GPUS, NICS, PACKET_NICS
from scenarios._mfabric.failure_points import FAILURES, STEP, failure_of, failure_points
from scenarios._mfabric.failure_report import failure_findings
from scenarios._mfabric.options import RUN_S, Layers, MicroBatches, Seed
from scenarios._mfabric.training_points import GATEWAYS, checked_delay, over_circuits, training
from testbed.study.command import run
from testbed.study.options import DelayMs, KnownAfter, NicRate, chosen, known_after_s, share_at
from testbed.study.study import Study, no_claims
from topologies.mfabric import mfabric_fabric, region_gpus
from traffic.compose import placed
from traffic.models.moe import model_named

MODEL, SERVERS = "mixtral-8x22b", 8
"""What is trained, on a region of so many servers; a rank is a server's GPUs."""
SERVER, GPU = 3, 3
"""The server in which something fails, which receives many tokens with the default seed, and its GPU that
fails, if one does: no ring of gradients passes it."""
NIC_BPS = 8e6
"""What a NIC is shaped to at most [bit/s], as in `scenarios/mfabric_training.py`."""
ALL = ",".join(FAILURES)

Failing = Annotated[str, typer.Option("--failures", help=f"What fails, comma-separated: {ALL}.")]
At = Annotated[
    float,
    typer.Option(
        help="When it fails, as a share of the least time that the combine of the last layer takes [%]."
    ),
]


def mfabric_failures(
    failures: Failing = ALL,
    layers: Layers = 1,
    micro_batches: MicroBatches = 1,
    at: At = 50.0,
    known_us: KnownAfter = 10_000.0,
    delay_ms: DelayMs = 25.0,
    rate: NicRate = 100.0,
    seed: Seed = 0,
) -> Study:
    """Training steps of Mixtral 8x22B on 8 servers in which a NIC, a GPU or a server is lost.

    Each failure comes in the middle of an all-to-all, and is known a little later: what it cut goes another
    path, or begins again with what takes its place. Packet NICs stand in for each other, and circuits for
    them; a GPU's place is taken by the backup GPU of the next server, so that its rank's tensor-parallel
    sums cross the network; a server's by a spare one that has packet NICs only. A second point has it gone
    from the start: what it adds to each iteration from then on.

    Expect every byte to arrive, NICs to add little, and the GPU most: the sums of 8x22B are as large as its
    all-to-alls, and a few layers without a pipeline hide nothing. In the paper, at 1,024 GPUs, a GPU adds
    5.1 % (see mfabric_scale).
    """
    delay = checked_delay(delay_ms, rate)
    known_s, hit_at = known_after_s(known_us, "--known-us"), share_at(at)
    names = chosen(failures, FAILURES, "--failures")
    fabric = mfabric_fabric(
        SERVERS,
        gpus=GPUS,
        nics=NICS,
        packet_nics=PACKET_NICS,
        backup_gpu=True,
        spare_servers=1,
        one_packet_switch=True,
        rate_bps=rate * 1e9,
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
    gone = [failure_of(FAILURES[name], fabric, SERVER, gpus=GPUS, gpu=GPU) for name in names]
    node = f"F0 0.0 l{layers - 1} combine"
    return Study(
        "mfabric_failures",
        "mFabric: failures in a training step on 8 servers",
        failure_points(healthy, gone, node, hit_at, known_s),
        no_claims,
        findings=partial(failure_findings, node=node),
        rings_s=RUN_S,
        most_nic_bps=NIC_BPS,
    )


if __name__ == "__main__":
    run(mfabric_failures, "credit")  # by one transport the run takes less than five minutes
