"""Mininet's own ``topos``, for ``mn --custom``: run in the checkout, under its ``.venv``.

    sudo .venv/bin/python /usr/bin/mn --custom topologies/mn.py --topo rail,4,2 --link tc --switch ovsbr,stp=1

The arguments are those of the builders, and ``mbps``: the rate of a NIC's link [Mbit/s], 100 by
default; all other links keep their ratio to it. ``--link tc`` is what makes Mininet shape them.
Stock ``mn`` brings switches and controllers of its own, and they limit what this can show:

- They learn addresses, so a fabric with loops (a rail fabric with two spines, a fat tree) floods
  itself unless ``--switch ovsbr,stp=1`` cuts the loops, which takes STP about half a minute.
  ``rail,4,2,0`` has no spine and no loop. lightrail's controller needs neither.
- Only NIC 0 of a server gets an address; the others are linked and up.
- An OCS becomes a learning switch like any other: there are no circuits in stock Mininet.

When ``mn`` ends with an exception it cleans the whole machine: it kills by name and deletes every
bridge. So what is wrong here is said in one line and ends ``mn`` with exit code 2, which it lets pass.
"""

# mn executes this file without __file__ and copies every name in it over its own globals, so
# all but `topos` is underscored.
import sys as _sys
from collections.abc import Callable as _Callable
from functools import partial as _partial
from importlib.util import find_spec as _find_spec
from os import getcwd as _getcwd

if _find_spec("topologies") is None:  # no editable install under this Python
    _sys.path.insert(0, _getcwd())
try:
    import networkx as _nx
    from mininet.topo import Topo as _Topo

    from topologies.addresses import datapath_id as _datapath_id
    from topologies.addresses import openflow_port as _openflow_port
    from topologies.big_switch import big_switch_fabric as _big_switch_fabric
    from topologies.errors import FabricError as _FabricError
    from topologies.fabric import Fabric as _Fabric
    from topologies.fat_tree import fat_tree_fabric as _fat_tree_fabric
    from topologies.leaf_spine import leaf_spine_fabric as _leaf_spine_fabric
    from topologies.parallel_ocs import parallel_ocs_fabric as _parallel_ocs_fabric
    from topologies.rail import rail_fabric as _rail_fabric
except ImportError as _error:
    print(
        f"{_error}; run mn as root, in lightrail's checkout and under its Python:"
        " .venv/bin/python /usr/bin/mn --custom topologies/mn.py --topo rail,4,2",
        file=_sys.stderr,
    )
    raise SystemExit(2) from None

_NIC_MBPS = 100.0
_MAX_MBPS = 1000.0  # mininet.link.TCIntf.bwParamMax: above it the link stays unlimited, with a log line


def _topo(build: _Callable[..., _Fabric], *args: object, mbps: float = _NIC_MBPS, **options: object) -> _Topo:
    """Return a builder's fabric as Mininet's Topo; what is wrong with it ends mn."""
    try:
        fabric = build(*args, **options)
        topo = _mininet_topo(fabric, mbps)
    except (_FabricError, TypeError, ValueError) as error:
        print(f"--topo: {error}", file=_sys.stderr)
        raise SystemExit(2) from None
    if _has_loops(fabric):
        print(
            "*** this fabric has loops, and learning switches flood them: add --switch ovsbr,stp=1",
            file=_sys.stderr,
        )
    return topo


def _mininet_topo(fabric: _Fabric, mbps: float) -> _Topo:
    scale = mbps / fabric.nic_rate_bps(fabric.nics[0])
    top_mbps = max(link.rate_bps for link in fabric.links) * scale
    if not 0 < top_mbps <= _MAX_MBPS:
        raise _FabricError(
            f"a link of {top_mbps:g} Mbit/s, and Mininet shapes from 0 to {_MAX_MBPS:g}",
            f"NICs of mbps={mbps:g} make the fastest link that fast; give another mbps",
        )
    topo = _Topo()
    for server in fabric.servers:
        topo.addHost(server.name)
    for switch in fabric.switches:
        # Explicit, because Mininet takes the first digits of the name: leaf0 and spine0 would collide.
        topo.addSwitch(switch.name, dpid=f"{_datapath_id(fabric, switch.name):016x}")
    for link in fabric.links:
        first, second = (
            port.number if port.node in fabric.server_index else _openflow_port(port.number)
            for port in (link.a, link.b)
        )
        topo.addLink(link.a.node, link.b.node, first, second, bw=link.rate_bps * scale)
    return topo


def _has_loops(fabric: _Fabric) -> bool:
    switches = fabric.graph().subgraph(switch.name for switch in fabric.switches)
    tree_edges = len(switches) - _nx.number_connected_components(switches)
    return bool(switches.number_of_edges() > tree_edges)


topos = {
    "rail": _partial(_topo, _rail_fabric),
    "fat_tree": _partial(_topo, _fat_tree_fabric),
    "leaf_spine": _partial(_topo, _leaf_spine_fabric),
    "big_switch": _partial(_topo, _big_switch_fabric),
    "parallel_ocs": _partial(_topo, _parallel_ocs_fabric),
}
