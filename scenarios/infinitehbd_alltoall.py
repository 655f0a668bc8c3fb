"""InfiniteHBD's all-to-all (section 7): binary exchange over circuits that change by rounds, and rings."""

import _checkout  # first: runs this file under the checkout's Python

from typing import Annotated

import typer

from scenarios._infinitehbd.all_to_all import all_to_alls
from scenarios._infinitehbd.all_to_all_report import all_to_all_findings
from scenarios._infinitehbd.options import NodeGpus
from testbed.study.command import run
from testbed.study.options import SizesMb, sizes_bytes, whole_numbers
from testbed.study.study import Study, no_claims
from topologies.errors import ScenarioError

MOST_BUNDLES = 8
"""K of nodes of 8 GPUs: a binary exchange between 256 nodes."""

Bundles = Annotated[
    str,
    typer.Option(help="K, comma-separated: bundles that leave a node, and 2^K nodes; at most --node-gpus."),
]
ByDistance = Annotated[
    bool,
    typer.Option(
        "--by-distance",
        help="Add nodes with a bundle per distance: all rounds are lit at once, and no ring of nodes can be.",
    ),
]


def infinitehbd_alltoall(
    bundles: Bundles = "2,3", node_gpus: NodeGpus = 4, mb: SizesMb = "40,80", by_distance: ByDistance = False
) -> Study:
    """All-to-all between nodes over OCS transceivers: binary exchange, and rings one way and both ways.

    Nodes are wired at distances 1, 2, 4, ... (InfiniteHBD, section 7 and appendix G). In each round of the
    binary exchange a node swaps half of all that it holds with another, and bundles light another
    path for the next round, 70 us later; a ring passes on what is for nodes farther along. Each is
    emulated beside its closed form. Expect the exchange to beat a ring that goes one way round, by more with
    more nodes, and a ring that uses both its bundles to beat the exchange up to 16 nodes: the paper does not
    say which of the two it means.
    """
    sizes = sizes_bytes(mb)
    if any(not size or size % 4 for size in sizes):
        raise ScenarioError(f"{mb} MB to each node", "give multiples of 4 bytes")
    points = [
        point
        for count in whole_numbers(bundles, "--bundles", 2, min(node_gpus, MOST_BUNDLES))
        for size in sizes
        for point in all_to_alls(count, size, node_gpus, by_distance=by_distance)
    ]
    return Study(
        "infinitehbd_alltoall",
        "InfiniteHBD: all-to-all between nodes",
        [point.experiment for point in points],
        no_claims,
        "nodes",
        findings=all_to_all_findings(points),
    )


if __name__ == "__main__":
    run(infinitehbd_alltoall)
