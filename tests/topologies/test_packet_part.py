"""The packet part of a fabric: packet switches and what is on them alone, and whom they join."""

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from tests.topologies.strategies import fabrics
from topologies.fabric import Fabric, Link, Port, Server, Switch
from topologies.light import light_peers
from topologies.packet_part import is_mixed, on_packet_switch, packet_part, packets_join


@st.composite
def mixed(draw: st.DrawFn) -> Fabric:
    """Draw servers with up to four NICs, each on one of two packet switches or OCSes, in any order."""
    names = ("eps0", "eps1", "ocs0", "ocs1")
    homes = draw(st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=4), min_size=1, max_size=5))
    homes.append(["eps0", "ocs0"])
    ports = dict.fromkeys(names, 0)
    links = []
    for server, switches in enumerate(homes):
        for nic, name in enumerate(switches):
            links.append(Link(Port(f"h{server}", nic), Port(name, ports[name]), draw(st.floats(1e9, 4e11))))
            ports[name] += 1
    if draw(st.booleans()):
        links.append(Link(Port("eps0", ports["eps0"]), Port("eps1", ports["eps1"]), 1e9))
    return Fabric(
        "drawn",
        tuple(Server(f"h{i}", len(own), draw(st.integers(1, 3)), 1e12) for i, own in enumerate(homes)),
        tuple(Switch(name, ports[name] + 1, "ocs" if "ocs" in name else "packet") for name in names),
        tuple(links),
    )


@given(mixed())
def test_the_packet_part_has_the_nics_on_packet_switches_and_their_links(fabric: Fabric) -> None:
    part = packet_part(fabric)
    assert list(part.nics) == list(part.fabric.nics)
    assert list(part.nics.values()) == [nic for nic in fabric.nics if on_packet_switch(fabric, nic)]
    for here, there in part.nics.items():
        assert part.fabric.nic_rate_bps(here) == fabric.nic_rate_bps(there)
        assert part.fabric.peer(part.fabric.nic_port(here)) == fabric.peer(fabric.nic_port(there))
        assert part.fabric.servers[here.server].name == fabric.servers[there.server].name
    trunks = [link for link in fabric.links if not {link.a.node, link.b.node} & fabric.server_index.keys()]
    assert [link for link in part.fabric.links if link.a.node in part.fabric.switch_index] == trunks


@given(mixed())
def test_the_gpus_of_the_packet_part_are_in_their_servers(fabric: Fabric) -> None:
    part = packet_part(fabric)
    kept = [(gpu, here) for gpu, here in enumerate(part.gpus) if here != -1]
    assert [here for _, here in kept] == list(range(part.fabric.gpus))
    for gpu, here in kept:
        names = [each.servers[each.gpu_servers[n]].name for each, n in ((fabric, gpu), (part.fabric, here))]
        assert names[0] == names[1]
    has_packets = {nic.server for nic in part.nics.values()}
    assert {fabric.gpu_servers[gpu] for gpu, _ in kept} == has_packets


@given(mixed())
def test_packets_join_servers_with_neither_ocs_nor_server_between(
    fabric: Fabric,
) -> None:
    for near in range(len(fabric.servers)):
        for far in range(len(fabric.servers)):
            names = [fabric.servers[server].name for server in (near, far)]
            others = {server.name for server in fabric.servers} - set(names)
            others |= {switch.name for switch in fabric.switches if switch.kind == "ocs"}
            graph = nx.Graph(fabric.graph())
            graph.remove_nodes_from(others)
            if near != far:
                assert packets_join(fabric, near, far) == nx.has_path(graph, *names)


@given(fabrics)
def test_a_fabric_without_an_ocs_is_its_own_packet_part(fabric: Fabric) -> None:
    if all(switch.kind == "packet" for switch in fabric.switches):
        assert not is_mixed(fabric)
        assert packet_part(fabric).fabric == fabric
        assert all(here == there for here, there in packet_part(fabric).nics.items())


@given(mixed())
def test_light_never_reaches_a_nic_on_a_packet_switch(fabric: Fabric) -> None:
    assert is_mixed(fabric)
    for nic in fabric.nics:
        peers = light_peers(fabric, nic)
        assert not any(on_packet_switch(fabric, peer) for peer in peers)
        assert not (on_packet_switch(fabric, nic) and peers)
