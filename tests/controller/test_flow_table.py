"""The flow table on paper is stricter than a switch."""

from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import permutations
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.packet.ecmp_hash import forwarding_buckets
from controller.packet.flow_table import FlowTables, Hashing
from controller.packet.routing import forwarding_rules
from controller.packet.rules import (
    IPV4,
    Action,
    Bucket,
    FlowRule,
    Match,
    Output,
    RuleSet,
    SelectGroup,
    SetEthDst,
    ToGroup,
)
from tests.examples import examples
from tests.topologies.strategies import fabrics
from topologies.addresses import ENTROPIES, entropy_ip
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Nic, Path, Port
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric

FABRIC = rail_fabric(2, 2, 2)
hashings = st.sampled_from(get_args(Hashing))
TEN = Match(eth_type=IPV4, ipv4_dst=IPv4Network("10.0.0.0/8"))
RAIL_1 = Match(eth_type=IPV4, ipv4_dst=IPv4Network("10.1.0.0/16"))
WAYS = SelectGroup(1, forwarding_buckets([2, 3]))


@pytest.mark.parametrize(
    ("ruleset", "culprit"),
    [
        pytest.param(RuleSet((FlowRule(5, TEN), FlowRule(5, RAIL_1))), "overlap", id="one prefix in another"),
        pytest.param(
            RuleSet((FlowRule(5, TEN), FlowRule(5, TEN, (Output(0),)))), "overlap", id="twice the same"
        ),
        pytest.param(
            RuleSet((FlowRule(5, TEN), FlowRule(5, Match(in_port=1)))), "overlap", id="different fields"
        ),
        pytest.param(
            RuleSet((FlowRule(5, TEN, (Output(9),)),)), "port 9, which has no link", id="no such port"
        ),
        pytest.param(RuleSet((FlowRule(5, TEN, (ToGroup(1),)),)), "no group 1", id="no such group"),
        pytest.param(RuleSet((), (WAYS, WAYS)), "one number", id="a group twice"),
        pytest.param(RuleSet((), (SelectGroup(1, ()),)), "cannot be known", id="an empty group"),
        pytest.param(
            RuleSet((), (SelectGroup(1, (Bucket(2), Bucket(3))),)), "cannot be known", id="datapath's hash"
        ),
        pytest.param(
            RuleSet((), (SelectGroup(1, forwarding_buckets([2, 9])),)),
            "port 9, which has no link",
            id="dead bucket",
        ),
    ],
)
def test_what_a_switch_would_put_up_with_is_refused(ruleset: RuleSet, culprit: str) -> None:
    with pytest.raises(NetworkError, match=f"leaf0.*{culprit}|{culprit}.*leaf0"):
        FlowTables(FABRIC, {"leaf0": ruleset})


def test_rules_of_different_priority_may_overlap_and_the_higher_wins() -> None:
    rules = forwarding_rules(FABRIC)
    detour = FlowRule(150, Match(in_port=0, eth_type=IPV4, ipv4_dst=RAIL_1.ipv4_dst), (Output(3),))
    rules["leaf0"] = replace(rules["leaf0"], rules=(*rules["leaf0"].rules, detour))
    path = FlowTables(FABRIC, rules).path(Nic(0, 0), Nic(1, 1), 1000, 2000)
    assert path == (Port("h0", 0), Port("leaf0", 3), Port("spine1", 1), Port("leaf1", 1))


def test_a_circle_is_an_error() -> None:
    rules = forwarding_rules(FABRIC)
    back = RuleSet((FlowRule(5, TEN, (Output(0),)),))
    tables = FlowTables(FABRIC, rules | {"spine0": back, "spine1": back})
    with pytest.raises(NetworkError, match=r"goes in circles at spine[01]:0"):
        tables.path(Nic(0, 0), Nic(1, 1), 1000, 2000)


@pytest.mark.parametrize(
    ("actions", "arrival"),
    [
        pytest.param((SetEthDst("02:01:00:01:00:00"), Output(2)), "h2:0", id="the wrong NIC"),
        pytest.param((Output(1),), "h1:0", id="the right NIC, the gateway's MAC address"),
    ],
)
def test_a_packet_that_its_nic_would_not_take_is_an_error(actions: tuple[Action, ...], arrival: str) -> None:
    tables = FlowTables(rail_fabric(3, 1), {"leaf0": RuleSet((FlowRule(5, TEN, actions),))})
    with pytest.raises(NetworkError, match=rf"to NIC 1\.0 came to {arrival}"):
        tables.path(Nic(0, 0), Nic(1, 0), 1, 2)


def test_without_rules_there_is_no_path() -> None:
    assert FlowTables(FABRIC, {}).path(Nic(0, 0), Nic(1, 0), 1, 2) is None


def one_by_one(tables: FlowTables, source: Nic, destination: Nic) -> list[Path | None]:
    """Return the path of each entropy's datagrams, each walked alone."""
    return [tables.datagram_path(source, destination, entropy) for entropy in range(ENTROPIES)]


@given(fabric=fabrics, data=st.data())
@settings(max_examples=examples(12, 40), deadline=None)
def test_entropies_at_once_go_as_one_by_one(fabric: Fabric, data: st.DataObject) -> None:
    failed = data.draw(st.frozensets(st.sampled_from(fabric.links), max_size=4))
    told = data.draw(st.booleans(), label="whether the controller knows")
    rules, hashing = forwarding_rules(fabric, failed if told else frozenset()), data.draw(hashings)
    tables = FlowTables(fabric, rules, failed, hashing)
    for source, destination in permutations(fabric.nics[:3] + fabric.nics[-1:], 2):
        if source != destination:
            assert tables.datagram_paths(source, destination) == one_by_one(tables, source, destination)


def test_entropies_that_a_rule_tells_apart_go_their_own_way() -> None:
    rules = forwarding_rules(FABRIC)
    matches = [
        Match(eth_type=IPV4, ipv4_dst=IPv4Network(entropy_ip(FABRIC, Nic(1, 1), entropy)))
        for entropy in (0, 5)
    ]
    more = FlowRule(250, matches[0]), FlowRule(250, matches[1], (Output(3),))
    rules["leaf0"] = replace(rules["leaf0"], rules=(*rules["leaf0"].rules, *more))
    tables = FlowTables(FABRIC, rules)
    paths = tables.datagram_paths(Nic(0, 0), Nic(1, 1))
    assert paths == one_by_one(tables, Nic(0, 0), Nic(1, 1))
    assert [entropy for entropy, path in enumerate(paths) if path is None] == [0]
    assert paths[5] == (Port("h0", 0), Port("leaf0", 3), Port("spine1", 1), Port("leaf1", 1))


@pytest.mark.parametrize("hashing", get_args(Hashing))
@pytest.mark.parametrize(
    ("fabric", "paths"),
    [
        pytest.param(leaf_spine_fabric(4, 2, 2), 2, id="two spines"),
        pytest.param(leaf_spine_fabric(4, 2, 8), 8, id="eight spines"),
        pytest.param(fat_tree_fabric(4), 4, id="two tiers of two"),
    ],
)
def test_entropies_of_one_pair_spread_over_all_paths(fabric: Fabric, paths: int, hashing: Hashing) -> None:
    tables = FlowTables(fabric, forwarding_rules(fabric), hashing=hashing)
    for source, destination in ((fabric.nics[0], fabric.nics[-1]), (fabric.nics[-1], fabric.nics[1])):
        taken = Counter(tables.datagram_paths(source, destination))
        assert len(taken) == paths
        assert None not in taken
        assert max(taken.values()) <= 2.5 * ENTROPIES / paths


def test_datagrams_to_a_nic_beside_have_one_path() -> None:
    (path,) = set(FlowTables(FABRIC, forwarding_rules(FABRIC)).datagram_paths(Nic(0, 0), Nic(1, 0)))
    assert path == (Port("h0", 0), Port("leaf0", 1))


def test_one_entropy_that_goes_in_circles_is_an_error() -> None:
    rules = forwarding_rules(FABRIC)
    tables = FlowTables(FABRIC, rules | {"spine1": RuleSet((FlowRule(5, TEN, (Output(0),)),))})
    with pytest.raises(NetworkError, match="goes in circles at spine1:0"):
        tables.datagram_paths(Nic(0, 0), Nic(1, 1))
