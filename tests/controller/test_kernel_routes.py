"""Routes of the kernel forward as the rules that they are made of."""

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.packet.ecmp_hash import Headers, forwarding_buckets
from controller.packet.flow_table import FlowTables
from controller.packet.kernel_hash import hash_seed, kernels_bucket
from controller.packet.kernel_routes import PacketRoutes, RouteHop, RoutePlace, packet_routes
from controller.packet.routing import FLOW_PRIORITY, forwarding_rules
from controller.packet.rules import IPV4, Bucket, FlowRule, Match, Output, RuleSet, SelectGroup, ToGroup
from tests.controller.test_routing import Detour
from tests.examples import examples
from tests.topologies.strategies import fabrics
from topologies.addresses import GATEWAY_MAC, host_ip, nic_ip, nic_mac
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Link, Nic, Path, Port
from topologies.rail import rail_fabric

RAILS = rail_fabric(2, 2, 2)
TO_RAIL_1 = Match(eth_type=IPV4, ipv4_dst=IPv4Network("10.1.0.0/16"))


def found(routes: PacketRoutes, dead: set[int], headers: Headers) -> list[RouteHop]:
    """Return a packet's live next hops: by its source's table, then by the longest prefix."""
    matched = [
        place
        for place in routes
        if place.source in {headers.ip_src, None} and headers.ip_dst in place.destination
    ]
    for place in sorted(matched, key=lambda place: (place.source is None, -place.destination.prefixlen)):
        live = [hop for hop in routes[place] if hop.port not in dead]
        if live or place.is_inside(routes):
            return live
    return []


def walked(
    fabric: Fabric, routes: Mapping[str, PacketRoutes], failed: frozenset[Link], source: Nic, headers: Headers
) -> Path | None:
    """Return the path of a packet from kernel to kernel."""
    path, mac = [fabric.nic_port(source)], GATEWAY_MAC
    while fabric.link_at[path[-1]] not in failed:
        at = fabric.peer(path[-1]).node
        if at in fabric.server_index:
            assert mac == nic_mac(fabric.nic_at(fabric.peer(path[-1])))
            return tuple(path)
        assert mac == GATEWAY_MAC
        dead = {port.number for link in failed for port in (link.a, link.b) if port.node == at}
        hops = found(routes.get(at, {}), dead, headers)
        buckets = [Bucket(hop.port, hop.weight) for hop in hops]
        chosen = kernels_bucket(headers, buckets, [True] * len(buckets), hash_seed(fabric, at))
        if chosen is None:
            return None
        (mac,) = {hop.mac for hop in hops if hop.port == chosen.port}
        path.append(Port(at, chosen.port))
    return None


@given(fabric=fabrics, data=st.data())
@settings(max_examples=examples(10, 40), deadline=None)
def test_packets_go_by_routes_as_by_the_rules_they_are_made_of(fabric: Fabric, data: st.DataObject) -> None:
    failed = data.draw(st.frozensets(st.sampled_from(fabric.links), max_size=4))
    told = data.draw(st.booleans(), label="whether the rules are around what has failed")
    port = data.draw(st.integers(0, 65535))
    rules = forwarding_rules(fabric, failed if told else frozenset(), hosts=True)
    routes = {switch: packet_routes(fabric, switch, ruleset) for switch, ruleset in rules.items()}
    tables = FlowTables(fabric, rules, failed, "kernel")
    for source, destination in permutations(fabric.nics[:3] + fabric.nics[-2:], 2):
        if source.server == destination.server:
            continue
        ends = nic_ip(fabric, source), nic_ip(fabric, destination)
        headers = Headers(nic_mac(source), GATEWAY_MAC, *ends, port, 5001)
        assert walked(fabric, routes, failed, source, headers) == tables.path(source, destination, port, 5001)
        hosts = replace(headers, ip_src=host_ip(source.server), ip_dst=host_ip(destination.server))
        path = tables.host_path(source, destination.server, port, 5001)
        assert walked(fabric, routes, failed, source, hosts) == path


def test_routes_of_a_rail_of_two() -> None:
    spines = RouteHop(2, GATEWAY_MAC), RouteHop(3, GATEWAY_MAC)
    assert packet_routes(RAILS, "leaf0", forwarding_rules(RAILS)["leaf0"]) == {
        RoutePlace(IPv4Network("10.0.0.64/26")): (RouteHop(0, nic_mac(Nic(0, 0))),),
        RoutePlace(IPv4Network("10.0.0.128/26")): (RouteHop(1, nic_mac(Nic(1, 0))),),
        RoutePlace(IPv4Network("10.1.0.0/16")): spines,
    }


def test_a_flow_has_a_route_in_its_sources_table_and_a_routed_destination_in_the_main_one() -> None:
    rules = forwarding_rules(RAILS, routing=Detour())
    routes = packet_routes(RAILS, "leaf0", rules["leaf0"])
    network = IPv4Network("10.1.0.128/26")
    assert routes[RoutePlace(network)] == (RouteHop(3, GATEWAY_MAC),)
    assert routes[RoutePlace(network, nic_ip(RAILS, Nic(0, 0)))] == (RouteHop(2, GATEWAY_MAC),)
    every = {switch: packet_routes(RAILS, switch, ruleset) for switch, ruleset in rules.items()}
    spine1 = frozenset({RAILS.link_at[Port("leaf0", 3)]})
    for failed, dropped in ((frozenset[Link](), []), (spine1, [Nic(1, 0)])):
        tables = FlowTables(RAILS, rules, failed, "kernel")
        paths = {source: tables.path(source, Nic(1, 1), 1, 2) for source in (Nic(0, 0), Nic(1, 0))}
        assert [source for source, path in paths.items() if path is None] == dropped
        for source, path in paths.items():
            ends = nic_ip(RAILS, source), nic_ip(RAILS, Nic(1, 1))
            headers = Headers(nic_mac(source), GATEWAY_MAC, *ends, 1, 2)
            assert walked(RAILS, every, failed, source, headers) == path


def test_a_prefix_inside_one_of_higher_priority_has_no_route() -> None:
    inside = Match(eth_type=IPV4, ipv4_dst=IPv4Network("10.1.0.128/26"))
    ruleset = RuleSet((FlowRule(1, inside, (Output(2),)), FlowRule(2, TO_RAIL_1, (Output(3),))))
    assert [*packet_routes(RAILS, "leaf0", ruleset)] == [RoutePlace(IPv4Network("10.1.0.0/16"))]


@pytest.mark.parametrize(
    ("ruleset", "culprit"),
    [
        pytest.param(
            RuleSet((FlowRule(5, replace(TO_RAIL_1, in_port=1), (Output(2),)),)), "in_port=1", id="a port"
        ),
        pytest.param(
            RuleSet((FlowRule(5, replace(TO_RAIL_1, ipv4_src=IPv4Network("10.0.0.0/16")), (Output(2),)),)),
            "10.0.0.0/16, which no route does",
            id="many sources",
        ),
        pytest.param(
            RuleSet(
                (
                    FlowRule(FLOW_PRIORITY, TO_RAIL_1, (Output(2),)),
                    FlowRule(5, replace(TO_RAIL_1, ipv4_src=IPv4Network("10.0.0.64/32")), (Output(3),)),
                )
            ),
            "lower priority than a rule for any source",
            id="a source below",
        ),
        pytest.param(
            RuleSet(
                (FlowRule(5, TO_RAIL_1, (ToGroup(1),)),),
                (SelectGroup(1, forwarding_buckets([2] * 257 + [3])),),
            ),
            "257",
            id="too heavy",
        ),
    ],
)
def test_what_no_route_does_is_refused(ruleset: RuleSet, culprit: str) -> None:
    with pytest.raises(NetworkError, match=f"leaf0.*{culprit}"):
        packet_routes(RAILS, "leaf0", ruleset)
