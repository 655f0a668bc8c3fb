"""Whether this kernel picks next hops as `controller.packet.kernel_hash` does: it is asked which it would.

The kernel promises nobody to keep its hash. One with another would lead packets by other paths than
predictions take, and nothing else would tell.
"""

import os
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl import RTM_NEWLINK

from controller.packet.ecmp_hash import UDP, Headers
from controller.packet.kernel_hash import HASH_FIELDS, HASH_POLICY, kernels_bucket
from controller.packet.rules import Bucket
from testbed.machine.kernel import inside_namespace, new_network_namespace
from testbed.machine.netlink import IFF_UP, LOOPBACK, RT_TABLE_MAIN, Batch, NextHop, spread_request

SEED = 0x5EED
SYSCTLS = {
    "ip_forward": 1,
    "fib_multipath_hash_policy": HASH_POLICY,
    "fib_multipath_hash_fields": HASH_FIELDS,
    "fib_multipath_hash_seed": SEED,
}
NETWORK, SOURCE = IPv4Network("10.1.0.0/16"), IPv4Address("10.0.0.1")
GATEWAYS = {Bucket(1, 5): IPv4Address("169.254.0.1"), Bucket(2, 7): IPv4Address("169.254.0.2")}
"""The next hops of a route there, as buckets whose weights are theirs."""
ASKED = 32


@cache
def picks_as_computed() -> bool:
    """Return whether the kernel has the next hop that is computed for each of some packets.

    It is asked in a namespace made for that (30 ms); a wrong hash has one chance in billions to be right.
    """
    packets = [Headers("", "", SOURCE, NETWORK[number], 0, 0, UDP) for number in range(ASKED)]
    chosen = (kernels_bucket(packet, [*GATEWAYS], [True] * len(GATEWAYS), SEED) for packet in packets)
    return _picked(packets) == [str(GATEWAYS[bucket]) for bucket in chosen if bucket]


def _picked(packets: list[Headers]) -> list[str]:
    """Return the gateway to which the kernel would send each packet on; it takes ports for 0."""
    namespace, batch = new_network_namespace(), Batch()
    batch.add("raise lo", RTM_NEWLINK, {"index": LOOPBACK, "flags": IFF_UP, "change": IFF_UP})
    hops = [NextHop(LOOPBACK, gateway, bucket.weight) for bucket, gateway in GATEWAYS.items()]
    route = spread_request(NETWORK, hops, RT_TABLE_MAIN, source=None, metrics={})
    batch.add_route(f"route to {NETWORK}", route)
    try:
        with inside_namespace(namespace):
            for name, value in SYSCTLS.items():
                Path("/proc/sys/net/ipv4", name).write_text(str(value))
            batch.commit()
            with IPRoute() as kernel:
                return [_gateway(kernel, packet) for packet in packets]
    finally:
        os.close(namespace)


def _gateway(kernel: IPRoute, packet: Headers) -> str:
    (found,) = kernel.route("get", src=str(packet.ip_src), dst=str(packet.ip_dst), iif=LOOPBACK)
    return str(found.get_attr("RTA_GATEWAY"))
