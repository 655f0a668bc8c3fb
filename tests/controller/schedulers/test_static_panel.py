"""A static patch panel: links first, then Algorithm 1, within the NICs, and every pair has a route."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.schedulers.mfabric import Variant, circuit_counts, circuit_order
from controller.schedulers.static_panel import static_panel
from tests.examples import examples
from topologies.errors import DemandError, ScenarioError
from topologies.fabric import Nic
from topologies.mfabric import mfabric_fabric
from topologies.patch_panel import patch_panel_fabric
from topologies.routes import Routes

MESH = np.ones((4, 4))


def ring(servers: int) -> list[tuple[int, int]]:
    return [(server, (server + 1) % servers) for server in range(servers)]


@settings(max_examples=examples(8, 25), deadline=None)
@given(st.integers(2, 8), st.integers(2, 5), st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_nics_are_enough_links_are_lit_and_every_pair_has_a_route(
    servers: int, nics: int, kept_back: int, seed: int
) -> None:
    nics += kept_back
    fabric = patch_panel_fabric(servers, nics=nics)
    demand = np.random.default_rng(seed).integers(0, 5, (servers, servers))
    panel = static_panel(fabric, demand, ring(servers), kept_back=kept_back)
    counts = np.zeros((servers, servers), dtype=int)
    for a, b in panel.circuits.pairs:
        counts[a // nics, b // nics] += 1
    assert (counts == panel.linked + panel.demanded).all()
    assert (panel.linked_nics + panel.demanded_nics + panel.left == nics - kept_back).all()
    assert panel.left.min() >= 0
    open_ends = np.flatnonzero(panel.left)
    assert not np.triu(demand + demand.T, 1)[np.ix_(open_ends, open_ends)].any()
    assert all(panel.linked[pair] == 1 for pair in ring(servers))
    assert panel.linked.sum() == 2 * len({frozenset(pair) for pair in ring(servers)})
    routes = Routes(fabric, {panel.ocs: panel.circuits.pairs})
    for a, b in combinations(range(servers), 2):
        ends = product(range(nics), range(nics))
        assert any(routes.sending(Nic(a, m), Nic(b, n)) for m, n in ends)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(0, 12),
    st.sampled_from(["paper", "artifact"]),
)
def test_algorithm_1_goes_on_from_circuits_that_exist(seed: int, alpha: int, first: int, rule: str) -> None:
    demand, variant = np.random.default_rng(seed).integers(0, 9, (6, 6)), Variant(rule=rule)  # type: ignore[arg-type]
    whole = circuit_order(demand, alpha, variant=variant)
    there = circuit_counts(whole[:first], 6)
    left = alpha - there.sum(axis=0)
    assert circuit_order(demand, left.tolist(), variant=variant, there=there) == whole[first:]


def test_a_link_is_its_pair_s_first_circuit() -> None:
    """Servers 0, 1 and 2, 3 are joined, so the four pairs without a circuit come first."""
    panel = static_panel(patch_panel_fabric(4, nics=4), MESH, [(0, 1), (2, 3)])
    assert panel.demanded.tolist() == [[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]
    assert str(panel) == "NICs of a server: 1 on rings and pipelines, 3 by Algorithm 1, 0 dark"


def test_more_links_than_nics_are_refused() -> None:
    with pytest.raises(DemandError, match=r"server 0 to 2 others, and 1 of its 2 NICs are kept back"):
        static_panel(patch_panel_fabric(4, nics=2), MESH, ring(4), kept_back=1)


def test_servers_in_parts_are_refused() -> None:
    with pytest.raises(ScenarioError, match="2 parts: none joins 0 to 2"):
        static_panel(patch_panel_fabric(4, nics=4), np.kron(np.eye(2), np.ones((2, 2))), [(0, 1)])


def test_a_demand_of_other_servers_is_refused() -> None:
    with pytest.raises(DemandError, match="between 4 servers on a panel of 3"):
        static_panel(patch_panel_fabric(3), MESH, ring(3))


def test_packet_switches_are_refused() -> None:
    with pytest.raises(ScenarioError, match="is not a patch panel"):
        static_panel(mfabric_fabric(4), MESH, ring(4))
