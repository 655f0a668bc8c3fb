"""The flow table on paper is stricter than a switch."""

from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from controller.packet.ecmp_hash import forwarding_buckets
from controller.packet.flow_table import FlowTables
from controller.packet.routing import forwarding_rules
from controller.packet.rules import (
    IPV4,
    Action,
    Bucket,
    Group,
    Match,
    Output,
    Rule,
    RuleSet,
    SetEthDst,
    ToGroup,
)
from topologies.errors import NetworkError
from topologies.fabric import Nic, Port
from topologies.rail import rail_fabric

FABRIC = rail_fabric(2, 2, 2)
TEN = Match(eth_type=IPV4, ipv4_dst=IPv4Network("10.0.0.0/8"))
RAIL_1 = Match(eth_type=IPV4, ipv4_dst=IPv4Network("10.1.0.0/16"))
WAYS = Group(1, forwarding_buckets([2, 3]))


@pytest.mark.parametrize(
    ("ruleset", "culprit"),
    [
        pytest.param(RuleSet((Rule(5, TEN), Rule(5, RAIL_1))), "overlap", id="one prefix in another"),
        pytest.param(RuleSet((Rule(5, TEN), Rule(5, TEN, (Output(0),)))), "overlap", id="twice the same"),
        pytest.param(RuleSet((Rule(5, TEN), Rule(5, Match(in_port=1)))), "overlap", id="different fields"),
        pytest.param(RuleSet((Rule(5, TEN, (Output(9),)),)), "port 9, which has no link", id="no such port"),
        pytest.param(RuleSet((Rule(5, TEN, (ToGroup(1),)),)), "no group 1", id="no such group"),
        pytest.param(RuleSet((), (WAYS, WAYS)), "one number", id="a group twice"),
        pytest.param(RuleSet((), (Group(1, ()),)), "cannot be known", id="an empty group"),
        pytest.param(
            RuleSet((), (Group(1, (Bucket(2), Bucket(3))),)), "cannot be known", id="datapath's hash"
        ),
        pytest.param(
            RuleSet((), (Group(1, forwarding_buckets([2, 9])),)),
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
    detour = Rule(150, Match(in_port=0, eth_type=IPV4, ipv4_dst=RAIL_1.ipv4_dst), (Output(3),))
    rules["leaf0"] = replace(rules["leaf0"], rules=(*rules["leaf0"].rules, detour))
    path = FlowTables(FABRIC, rules).path(Nic(0, 0), Nic(1, 1), 1000, 2000)
    assert path == (Port("h0", 0), Port("leaf0", 3), Port("spine1", 1), Port("leaf1", 1))


def test_a_circle_is_an_error() -> None:
    rules = forwarding_rules(FABRIC)
    back = RuleSet((Rule(5, TEN, (Output(0),)),))
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
    tables = FlowTables(rail_fabric(3, 1), {"leaf0": RuleSet((Rule(5, TEN, actions),))})
    with pytest.raises(NetworkError, match=rf"to NIC 1\.0 came to {arrival}"):
        tables.path(Nic(0, 0), Nic(1, 0), 1, 2)


def test_without_rules_there_is_no_path() -> None:
    assert FlowTables(FABRIC, {}).path(Nic(0, 0), Nic(1, 0), 1, 2) is None
