"""The circuits of a plan as the search for strategies sees them: routes of its coin change, and its rings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.schedulers.coin_change import coin_change
from controller.schedulers.topoopt import Group, topology_finder
from scenarios._topoopt.scale.search import plan_network
from traffic.strategies.network import RoutedNetwork
from traffic.strategies.strategy import Share, replicas

RATE_BPS = 1e9


def ring_plan_network(servers: int = 12, degree: int = 4) -> RoutedNetwork:
    """Return the network of a plan for one AllReduce over all servers."""
    everybody = [Group(tuple(range(servers)), 1_000_000)]
    transfers = np.zeros((servers, servers), dtype=np.int64)
    return plan_network(topology_finder(everybody, transfers, servers=servers, degree=degree), RATE_BPS)


@pytest.mark.parametrize(("servers", "degree"), [(12, 4), (16, 4), (16, 8), (9, 4)])
def test_a_plan_has_the_routes_of_its_coin_change(servers: int, degree: int) -> None:
    network = ring_plan_network(servers, degree)
    source, destination = np.nonzero(~np.eye(servers, dtype=bool))
    carried = network.loads_s(source, destination, np.ones(len(source))) * RATE_BPS / 8
    steps = sorted({ring[1] for ring in network.rings_of(tuple(range(servers)))})
    loads = coin_change(servers, tuple(steps)).loads
    assert carried.reshape(servers, -1).tolist() == servers * [[loads[coin] for coin in steps]]


def test_rings_of_a_plan_load_all_links_alike() -> None:
    loads_s = ring_plan_network().ring_loads_s(tuple(range(12)))
    assert loads_s == pytest.approx(np.full(48, 2 * 11 / 12 / 4 * 8 / RATE_BPS))


@given(share=st.sampled_from([Share(2, 1), Share(3, 2), Share(4, 0), Share(6, 1)]))
def test_a_group_without_circuits_has_rings_over_those_of_others(share: Share) -> None:
    members = replicas(share, 12)
    network = ring_plan_network()
    rings = network.rings_of(members)
    assert all(sorted(ring) == list(members) for ring in rings)
    sent = (network.ring_loads_s(members) * network.rates_bps / 8).sum()
    assert sent >= 2 * (len(members) - 1) * 0.999
