"""InfiniteHBD's rings of GPUs through OCS transceivers, emulated while nodes die (sections 4.2 and 5.2)."""

import _checkout  # first: runs this file under the checkout's Python

import math
from typing import Annotated, get_args

import typer

from controller.circuits.ring_faults import Mode
from scenarios._infinitehbd.dying_report import dying_findings
from scenarios._infinitehbd.dying_ring import Dying, dying_ring
from testbed.study.command import run
from testbed.study.options import listed, shares
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

Nodes = Annotated[int, typer.Option(help="Nodes of the K-hop ring.")]
Gpus = Annotated[int, typer.Option(help="R, GPUs and bundles of a node; each GPU is an endpoint.")]
Hops = Annotated[
    str, typer.Option(help="K, comma-separated: bundles that leave a node, and how far its links reach.")
]
Tp = Annotated[
    str,
    typer.Option(
        help="GPUs of the TP group whose ring is used, comma-separated sizes; the other nodes are spare."
    ),
]
Sizes = Annotated[str, typer.Option("--mb", help="Sizes of an AllReduce, comma-separated [MB].")]
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
Known = Annotated[float, typer.Option(help="How long after that everybody knows, at real scale [us].")]
Rate = Annotated[float, typer.Option(help="A GPU's rate, over its two half-bundles [Gbit/s].")]


def infinitehbd_ring(
    nodes: Nodes = 8,
    gpus: Gpus = 4,
    hops: Hops = "2",
    tp: Tp = "16",
    mb: Sizes = "1000",
    dying: DyingNodes = "2",
    after: Modes = "shrink",
    at: At = 40.0,
    known_us: Known = DETECT_S * 1e6,
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
    if not 0 < rate < math.inf:
        raise ScenarioError(f"a GPU's rate of {rate:g} Gbit/s", "give --rate above 0")
    if not 0 <= at < 100:
        raise ScenarioError(f"a node that dies at {at:g} %", "give --at from 0 to below 100")
    if not 0 <= known_us < math.inf:
        raise ScenarioError(f"a fault that is known {known_us:g} us later", "give --known-us of 0 or more")
    experiments = [
        dying_ring(
            KHopRing(nodes, gpus, bundles),
            tp_gpus,
            size_bytes,
            Dying(case, mode, at / 100, known_us / 1e6, STEADIES),
            gpu_bps=rate * 1e9,
        )
        for bundles in dict.fromkeys(_whole_numbers(hops, ","))
        for tp_gpus in dict.fromkeys(_whole_numbers(tp, ","))
        for mode in _modes(after)
        for size_bytes in _sizes(mb)
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


def _whole_numbers(text: str, between: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(between))
    except ValueError as error:
        raise ScenarioError(
            f"{text!r} is not a list of whole numbers", f"write it like 2{between}3"
        ) from error


def _cases(text: str) -> list[tuple[int, ...]]:
    """Return the nodes that die in each case."""
    return [_whole_numbers(case, "+") for case in dict.fromkeys(listed(text))]


def _sizes(text: str) -> list[int]:
    """Return the sizes of AllReduces [bytes]."""
    sizes_mb = shares(text)
    if not all(0 < size_mb < 1e9 for size_mb in sizes_mb):
        raise ScenarioError(f"an AllReduce of {text} MB", "give sizes above 0, and below 1e9")
    return [round(size_mb * 1e6) for size_mb in dict.fromkeys(sizes_mb)]


def _modes(text: str) -> list[Mode]:
    """Return what becomes of a group, each once."""
    known = {str(mode): mode for mode in get_args(Mode)}
    words = list(dict.fromkeys(listed(text)))
    if unknown := [word for word in words if word not in known]:
        raise ScenarioError(f"unknown mode {unknown[0]!r} of --after", f"take {' or '.join(known)}")
    return [known[word] for word in words]


if __name__ == "__main__":
    run(infinitehbd_ring)
