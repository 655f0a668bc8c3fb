"""K-hop rings and lines, drawn at random and small, and the links that their definition asks for."""

import networkx as nx
from hypothesis import strategies as st

from topologies.khop_ring import KHopRing


@st.composite
def khop_rings(draw: st.DrawFn, most_nodes: int = 24) -> KHopRing:
    """Return a small K-hop ring or line, with either kind of distances."""
    k = draw(st.integers(2, 4))
    closed, doubling = draw(st.booleans()), draw(st.booleans())
    farthest = 1 << k - 1 if doubling else k
    least = (2 * farthest if doubling else 2 * farthest + 1) if closed else farthest + 1
    return KHopRing(
        draw(st.integers(least, max(least, most_nodes))), draw(st.integers(k, 5)), k, closed, doubling
    )


def wired(ring: KHopRing) -> "nx.Graph[int]":
    """Return which nodes the definition joins."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(ring.nodes))
    spans = [2**i for i in range(ring.bundles)] if ring.doubling else range(1, ring.bundles + 1)
    for node in range(ring.nodes):
        for span in spans:
            if ring.closed or node + span < ring.nodes:
                graph.add_edge(node, (node + span) % ring.nodes)
    return graph
