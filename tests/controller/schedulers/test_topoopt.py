"""TopoOpt's topologies: the prototype's circuits, who gets which ports, and what every plan keeps."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.circuits.circuits import Circuits
from controller.schedulers.topoopt import Group, Plan, panel_circuits, topology_finder
from controller.schedulers.totient import Rule
from tests.examples import examples
from topologies.errors import DemandError, ScenarioError
from topologies.fabric import Nic, Port
from topologies.mfabric import mfabric_fabric
from topologies.patch_panel import patch_panel_fabric

Hops = Counter[tuple[int, int]]


def strided(servers: int, size: int, each_bytes: int) -> list[Group]:
    """Return the groups of a size: server s and every n / g-th from it."""
    stride = servers // size
    return [Group(tuple(range(first, servers, stride)), each_bytes) for first in range(stride)]


def all_to_all(servers: int, each_bytes: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return each_bytes * (1 - np.eye(servers))


def lit(pairs: Sequence[tuple[int, int]], duplex: bool) -> Hops:
    """Return how many circuits lead from server to server."""
    return Hops(pairs) + (Hops((b, a) for a, b in pairs) if duplex else Hops())


def hops_along(rings: Sequence[Sequence[int]]) -> Hops:
    return Hops(hop for ring in rings for hop in pairwise((*ring, ring[0])))


def ports(plan: Plan, size: int) -> int:
    """Return how many ports of each member a group's rings have, which have ports of their own."""
    rings = next(rings for group, rings in plan.rings if len(group.members) == size)
    return len(rings)


def test_prototype_has_the_circuits_of_the_authors() -> None:
    """12 servers of 4 ports: 24 duplex circuits, and server 8 leads to 9, 7, 1 and 3 (artifact, SETUP.md)."""
    plan = topology_finder(strided(12, 12, 100), np.zeros((12, 12)), servers=12, degree=4)
    assert len(plan.pairs) == 24
    assert plan.coins == (1, 5, 7, 11)
    assert lit(plan.pairs, True) == Hops((s, (s + coin) % 12) for s in range(12) for coin in plan.coins)
    assert [ring[:3] for ring in plan.rings_of(range(12))] == [(0, 1, 2), (0, 11, 10), (0, 5, 10), (0, 7, 2)]
    assert plan.rings_of(range(11, -1, -1)) == plan.rings_of(range(12))
    fabric = patch_panel_fabric(12, nics=4)
    ((ocs, circuits),) = panel_circuits(fabric, plan)
    reached = dict(circuits)
    assert ocs == "panel0"
    for server in range(12):
        neighbours = [reached[4 * server + nic] // 4 for nic in range(4)]
        assert neighbours == [(server + jump) % 12 for jump in (1, -1, 5, -5)]


def test_16_servers_of_3_simplex_ports_have_the_coins_of_figures_7_to_9() -> None:
    plan = topology_finder(strided(16, 16, 1), np.zeros((16, 16)), servers=16, degree=3, duplex=False)
    assert plan.coins == (1, 3, 7)
    assert lit(plan.pairs, False) == Hops((s, (s + coin) % 16) for s in range(16) for coin in (1, 3, 7))


@pytest.mark.parametrize(
    ("degree", "rule", "coins"),
    [
        (4, "projected", (1, 11, 117, 127)),
        (4, "artifact", (1, 13, 115, 127)),
        (8, "projected", (1, 3, 11, 37, 91, 117, 125, 127)),
        (8, "artifact", (1, 5, 13, 39, 89, 115, 123, 127)),
    ],
)
def test_coins_of_128_servers_without_ports_for_transfers(
    degree: int, rule: Rule, coins: tuple[int, ...]
) -> None:
    plan = topology_finder(
        strided(128, 128, 10), all_to_all(128, 5), servers=128, degree=degree, mp_degree=0, rule=rule
    )
    assert plan.coins == coins
    assert len(plan.pairs) == 128 * degree // 2


def test_ports_are_divided_by_bytes() -> None:
    """W_A = 2 * 15 * 80 = 2,400, W_MP = 240 x; d_A = 8 W_A / (W_A + W_MP), rounded up to even."""
    for each_bytes, rings in [(0, 8), (1, 8), (2, 8), (4, 6), (10, 4), (29, 4), (30, 2), (10_000, 2)]:
        plan = topology_finder(strided(16, 16, 80), all_to_all(16, each_bytes), servers=16, degree=8)
        assert ports(plan, 16) == rings
        assert len(plan.pairs) == 64


def test_simplex_ports_need_not_be_even() -> None:
    plan = topology_finder(strided(16, 16, 80), all_to_all(16, 10), servers=16, degree=3, duplex=False)
    assert ports(plan, 16) == 2
    assert topology_finder(strided(5, 5, 1), np.zeros((5, 5)), servers=5, degree=1, duplex=False).coins == (
        1,
    )


def test_fixed_ports_for_transfers() -> None:
    for asked, rings in [(0, 8), (1, 8), (2, 6), (5, 4), (6, 2)]:
        plan = topology_finder(strided(16, 16, 1), all_to_all(16, 1), servers=16, degree=8, mp_degree=asked)
        assert ports(plan, 16) == rings
        assert len(set(map(frozenset, plan.pairs[8 * rings :]))) >= 4 * (8 - rings)


def test_classes_are_served_by_what_they_send() -> None:
    """Of 8 ports: W = 2 * 15 * 60 = 1,800 of all, and 4 * 2 * 3 * 25 = 600 of fours, in four groups."""
    groups = [*strided(16, 16, 60), *strided(16, 4, 25)]
    plan = topology_finder(groups, np.zeros((16, 16)), servers=16, degree=8)
    assert (ports(plan, 16), ports(plan, 4)) == (6, 2)
    assert plan.coins == (1, 3, 4, 7, 9, 12, 13, 15)
    assert plan.rings_of((2, 6, 10, 14)) == ((2, 6, 10, 14), (2, 14, 10, 6))


def test_artifact_serves_the_heaviest_class_with_all_ports_but_those_of_the_ring() -> None:
    """Fours send twice as much as all 16: of 16 ports 12 are theirs, or 14."""
    groups = [*strided(16, 16, 20), *strided(16, 4, 50)]
    shares: list[tuple[Rule, tuple[int, int]]] = [("projected", (4, 12)), ("artifact", (2, 14))]
    for rule, rings in shares:
        plan = topology_finder(groups, np.zeros((16, 16)), servers=16, degree=16, rule=rule)
        assert (ports(plan, 16), ports(plan, 4)) == rings


def test_ring_over_all_is_reserved_where_no_group_spans_them() -> None:
    plan = topology_finder(strided(16, 8, 1), np.zeros((16, 16)), servers=16, degree=4)
    assert plan.pairs[:16] == tuple((server, (server + 1) % 16) for server in range(16))
    assert plan.coins == (1, 2, 14, 15)
    assert len(plan.rings) == 2
    with pytest.raises(DemandError, match="no rings over servers 0, 1 were planned"):
        plan.rings_of((0, 1))


def test_class_without_ports_takes_the_ring_of_fewest_hops_over_coins_of_others() -> None:
    """128 servers have coins 1 and 11: strided by 4, the jump 4 is four hops, and 12 is two."""
    groups = [*strided(128, 128, 10**6), *strided(128, 32, 1)]
    plan = topology_finder(groups, np.zeros((128, 128)), servers=128, degree=4)
    assert plan.coins == (1, 11, 117, 127)
    assert [ring[:3] for ring in plan.rings_of(range(3, 128, 4))] == [(3, 15, 27), (3, 119, 107)]
    groups = [*strided(14, 14, 10**6), *strided(14, 7, 1)]
    one = topology_finder(groups, np.zeros((14, 14)), servers=14, degree=1, duplex=False)
    assert one.coins == (1,)
    assert one.rings_of(range(0, 14, 2)) == ((0, 2, 4, 6, 8, 10, 12),)


def test_rings_are_taken_again_where_there_are_too_few() -> None:
    """12 servers have two duplex rings; 8 ports hold each twice, as parallel circuits."""
    plan = topology_finder(strided(12, 12, 1), np.zeros((12, 12)), servers=12, degree=8)
    assert plan.coins == (1, 5, 7, 11)
    assert set(lit(plan.pairs, True).values()) == {2}
    assert Counter(plan.rings_of(range(12))).most_common(1)[0][1] == 2
    assert hops_along(plan.rings_of(range(12))) == lit(plan.pairs, True)


def test_two_members_need_one_port_and_the_other_is_used_too() -> None:
    """Pairs 6 apart are alone; of 6 ports 2 are the ring's, and each pair gets the 4 others in parallel."""
    plan = topology_finder(strided(12, 2, 1), np.zeros((12, 12)), servers=12, degree=6)
    assert lit(plan.pairs, True)[0, 6] == 4
    assert plan.rings_of((0, 6)) == ((0, 6),) * 4
    assert plan.coins == (1, 6, 11)


def test_two_servers_have_all_circuits_between_them() -> None:
    for degree in (1, 2, 3):
        plan = topology_finder(strided(2, 2, 1), np.zeros((2, 2)), servers=2, degree=degree)
        assert plan.pairs == ((0, 1),) * degree
        assert plan.coins == (1,)
    assert topology_finder([], np.zeros((1, 1)), servers=1, degree=4).pairs == ()


def test_groups_of_any_members_step_through_their_list_and_ports_of_others_go_to_them() -> None:
    """0 to 4 and 5 to 7 share no server, so both have the four ports that the ring over all leaves."""
    groups = [Group((0, 4, 1, 2, 3), 50), Group((5, 6, 7), 1)]
    plan = topology_finder(groups, np.zeros((8, 8)), servers=8, degree=6)
    assert hops_along(plan.rings_of(range(5))) == Hops((a, b) for a in range(5) for b in range(5) if a != b)
    assert len(plan.rings_of((5, 6, 7))) == 4
    assert plan.coins == (1, 7)


def test_equal_groups_are_added_up_and_one_member_needs_nothing() -> None:
    groups = [Group((0, 1, 2), 3), Group((2, 1, 0), 4), Group((1,), 9)]
    plan = topology_finder(groups, np.zeros((3, 3)), servers=3, degree=2)
    assert [group for group, _ in plan.rings] == [Group((0, 1, 2), 7)]


def test_circuits_of_rings_discount_the_demand_beside_them() -> None:
    """Neighbours on the ring owe 3, others 2: with halving the others come first."""
    transfers = np.full((6, 6), 2.0)
    for server in range(6):
        transfers[server, (server + 1) % 6] = transfers[(server + 1) % 6, server] = 3.0
    for counted in (True, False):
        plan = topology_finder([], transfers, servers=6, degree=3, count_allreduce=counted)
        apart = {(b - a) % 6 in (1, 5) for a, b in plan.pairs[6:]}
        assert apart == {not counted}


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, object]:
    """Return arguments of the finder: strided groups or any, transfers of any kind, any ports."""
    servers = draw(st.integers(2, 13))
    sizes = draw(
        st.lists(st.sampled_from([g for g in range(1, servers + 1) if servers % g == 0]), max_size=3)
    )
    amounts = st.integers(0, 10**6)
    groups = [group for size in sizes for group in strided(servers, size, draw(amounts))]
    members = st.lists(st.integers(0, servers - 1), min_size=1, unique=True).map(tuple)
    groups += draw(st.lists(st.builds(Group, members, amounts), max_size=2))
    duplex = draw(st.booleans())
    least = 2 if duplex and servers > 2 else 1
    degree = draw(st.integers(least, 7))
    seed, top = draw(st.integers(0, 99)), draw(st.sampled_from([1, 2, 10**5]))
    return {
        "groups": groups,
        "transfers": np.random.default_rng(seed).integers(0, top, (servers, servers)),
        "servers": servers,
        "degree": degree,
        "duplex": duplex,
        "mp_degree": draw(st.just("proportional") | st.integers(0, degree - least)),
        "rule": draw(st.sampled_from(["projected", "artifact"])),
        "count_allreduce": draw(st.booleans()),
    }


@settings(max_examples=examples(25, 300))
@given(jobs())
def test_every_plan_keeps_to_its_ports_joins_all_and_has_its_rings(job: dict[str, object]) -> None:
    plan: Plan = topology_finder(**job)  # type: ignore[arg-type]
    assert plan == topology_finder(**job)  # type: ignore[arg-type]
    joined = lit(plan.pairs, plan.duplex)
    assert all(a != b for a, b in joined)
    for end in (0, 1):
        used = Counter(hop[end] for hop in joined.elements())
        assert max(used.values()) <= plan.degree
    assert nx.is_strongly_connected(nx.DiGraph(list(joined)))
    for coin in plan.coins:
        assert all(joined[server, (server + coin) % plan.servers] for server in range(plan.servers))
    asked = {tuple(sorted(group.members)) for group in job["groups"] if len(group.members) > 1}  # type: ignore[attr-defined]
    assert {group.members for group, _ in plan.rings} == asked
    for group, rings in plan.rings:
        assert rings
        assert all(tuple(sorted(ring)) == group.members for ring in rings)
        own_circuits = hops_along(rings) <= joined
        assert own_circuits or len(rings) <= 2


@settings(max_examples=examples(15, 100))
@given(jobs())
def test_rings_with_ports_of_their_own_share_no_circuit(job: dict[str, object]) -> None:
    """All groups together, but for those whose hops have no circuits, which relay."""
    plan: Plan = topology_finder(**{**job, "groups": strided(job["servers"], job["servers"], 7)})  # type: ignore[arg-type]
    assert hops_along([ring for _, rings in plan.rings for ring in rings]) <= lit(plan.pairs, plan.duplex)


def test_nics_of_simplex_circuits_send_and_receive_apart() -> None:
    plan = topology_finder(strided(16, 16, 1), np.zeros((16, 16)), servers=16, degree=3, duplex=False)
    ((_, circuits),) = panel_circuits(patch_panel_fabric(16, nics=3), plan)
    assert len(circuits) == 48
    assert set(circuits) == {
        (3 * server + nic, 3 * ((server + coin) % 16) + nic)
        for server in range(16)
        for nic, coin in enumerate((1, 3, 7))
    }


@settings(max_examples=examples(15, 100))
@given(jobs(), st.integers(0, 99))
def test_panel_lights_a_plan_on_the_servers_of_its_shard(job: dict[str, object], seed: int) -> None:
    plan: Plan = topology_finder(**job)  # type: ignore[arg-type]
    among = [int(server) for server in np.random.default_rng(seed).permutation(20)[: plan.servers]]
    fabric = patch_panel_fabric(20, nics=plan.degree)
    for given_plan in (plan, plan.pairs):
        ((ocs, circuits),) = panel_circuits(fabric, given_plan, duplex=plan.duplex, among=among)
        shown = Circuits(20 * plan.degree, circuits)
        assert not plan.duplex or all(pair[::-1] in circuits for pair in circuits)
        ends = [[fabric.peer(Port(ocs, port)) for port in pair] for pair in shown.pairs]
        servers = [tuple(among.index(fabric.nic_at(end).server) for end in pair) for pair in ends]
        assert Counter(servers) == lit(plan.pairs, plan.duplex)
        for nic in (fabric.nic_at(pair[0]) for pair in ends):
            lower = [Nic(nic.server, number) for number in range(nic.nic)]
            assert all(fabric.peer(fabric.nic_port(each)).number in dict(circuits) for each in lower)


def test_circuits_in_any_order_take_the_lowest_free_nics() -> None:
    fabric = patch_panel_fabric(4, nics=3)
    ((_, circuits),) = panel_circuits(fabric, [(0, 1), (2, 3), (1, 2), (0, 1)])
    assert circuits[::2] == ((0, 3), (6, 9), (4, 7), (1, 5))


@pytest.mark.parametrize(
    ("servers", "degree", "duplex", "mp_degree", "match"),
    [
        (3, 1, True, "proportional", "1 ports of each server do not make a ring over all; it takes 2"),
        (4, 4, True, 3, "4 ports of each server, 3 of them for model parallelism, do not make a ring"),
        (4, 0, False, "proportional", "0 ports"),
        (4, 2, False, -1, "-1 of them"),
    ],
)
def test_too_few_ports_are_refused(
    servers: int, degree: int, duplex: bool, mp_degree: Literal["proportional"] | int, match: str
) -> None:
    with pytest.raises(ScenarioError, match=match):
        topology_finder(
            [],
            np.zeros((servers, servers)),
            servers=servers,
            degree=degree,
            duplex=duplex,
            mp_degree=mp_degree,
        )


def test_input_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(DemandError, match="between 3 servers in a job of 4"):
        topology_finder([], np.zeros((3, 3)), servers=4, degree=4)
    for group in (Group((0, 0), 1), Group((0, 4), 1), Group((0, 1), -1)):
        with pytest.raises(DemandError, match=r"take each of servers 0 to 3 once at most"):
            topology_finder([group], np.zeros((4, 4)), servers=4, degree=4)
    with pytest.raises(ScenarioError, match="are not on one OCS"):
        panel_circuits(mfabric_fabric(4), [(0, 1)])
    fabric = patch_panel_fabric(4, nics=1)
    with pytest.raises(ScenarioError, match="server 2 has 1 NICs and more circuits"):
        panel_circuits(fabric, [(0, 1), (0, 1)], among=[2, 3])
    for pairs, among in (([(0, 0)], None), ([(0, 1)], [2, 2])):
        with pytest.raises(ScenarioError, match="in a shard twice, or joined to itself"):
            panel_circuits(fabric, pairs, among=among)
    with pytest.raises(DemandError, match="unknown rule 'artefact'"):
        topology_finder([Group((0, 1), 1)], np.zeros((2, 2)), servers=2, degree=2, rule="artefact")  # type: ignore[arg-type]
    for among in (None, [0, 1], [0, 1, 9, 8, 7]):
        with pytest.raises(ScenarioError, match="circuits of server 4"):
            panel_circuits(fabric, [(0, 4)], among=among)
