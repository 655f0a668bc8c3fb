"""InfiniteHBD's rings of GPUs through OCS transceivers, emulated while nodes die (sections 4.2 and 5.2)."""

import _checkout  # first: runs this file under the checkout's Python

from typing import Annotated, get_args

import typer

from controller.circuits.ring_faults import Mode
from scenarios._infinitehbd.dying_report import dying_findings
from scenarios._infinitehbd.dying_ring import Dying, dying_ring
from scenarios._infinitehbd.options import NodeGpus, Nodes
from testbed.study.command import run
from testbed.study.options import (
    KnownAfter,
    SizesMb,
    chosen,
    known_after_s,
    listed,
    nic_bps,
    share_at,
    sizes_bytes,
    whole_numbers,
)
from testbed.study.study import Study, no_claims
from topologies.errors import ScenarioError
from topologies.khop_ring import KHopRing
from traffic.fault_text import DETECT_S

NIC_BPS = 20e6
"""What a half-bundle is shaped to at most [bit/s]. On 2 CPUs, with 96 links, AllReduces reached 0.97 of a
GPU's rate at 15, 20 and 25 Mbit/s, and 0.87 to 0.96 at 64, which the machine carries where links are few."""
RUN_S = 120.0
"""How long a point may take at emulated scale for each step of its rings to be of 80 packets [s], as one in
which two nodes die does: with 46 packets an AllReduce reached 0.961 of a GPU's rate, with 40 0.945, as two
packets of each step are lost to its latency."""

STEADIES = 3
"""AllReduces that nothing disturbs before and after a fault, of which the median counts: of one, a machine
that was busy for a second showed 0.926 of the ring before. Each takes 9 s at emulated scale."""

Hops = Annotated[
    str, typer.Option(help="K, comma-separated: bundles that leave a node, and how far its links reach.")
]
Tp = Annotated[
    str,
    typer.Option(
        help="GPUs of the TP group whose ring is used, comma-separated sizes; the other nodes are spare."
    ),
]
DyingNodes = Annotated[
    str,
    typer.Option(
        help="Nodes that die, one after the other, each in an AllReduce of its own: 2+0 is node 2, then node"
        " 0. Several cases stand between commas."
    ),
]
Modes = Annotated[
    str,
    typer.Option(
        "--after",
        help="What becomes of the TP group, comma-separated: shrink (its ring closes without the node) or"
        " replace (a spare node takes part).",
    ),
]
At = Annotated[float, typer.Option(help="When a node dies, as a share of an undisturbed AllReduce [%].")]
Rate = Annotated[float, typer.Option(help="A GPU's rate, over its two half-bundles [Gbit/s].")]


def infinitehbd_ring(
    nodes: Nodes = 8,
    node_gpus: NodeGpus = 4,
    hops: Hops = "2",
    tp: Tp = "16",
    mb: SizesMb = "1000",
    dying: DyingNodes = "2",
    after: Modes = "shrink",
    at: At = 40.0,
    known_us: KnownAfter = DETECT_S * 1e6,
    rate: Rate = 6400.0,
) -> Study:
    """A ring AllReduce over OCS transceivers, both ways round, while nodes of its TP group die.

    Every bundle of transceivers is an OCS that permits three permutations: two paths out of the node,
    and the loopback (InfiniteHBD, sections 4.1 and 4.2). GPUs form one ring through loopbacks, bundles
    and links. In the middle of an AllReduce a node dies; once that is known the two neighbours' bundles
    light another path, the AllReduce is begun again on the ring that is left, and ends there whole.
    Expect 0.95 of a GPU's rate and more, before and after alike and in rings of 32 GPUs as in those of 16
    (--tp 16,32), and light 70 us after a fault is known.

    With --cli 'fail' lists what can fail and 'fail node 2' has it fail: what is foreseen is lit,
    and 'circuits' shows it.
    """
    gpu_bps, dies_at, known_s = nic_bps(rate), share_at(at), known_after_s(known_us, "--known-us")
    experiments = [
        dying_ring(
            KHopRing(nodes, node_gpus, bundles),
            tp_gpus,
            size_bytes,
            Dying(case, mode, dies_at, known_s, STEADIES),
            gpu_bps=gpu_bps,
        )
        for bundles in whole_numbers(hops, "--hops")
        for tp_gpus in whole_numbers(tp, "--tp")
        for mode in chosen(after, get_args(Mode), "--after")
        for size_bytes in sizes_bytes(mb, most_mb=1e9)
        for case in _cases(dying)
    ]
    return Study(
        "infinitehbd_ring",
        "InfiniteHBD: ring AllReduce while nodes die",
        experiments,
        no_claims,
        "nodes",
        findings=dying_findings,
        rings_s=RUN_S,
        most_nic_bps=NIC_BPS,
    )


def _cases(text: str) -> list[tuple[int, ...]]:
    """Return the nodes that die in each case."""
    try:
        return [tuple(int(node) for node in case.split("+")) for case in listed(text)]
    except ValueError as error:
        raise ScenarioError(f"--dying {text} names no nodes", "write it like 2+0,3") from error


if __name__ == "__main__":
    run(infinitehbd_ring)
