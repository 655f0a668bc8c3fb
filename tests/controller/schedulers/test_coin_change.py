"""Coin change against networkx and the spec's tables, and next hops walked circuit by circuit."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise, product
from math import gcd
from typing import get_args

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from controller.schedulers.coin_change import (
    Changes,
    CoinChange,
    KShortest,
    Ties,
    bandwidth_tax,
    coin_change,
    hops_between,
)
from controller.schedulers.topoopt import Group, Plan, panel_circuits, topology_finder
from controller.schedulers.totient import Rule
from tests.controller.schedulers.lit_panels import Panel, regular, twice
from topologies.errors import ScenarioError
from topologies.fabric import Port
from topologies.own_routing import CheckedRouting
from topologies.patch_panel import patch_panel_fabric

CHANGES = {
    (12, (1, 5, 7, 11)): "1:1 2:1+1 3:1+1+1 4:5+11 5:5 6:1+5 7:7 8:1+7 9:1+1+7 10:5+5 11:11",
    (12, (1, 5)): "1:1 2:1+1 3:1+1+1 4:1+1+1+1 5:5 6:1+5 7:1+1+5 8:1+1+1+5 9:1+1+1+1+5 10:5+5 11:1+5+5",
    (16, (1, 3, 7)): (
        "1:1 2:1+1 3:3 4:1+3 5:1+1+3 6:3+3 7:7 8:1+7 9:1+1+7 10:3+7 11:1+3+7 12:1+1+3+7 13:3+3+7 14:7+7"
        " 15:1+7+7"
    ),
    (16, (1, 3, 13, 15)): (
        "1:1 2:1+1 3:3 4:1+3 5:1+1+3 6:3+3 7:1+3+3 8:1+1+3+3 9:3+3+3 10:13+13 11:1+13+13 12:13+15 13:13"
        " 14:1+13 15:15"
    ),
}
"""How the specification has offsets changed, by servers and coins: ties go to the smallest coin."""
DUPLEX = """
     12: 1              3.27/6      12: 1,5           1.82/3
     16: 1              4.27/8      16: 1,3           2.13/4      16: 1,3,5,7     1.47/2
     24: 1              6.26/12     24: 1,5           2.43/4      24: 1,5,7,11    1.83/3
     32: 1              8.26/16     32: 1,5           2.84/5      32: 1,3,7,15    2.00/3
     48: 1             12.26/24     48: 1,7           3.45/6      48: 1,5,13,23   2.26/4
     64: 1             16.25/32     64: 1,7           4.06/8      64: 1,3,9,25    2.35/4
     96: 1             24.25/48     96: 1,11          4.76/8      96: 1,5,17,47   2.72/4
    128: 1             32.25/64    128: 1,11          5.48/9     128: 1,3,11,37   2.93/5
     32: 1,7            2.71/4     128: 1,13          5.62/10    128: 1,5,13,39   2.96/5
"""
"""Mean and most hops of n servers whose circuits go both ways, of which each coin takes two ports."""
SIMPLEX = """
     12: 1,5            2.73/5      12: 1,5,7,11      1.82/3      16: 1,3,5,7,9,11,13,15        1.47/2
     16: 1,3            3.33/6      16: 1,3,5,9       2.00/3      24: 1,5,7,11,13,17,19,23      1.83/3
     24: 1,5            4.00/7      24: 1,5,11,23     2.61/5     128: 1,3,5,9,17,31,57,105      3.06/5
     32: 1,5            4.77/9      32: 1,3,7,17      2.71/5
     48: 1,7            6.00/11     48: 1,5,13,35     3.32/6
     64: 1,7            7.14/14     64: 1,3,9,25      3.52/6
     96: 1,11           8.84/17     96: 1,5,17,53     4.38/8
    128: 1,11          10.30/20    128: 1,3,11,37     4.52/8
"""
"""The same where each coin goes one way."""
PROTOTYPE = 12, (1, 5, 7, 11)


def both_ways(servers: int, coins: Iterable[int]) -> tuple[int, ...]:
    """Return the jumps of duplex circuits."""
    return tuple(sorted({jump for coin in coins for jump in (coin, servers - coin)}))


def length_cases() -> list[tuple[int, tuple[int, ...], str]]:
    """Return servers, coins, and mean and most hops of the tables above."""
    found = []
    for table, is_duplex in ((DUPLEX, True), (SIMPLEX, False)):
        words = table.split()
        for servers, coins, lengths in zip(words[::3], words[1::3], words[2::3], strict=True):
            n, jumps = int(servers.rstrip(":")), tuple(map(int, coins.split(",")))
            found.append((n, both_ways(n, jumps) if is_duplex else jumps, lengths))
    return found


def circulant(servers: int, coins: Iterable[int]) -> "nx.DiGraph[int]":
    """Return the graph of servers that all have these jumps."""
    edges = [(server, (server + coin) % servers) for server in range(servers) for coin in coins]
    return nx.DiGraph(edges)


@pytest.mark.parametrize(("servers", "coins"), CHANGES)
def test_offsets_are_changed_as_the_specification_has_it(servers: int, coins: tuple[int, ...]) -> None:
    changes = coin_change(servers, coins, "smallest_coin")
    written = [f"{o}:{'+'.join(map(str, changes.coins(o)))}" for o in range(1, servers)]
    assert " ".join(written) == CHANGES[servers, coins]
    assert changes.coins(0) == []


@pytest.mark.parametrize(("servers", "coins", "lengths"), length_cases())
def test_mean_and_most_hops_to_two_digits(servers: int, coins: tuple[int, ...], lengths: str) -> None:
    changes, hops = coin_change(servers, coins), hops_between(coin_change(servers, coins))
    assert f"{changes.mean_hops:.2f}/{hops.max()}" == lengths
    assert not hops.diagonal().any()
    assert hops.sum() / (servers * (servers - 1)) == pytest.approx(changes.mean_hops)


@pytest.mark.parametrize("rule", get_args(Ties))
@given(servers=st.integers(2, 40), data=st.data())
def test_a_change_is_a_shortest_path(rule: Ties, servers: int, data: st.DataObject) -> None:
    coins = tuple(sorted(data.draw(st.sets(st.integers(1, servers - 1), max_size=5))))
    if gcd(servers, *coins) > 1:
        with pytest.raises(ScenarioError, match=f"do not join {servers} servers"):
            coin_change(servers, coins, rule)
        return
    changes, graph = coin_change(servers, coins, rule), circulant(servers, coins)
    hops = nx.single_source_shortest_path_length(graph, 0)
    assert {offset: len(changes.coins(offset)) for offset in range(servers)} == hops
    assert (changes.relays + 1).tolist() == [hops[offset] for offset in range(servers)]
    for offset in range(1, servers):
        assert sum(changes.coins(offset)) % servers == offset
        if rule == "smallest_coin":
            shorter = [coin for coin in coins if hops[(offset - coin) % servers] == hops[offset] - 1]
            assert changes.first[offset] == min(shorter)
    source, target = (data.draw(st.integers(0, servers - 1)) for _ in range(2))
    assert hops_between(changes)[source, target] == nx.shortest_path_length(graph, source, target)


@given(servers=st.integers(2, 40), data=st.data())
def test_by_least_load_no_coin_is_busier_than_by_the_smallest_coins(
    servers: int, data: st.DataObject
) -> None:
    coins = tuple(sorted(data.draw(st.sets(st.integers(1, servers - 1), min_size=1, max_size=6))))
    assume(gcd(servers, *coins) == 1)
    assert busiest(servers, coins, "least_loaded") <= busiest(servers, coins, "smallest_coin")


@pytest.mark.parametrize(("servers", "coins", "load"), [(38, (13, 19, 29), 78), (29, (3, 8, 11, 24), 45)])
def test_the_smallest_coins_are_taken_where_choosing_one_by_one_loads_more(
    servers: int, coins: tuple[int, ...], load: int
) -> None:
    assert busiest(servers, coins, "least_loaded") == busiest(servers, coins, "smallest_coin") == load


@pytest.mark.parametrize("degree", range(2, 7))
@pytest.mark.parametrize("duplex", [False, True])
@pytest.mark.parametrize("rule", get_args(Rule))
def test_by_least_load_no_plan_has_a_busier_circuit_or_a_longer_path(
    degree: int, duplex: bool, rule: Rule
) -> None:
    for servers in range(4, 33):
        coins = plan_of(servers, degree, duplex=duplex, rule=rule).coins
        least, smallest = (coin_change(servers, coins, ties) for ties in get_args(Ties))
        assert (least.relays == smallest.relays).all()
        assert busiest(servers, coins, "least_loaded") <= busiest(servers, coins, "smallest_coin")


@given(servers=st.integers(4, 14), degree=st.integers(2, 6))
@example(12, 6)  # coin 1 has two circuits in parallel, coin 5 has one
def test_by_least_load_no_circuit_of_a_panel_is_busier(servers: int, degree: int) -> None:
    plan = plan_of(servers, degree)
    fabric = patch_panel_fabric(servers, nics=degree, gpus=1)
    panel = Panel(fabric, dict(panel_circuits(fabric, plan)))
    least, smallest = (max(panel.loads(CoinChange(plan.coins, ties)).values()) for ties in get_args(Ties))
    assert least <= smallest


def plan_of(servers: int, degree: int, *, duplex: bool = True, rule: Rule = "projected") -> Plan:
    """Return circuits for an AllReduce over all servers."""
    groups, transfers = [Group(tuple(range(servers)), 10**6)], np.zeros((servers, servers))
    return topology_finder(
        groups, transfers, servers=servers, degree=degree, duplex=duplex, mp_degree=0, rule=rule
    )


def busiest(servers: int, coins: tuple[int, ...], rule: Ties) -> int:
    """Return the load of the busiest coin, walked offset by offset."""
    changes = coin_change(servers, coins, rule)
    loads = Counter(coin for offset in range(servers) for coin in changes.coins(offset))
    assert loads == changes.loads
    return max(loads.values())


@pytest.mark.parametrize(
    ("servers", "coins", "why"),
    [
        (12, (1, 0), "a coin of 0 between 12 servers"),
        (12, (12,), "a coin of 12 between 12 servers"),
        (12, (1, -5), "a coin of -5 between 12 servers"),
        (12, (2, 4, 10), "coins 2, 4, 10 do not join 12 servers"),
        (2, (), "coins of none do not join 2 servers"),
    ],
)
def test_coins_that_join_no_ring_are_refused(servers: int, coins: tuple[int, ...], why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        coin_change(servers, coins)
    panel = Panel.of_coins(servers, (1,))
    with pytest.raises(ScenarioError, match=why):
        CheckedRouting(CoinChange(coins)).table(fabric=panel.fabric, lit=panel.lit, failed=())


def test_next_hops_of_server_8_beside_those_of_the_prototype() -> None:
    published = {1: (0, 1, 11), 3: (3,), 7: (6, 7), 9: (2, 4, 5, 9, 10)}
    graph, changes = circulant(*PROTOTYPE), coin_change(*PROTOTYPE)
    theirs = {target: by for by, targets in published.items() for target in targets}
    ours = {target: (8 + int(changes.first[(target - 8) % 12])) % 12 for target in theirs}
    for hop in (theirs, ours):
        for target, by in hop.items():
            assert [8, by] in [path[:2] for path in nx.all_shortest_paths(graph, 8, target)]
    assert {target for target in theirs if theirs[target] != ours[target]} == {2, 5, 6, 11}


def test_loads_of_the_prototype_by_each_rule_and_by_its_authors_next_hops() -> None:
    jumps = [0, 1, 1, 5, 5, 5, 1, 7, 1, 1, 11, 11]  # of server 8 above, by offset, as if all servers had them
    published = Changes(np.array(jumps), coin_change(*PROTOTYPE).relays)
    assert published.loads == {11: 6, 1: 7, 5: 4, 7: 3}
    assert coin_change(*PROTOTYPE, "smallest_coin").loads == {1: 10, 5: 5, 7: 3, 11: 2}
    assert sorted(coin_change(*PROTOTYPE).loads.values()) == [4, 5, 5, 6]


def test_no_choice_by_offset_loads_the_circuits_of_the_prototype_alike() -> None:
    """All offsets sum up to 66, and five of each coin to 120: the one is 6 modulo 12, the other is 0."""
    servers, coins = PROTOTYPE
    hops = coin_change(*PROTOTYPE).relays + 1
    begins = [[coin for coin in coins if hops[o - coin] < hops[o]] for o in range(1, servers)]
    every = (Changes(np.array([0, *first]), hops - 1) for first in product(*begins))
    assert min(max(changes.loads.values()) for changes in every) == 6


def test_a_rule_that_is_not_there_is_refused() -> None:
    with pytest.raises(ScenarioError, match="unknown rule 'random'; take least_loaded or smallest_coin"):
        coin_change(*PROTOTYPE, "random")


def test_no_path_is_none() -> None:
    with pytest.raises(ScenarioError, match="0 shortest paths; take one at least"):
        KShortest(0)


@pytest.mark.parametrize(
    ("panel", "coins", "parallel"),
    [
        (Panel.of_coins(12, (1, 5)), (1, 5, 7, 11), 1),
        (Panel.of_coins(16, (1, 3)), (1, 3, 13, 15), 1),
        (Panel.of_coins(16, (1, 3, 5, 7)), (1, 3, 5, 7, 9, 11, 13, 15), 1),
        (Panel.of_coins(7, (2,)), (2, 5), 1),
        (Panel.of_coins(2, (1,)), (1,), 2),
        (twice(4), (1, 3), 2),
        (twice(6), (1, 5), 2),
        (Panel.of_coins(9, (4, 4, 4)), (4, 5), 3),
    ],
)
def test_every_pair_is_joined_by_as_many_hops_as_coins(
    panel: Panel, coins: tuple[int, ...], parallel: int
) -> None:
    servers = len(panel.fabric.servers)
    changes = coin_change(servers, coins)
    for (near, far), paths in panel.walked(CoinChange(coins)).items():
        by_coins = [near]
        for coin in changes.coins((far - near) % servers):
            by_coins.append((by_coins[-1] + coin) % servers)
        assert [*paths.values()] == parallel * [by_coins]
        assert len({source for source, _ in paths}) == len({to for _, to in paths}) == parallel


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize(
    "panel",
    [regular(10, 3, 1), regular(14, 4, 2), regular(9, 4, 3), twice(4), twice(6), Panel.of_coins(12, (1, 5))],
    ids=["10 of 3", "14 of 4", "9 of 4", "4 twice", "6 twice", "prototype"],
)
def test_shortest_paths_leave_or_arrive_by_other_nics(panel: Panel, k: int) -> None:
    graph = panel.graph
    walked = panel.walked(KShortest(k))
    for (near, far), paths in walked.items():
        assert {len(path) - 1 for path in paths.values()} == {nx.shortest_path_length(graph, near, far)}
        assert len(paths) == min(k, ways(graph, near, far))
        assert {flow[::-1]: path[::-1] for flow, path in paths.items()} == walked[far, near]


def ways(graph: "nx.MultiDiGraph[int]", near: int, far: int) -> int:
    """Return how many shortest paths there are that differ in their first or last circuit.

    Of parallel circuits the first leads on to the first, the second to the second.
    """
    shortest = nx.all_shortest_paths(graph, near, far)
    ends = {(path[1], path[-2]): min(map(graph.number_of_edges, path, path[1:])) for path in shortest}
    return sum(ends.values())


def test_which_of_equally_short_paths_is_drawn_by_a_seed() -> None:
    panel = regular(14, 4, 2)
    once, again, other = (panel.walked(KShortest(1, seed)) for seed in (0, 0, 1))
    assert once == again
    assert once != other


@given(seed=st.integers(0, 20), data=st.data())
def test_what_is_dark_or_has_failed_is_gone_around_if_there_is_a_way(seed: int, data: st.DataObject) -> None:
    whole = regular(8, 3, seed)
    dark = data.draw(st.sets(st.integers(0, 11), max_size=6))
    failed = data.draw(st.sets(st.sampled_from([Port(f"h{s}", nic) for s in range(8) for nic in range(3)])))
    panel = whole.without(dark, sorted(failed)[:5])
    hops = dict(nx.all_pairs_shortest_path_length(panel.graph))
    for (near, far), paths in panel.walked(KShortest()).items():
        assert {len(path) - 1 for path in paths.values()} == {
            count for to, count in hops[near].items() if to == far
        }


@given(data=st.data(), doubled=st.booleans())
def test_around_what_is_dark_or_has_failed_all_other_pairs_stay_on_their_paths(
    data: st.DataObject, doubled: bool
) -> None:
    whole, coins = (twice(6), (1, 5)) if doubled else (Panel.of_coins(8, (1, 3)), (1, 3, 5, 7))
    nics = [whole.fabric.nic_port(nic) for nic in whole.fabric.nics]
    dark = data.draw(st.sets(st.integers(0, len(nics) // 2 - 1), max_size=4))
    panel = whole.without(dark, data.draw(st.sets(st.sampled_from(nics), max_size=3)))
    graph, before = panel.graph, whole.walked(CoinChange(coins))
    for (near, far), paths in panel.walked(CoinChange(coins)).items():
        (path, *_) = before[near, far].values()
        circuits = min(map(graph.number_of_edges, path, path[1:]))
        if circuits:
            assert [*paths.values()] == circuits * [path]
        elif nx.has_path(graph, near, far):
            shortest = nx.shortest_path_length(graph, near, far)
            assert {len(path) - 1 for path in paths.values()} == {shortest}
        else:
            assert paths == {}


@given(seed=st.integers(0, 1000), ring_bytes=st.integers(0, 10**9))
def test_tax_is_what_all_links_carry_over_what_is_owed(seed: int, ring_bytes: int) -> None:
    panel, (servers, coins) = Panel.of_coins(8, (1, 3)), (8, (1, 3, 5, 7))
    owed = np.random.default_rng(seed).integers(0, 10**6, (servers, servers))
    np.fill_diagonal(owed, 0)
    carried: dict[tuple[int, int], int] = defaultdict(int)
    for (near, far), paths in panel.walked(CoinChange(coins)).items():
        (path,) = paths.values()
        for link in pairwise(path):
            carried[link] += int(owed[near, far])
    tax = bandwidth_tax(ring_bytes, owed, hops_between(coin_change(servers, coins)))
    assert tax == (ring_bytes + sum(carried.values())) / (ring_bytes + int(owed.sum()))


@pytest.mark.parametrize(
    ("coins", "taxes"),
    [
        ((1, 13), [1.111, 1.217, 1.415, 1.762, 2.309, 3.040]),
        ((1, 5, 13, 39), [1.047, 1.092, 1.176, 1.323, 1.555, 1.865]),
    ],
)
def test_tax_of_dlrm_over_batches_is_that_of_figure_13(coins: tuple[int, ...], taxes: list[float]) -> None:
    """128 servers, each with a table of 128 columns; 4 GPUs a server, 8 bytes a number, there and back."""
    ring_bytes = 2 * 127 * 1_359_273_988
    hops = hops_between(coin_change(128, both_ways(128, coins)))
    for batch, tax in zip((64, 128, 256, 512, 1024, 2048), taxes, strict=True):
        owed = (1 - np.eye(128)) * 4 * batch * 128 * 8 * 2
        assert bandwidth_tax(ring_bytes, owed, hops) == pytest.approx(tax, abs=6e-4)
