"""Other settings for the servers' TCP on a network that is booted: for another transport."""

from dataclasses import replace

from testbed.machine.kernel import inside_namespace
from testbed.machine.netlink import Batch, route_request
from testbed.network.wiring import FIRST_TABLE, Wiring, interface_indices, route_metrics
from topologies.addresses import FABRIC_NETWORK, gateway_ip, interface, nic_ip
from topologies.errors import ScenarioError
from topologies.fabric import Nic
from topologies.packet_part import on_packet_switch
from traffic.transports.host_settings import HostSettings


def with_hosts(wiring: Wiring, host: HostSettings) -> Wiring:
    """Have connections over packet switches begin otherwise from now on; return the wiring with that.

    Raises
    ------
    ScenarioError
        If ports would have to mark packets otherwise (ECN): that takes other queues.
    """
    if host.mark_bytes != wiring.host.mark_bytes:
        raise ScenarioError(
            "switch ports mark packets (ECN) for one of the two transports and not for the other",
            "start anew with that --transport",
        )
    fabric, metrics = wiring.fabric, route_metrics(host)
    for server, namespace in enumerate(wiring.namespaces):
        with inside_namespace(namespace):
            batch, indices = Batch(), interface_indices()
            for nic in (Nic(server, number) for number in range(fabric.servers[server].nics)):
                if on_packet_switch(fabric, nic):
                    port = fabric.nic_port(nic)
                    request = route_request(
                        FABRIC_NETWORK,
                        gateway_ip(fabric, nic),
                        indices[interface(fabric, port)],
                        FIRST_TABLE + nic.nic,
                        source=nic_ip(fabric, nic),
                        metrics=metrics,
                    )
                    batch.add_route(f"route of {port}", request)
            batch.commit()
    return replace(wiring, host=host)
