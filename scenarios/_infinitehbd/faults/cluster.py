"""The cluster of InfiniteHBD's fault study: servers, nodes, TP sizes, and which architectures it can form.

The trace is of servers; InfiniteHBD's nodes are whole servers, or halves of them. Sizes are whole GPUs and
whole per cents throughout: a share times a count in floating point can be one group short.
"""

from dataclasses import dataclass

import numpy as np

from controller.schedulers.infinitehbd_waste import ARCHITECTURES
from topologies.errors import FabricError, ScenarioError

PAPERS_TP = (8, 16, 32, 64)
"""The paper's TP sizes [GPUs]."""
MAIN_TP = 32
"""The TP size whose numbers the paper prints [GPUs]."""
LEAST_NODES, LEAST_NODE_GPUS = 9, 4
"""A ring with K = 4 has 2K + 1 nodes or more, and a node has a GPU for each of its K bundles."""
MOST_NODES, MOST_NODE_GPUS, MOST_TP_SIZES = 4096, 1024, 8
"""The fault model's states of 4,096 nodes take 250 MB."""


@dataclass(frozen=True)
class TracedCluster:
    """Servers that are taken from a trace, how they are cut into nodes, and which TP sizes are asked for.

    Raises
    ------
    ScenarioError
        If sizes do not divide each other, or InfiniteHBD's ring cannot be made of the nodes.
    """

    servers: int = 360
    """How many servers of the trace there are."""
    server_gpus: int = 8
    """GPUs of a server."""
    node_gpus: int = 4
    """R, GPUs of a node: those of a server, or half of them."""
    tp_gpus: tuple[int, ...] = PAPERS_TP
    """TP sizes [GPUs], in rising order."""

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit each other."""
        self._check_nodes()
        if not 1 <= len(self.tp_gpus) <= MOST_TP_SIZES:
            raise ScenarioError(f"{len(self.tp_gpus)} TP sizes", f"give 1 to {MOST_TP_SIZES}")
        for size in self.tp_gpus:
            if size < 1 or size % self.node_gpus:
                raise ScenarioError(
                    f"TP-{size} on nodes of {self.node_gpus} GPUs", "take multiples of a node's GPUs"
                )
            if size > self.gpus:
                raise ScenarioError(
                    f"TP-{size} in a cluster of {self.gpus} GPUs", "take smaller groups, or more servers"
                )

    def _check_nodes(self) -> None:
        if not LEAST_NODE_GPUS <= self.node_gpus <= MOST_NODE_GPUS or self.server_gpus not in (
            self.node_gpus,
            2 * self.node_gpus,
        ):
            raise ScenarioError(
                f"nodes of {self.node_gpus} GPUs in servers of {self.server_gpus}",
                f"let a node be a server or half of one, with {LEAST_NODE_GPUS} to {MOST_NODE_GPUS} GPUs",
            )
        if not LEAST_NODES <= self.nodes <= MOST_NODES:
            raise ScenarioError(
                f"{self.servers} servers of {self.server_gpus} GPUs, {self.nodes} nodes of {self.node_gpus}",
                f"take servers for {LEAST_NODES} to {MOST_NODES:,} nodes",
            )

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return self.servers * self.server_gpus

    @property
    def nodes(self) -> int:
        """n, how many nodes there are."""
        return self.gpus // self.node_gpus

    @property
    def halved(self) -> bool:
        """Whether a node is half a server: then readings of the trace say which halves fail."""
        return self.node_gpus != self.server_gpus

    @property
    def main_tp(self) -> int:
        """The TP size of tables that have one: the paper's, else the largest."""
        return MAIN_TP if MAIN_TP in self.tp_gpus else self.tp_gpus[-1]

    @property
    def is_the_papers(self) -> bool:
        """True if it is the paper's, of which its numbers are; the TP sizes may be fewer, or others."""
        paper = TracedCluster()
        return (self.servers, self.server_gpus, self.node_gpus) == (
            paper.servers, paper.server_gpus, paper.node_gpus,
        )  # fmt: skip

    def job_gpus(self, percent: int, tp_gpus: int) -> int:
        """Return the GPUs of the whole TP groups that fit into so many per cent of all GPUs."""
        return percent * self.gpus // (100 * tp_gpus) * tp_gpus

    def faulty_nodes(self, percent: int) -> int:
        """Return how many nodes so many per cent are, a half rounded up."""
        return (2 * percent * self.nodes + 100) // 200

    def made(self, tp_gpus: int) -> tuple[str, ...]:
        """Return the architectures that can be made of the cluster for a TP size."""
        return tuple(name for name in ARCHITECTURES if not self.why_not(name, tp_gpus))

    def why_not(self, name: str, tp_gpus: int) -> str:
        """Return why an architecture cannot be made of the cluster for a TP size; nothing if it can."""
        try:
            self._left(name, tp_gpus)
        except FabricError as error:
            return error.sentence
        return ""

    def holding(self, tp_gpus: int) -> tuple[str, ...]:
        """Return the architectures of which a group can be made while no node is faulty."""
        return tuple(name for name in self.made(tp_gpus) if self._left(name, tp_gpus) < self.gpus)

    def _left(self, name: str, tp_gpus: int) -> int:
        """Return the GPUs that an architecture leaves idle without a fault."""
        return int(ARCHITECTURES[name](np.zeros(self.nodes, dtype=np.bool_), self.node_gpus, tp_gpus))
