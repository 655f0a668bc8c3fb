"""A fabric: servers, switches and the links between their ports, as one immutable value.

Everything is at real scale (100 Gbit/s is ``100e9``); what the emulation makes of it is
``testbed.experiment.dilation``'s business. Servers, GPUs, NICs, switches and ports count from 0.
A GPU has one number over the whole fabric: server 0's GPUs first, then server 1's.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import accumulate
from typing import Literal, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError

from topologies.errors import FabricError, TraceError
from topologies.strict_json import first_of, json_value, shown

FORMAT_VERSION = 1
"""Of a fabric's JSON."""

DEFAULT_BUFFER_BYTES = 2 << 20
NVLINK_BPS = 3.6e12
MOST_GPUS, MOST_LINKS = 1 << 20, 1 << 18
"""Of a fabric; a fat-tree of 32,768 NICs has 103,072 links."""
MOST_NODES, MOST_NICS, MOST_PORTS = 1 << 16, 1 << 8, 1 << 16
"""Servers or switches, NICs of one, ports of the other: addresses have two bytes, one and two for them."""
MOST_TIERS = 16
MOST_BUFFER_BYTES = 1 << 30
LEAST_BPS, MOST_BPS = 1.0, 1e18
"""Rates of links and NVLink, from far below to far above all there are [bit/s]."""
MOST_TIMES = 1e4
"""Between the rates of a fabric's links; over one that is a million times slower predictions take minutes."""
LONGEST_DELAY_S = 1.0
"""Of a link: light goes around the earth in 0.13 s [s]."""
NODE_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.][A-Za-z0-9_.-]{0,11}")
"""What the kernel takes for an interface, with a port behind it, and commands do not take for an option."""
SERVER_PORT, SWITCH_PORT = "nic", "p"
"""The words in an interface's name before the port's number: ``nic0`` on any server, ``leaf0-p3``."""
MOST_INTERFACE = 15
"""Characters of an interface's name, by the kernel."""
MOST_NAME = 64
"""Characters of a fabric's name."""
SwitchKind = Literal["packet", "ocs"]


class Port(NamedTuple):
    """One end of a link: the name of a server or switch, and a port (on a server: a NIC)."""

    node: str
    number: int

    def __str__(self) -> str:
        return f"{self.node}:{self.number}"


Path = tuple[Port, ...]
"""A path through the fabric: the ports that send, from the source's NIC to the last switch's port."""


class Nic(NamedTuple):
    """A NIC by the index of its server and its own index there."""

    server: int
    nic: int

    def __str__(self) -> str:
        return f"{self.server}.{self.nic}"


@dataclass(frozen=True, slots=True)
class Server:
    """A machine with GPUs; RailS calls it a domain."""

    name: str
    """Unique in the fabric; `NODE_NAME`. It is the host's name too."""
    nics: int
    """How many NICs, each with one link."""
    gpus: int
    """How many GPUs, joined to each other by NVLink."""
    nvlink_bps: float
    """Rate from one GPU to another inside the server [bit/s]."""
    slots: tuple[int, ...] = ()
    """The NIC in each slot, -1 where there is none, as after a failure; empty where NIC n is in slot n."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A packet switch (EPS), or an optical circuit switch (OCS)."""

    name: str
    """Unique in the fabric; `NODE_NAME`."""
    ports: int
    """How many ports, used or not."""
    kind: SwitchKind = "packet"
    """``packet`` forwards by address, ``ocs`` by circuit."""
    tier: int = 0
    """Distance from the servers: 0 for a leaf or an OCS, 1 above it, and so on."""
    permitted: tuple[tuple[int, ...], ...] = ()
    """The permutations that an OCS can show, each the output port of every input port or -1 where it
    stays dark; empty if it can show any."""

    def permits(self, circuits: Iterable[tuple[int, int]]) -> bool:
        """Return whether a permutation that the OCS can show has all these circuits (input, output)."""
        asked = set(circuits)
        return not self.permitted or any(asked <= set(enumerate(shown)) for shown in self.permitted)


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex cable between two ports."""

    a: Port
    b: Port
    rate_bps: float
    """Rate in each direction [bit/s]."""
    delay_s: float = 0.0
    """Propagation delay, one way [s]."""
    loss: float = 0.0
    """Probability that a packet is lost, in each direction, from 0 to less than 1."""

    def __str__(self) -> str:
        return f"{self.a} - {self.b}"

    def far_end(self, node: str) -> Port:
        """Return the port at the other end, seen from ``node``."""
        return self.b if self.a.node == node else self.a


@dataclass(frozen=True)
class Fabric:
    """What is wired, at real rates.

    Raises
    ------
    FabricError
        If a name occurs twice or is not one of the kernel's, two links share a port, a port or node
        does not exist, a link joins a node with itself or two servers, a rate, a delay, a buffer or a
        count is out of its range, a loss is no probability below 1, a NIC has no link, a permitted
        permutation is none of an OCS' ports, or there is no server.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)
    """How it is read from JSON."""

    name: str
    """What the fabric is, in one word: ``rail``, ``fat_tree``."""
    servers: tuple[Server, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    """Buffer of each switch port at *emulated* scale [bytes]: what a port may hold before it drops."""
    servers_forward: bool = False
    """Whether servers forward between circuits what is for others (`topologies.routes`)."""

    def __post_init__(self) -> None:
        """Refuse what cannot be wired."""
        _check_nodes(self)
        _check_links(self)

    def __hash__(self) -> int:
        """Return a number that equal fabrics share; found once, since thousands of links make one."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(
            (self.name, self.servers, self.switches, self.links, self.buffer_bytes, self.servers_forward)
        )

    @cached_property
    def gpu_offsets(self) -> tuple[int, ...]:
        """The number of each server's first GPU, and at the end the number of GPUs."""
        return tuple(accumulate((server.gpus for server in self.servers), initial=0))

    @property
    def gpus(self) -> int:
        """How many GPUs the fabric has."""
        return self.gpu_offsets[-1]

    @cached_property
    def gpu_servers(self) -> tuple[int, ...]:
        """The index of each GPU's server."""
        return tuple(index for index, server in enumerate(self.servers) for _ in range(server.gpus))

    @cached_property
    def server_of_gpu(self) -> NDArray[np.int64]:
        """The same as an array, read-only: made once, since of 32,768 GPUs it takes a millisecond."""
        servers = np.array(self.gpu_servers, dtype=np.int64)
        servers.setflags(write=False)
        return servers

    def pinned_nic(self, gpu: int) -> Nic:
        """Return the NIC that sits beside a GPU: the first that belongs to it (`pinned_gpu`).

        A GPU that none belongs to shares that of the last one before it; one whose slot is empty uses another
        NIC, and such GPUs take turns.
        """
        server = self.gpu_servers[gpu]
        index, nics, slots = gpu - self.gpu_offsets[server], *self._nics_of(server)
        slot = _slots_beside(self.servers[server].gpus, len(slots))[index]
        return Nic(server, nic if (nic := slots[slot]) != -1 else index % nics)

    def pinned_gpu(self, nic: Nic) -> int:
        """Return the GPU that a NIC belongs to: slot k of N to GPU floor(k G / N) of a server's G GPUs.

        Bytes that are gathered to cross over that NIC are gathered there.
        """
        slots = self._nics_of(nic.server)[1]
        slot = slots.index(nic.nic)
        return self.gpu_offsets[nic.server] + slot * self.servers[nic.server].gpus // len(slots)

    def rails(self, server: int) -> dict[int, int]:
        """Return the NIC of a server on each of its rails: rail n joins the NICs in slots n."""
        return {rail: nic for rail, nic in enumerate(self._nics_of(server)[1]) if nic != -1}

    def _nics_of(self, server: int) -> tuple[int, Sequence[int]]:
        """Return how many NICs a server has, and that in each slot."""
        nics = self.servers[server].nics
        return nics, self.servers[server].slots or range(nics)

    @cached_property
    def nics(self) -> tuple[Nic, ...]:
        """All NICs, server by server."""
        return tuple(
            Nic(index, nic) for index, server in enumerate(self.servers) for nic in range(server.nics)
        )

    @cached_property
    def ocs_parts(self) -> dict[str, str]:
        """Which part of the fabric each OCS is of: no light goes from OCSes of one to those of another."""
        names = {switch.name for switch in self.switches if switch.kind == "ocs"}
        ends = ((link.a.node, link.b.node) for link in self.links)
        ocses = nx.Graph([both for both in ends if names.issuperset(both)])
        ocses.add_nodes_from(names)
        return {name: min(part) for part in nx.connected_components(ocses) for name in part}

    @cached_property
    def light_parts(self) -> dict[Nic, str]:
        """The part into which each NIC's light goes; of one on a packet switch that switch."""
        nodes = {nic: self.peer(self.nic_port(nic)).node for nic in self.nics}
        return {nic: self.ocs_parts.get(node, node) for nic, node in nodes.items()}

    def nic_port(self, nic: Nic) -> Port:
        """Return the port that a NIC is."""
        return Port(self.servers[nic.server].name, nic.nic)

    def nic_at(self, port: Port) -> Nic:
        """Return the NIC that is a port of a server."""
        return Nic(self.server_index[port.node], port.number)

    @cached_property
    def link_at(self) -> dict[Port, Link]:
        """The link at each used port."""
        return {port: link for link in self.links for port in (link.a, link.b)}

    def peer(self, port: Port) -> Port:
        """Return the port at the other end of a used port's link."""
        return self.link_at[port].far_end(port.node)

    def both_ends(self, ports: Iterable[Port]) -> frozenset[Port]:
        """Return used ports and their peers."""
        return frozenset(end for port in ports for end in (port, self.peer(port)))

    def nic_rate_bps(self, nic: Nic) -> float:
        """Return the rate of a NIC's link [bit/s]."""
        return self.link_at[self.nic_port(nic)].rate_bps

    @cached_property
    def switch_index(self) -> dict[str, int]:
        """The index of each switch by its name."""
        return {switch.name: index for index, switch in enumerate(self.switches)}

    @cached_property
    def server_index(self) -> dict[str, int]:
        """The index of each server by its name."""
        return {server.name: index for index, server in enumerate(self.servers)}

    @property
    def impaired(self) -> bool:
        """Whether some link has delay or loss."""
        return any(link.delay_s or link.loss for link in self.links)

    @property
    def lossy(self) -> bool:
        """Whether some link loses packets."""
        return any(link.loss for link in self.links)

    def with_links(self, *, delay_s: float, loss: float) -> "Fabric":
        """Return the same fabric with all links of a delay [s] and a loss (probability)."""
        return replace(self, links=tuple(replace(link, delay_s=delay_s, loss=loss) for link in self.links))

    def with_buffer(self, buffer_bytes: int) -> "Fabric":
        """Return the same fabric with switch ports that hold so many bytes at emulated scale."""
        return replace(self, buffer_bytes=buffer_bytes)

    def used_ports(self, node: str) -> Iterator[Port]:
        """Yield a node's linked ports in order."""
        return iter(sorted(port for port in self.link_at if port.node == node))

    def graph(self) -> "nx.MultiGraph[str]":
        """Return the networkx view: a node per server and switch, an edge per link."""
        graph: nx.MultiGraph[str] = nx.MultiGraph(name=self.name)
        graph.add_nodes_from((server.name, {"kind": "server"}) for server in self.servers)
        graph.add_nodes_from((s.name, {"kind": s.kind, "tier": s.tier}) for s in self.switches)
        for link in self.links:
            graph.add_edge(link.a.node, link.b.node, ports=(link.a, link.b), rate_bps=link.rate_bps)
        return graph

    def to_json(self) -> str:
        """Return the fabric as JSON that `from_json` reads back."""
        return self._json

    @cached_property
    def _json(self) -> str:
        document = {"format": FORMAT_VERSION, **asdict(self)}
        for nodes, optional in _OPTIONAL_OF.items():
            for data in document[nodes]:
                for name in optional:
                    if not data[name]:
                        del data[name]
        if not self.servers_forward:
            del document["servers_forward"]
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> "Fabric":
        """Return the fabric that `to_json` wrote; FabricError, with the place, for another text."""
        try:
            document = json_value(text)
            version = document.pop("format", None) if isinstance(document, dict) else document
            if version != FORMAT_VERSION:
                raise _refused(f"format: found {shown(version)}, expected {FORMAT_VERSION}")
            return _reader().validate_json(json.dumps(document), strict=True)
        except TraceError as error:
            raise _refused(error.sentence) from error
        except ValidationError as error:
            raise _refused(first_of(error)) from error


@cache
def _reader() -> TypeAdapter[Fabric]:
    return TypeAdapter(Fabric)


def _refused(why: str) -> FabricError:
    hint = "write it with Fabric.to_json of this version"
    return FabricError(f"the text is not a valid fabric: {why}", hint)


_OPTIONAL_OF = {"servers": ("slots",), "switches": ("permitted",), "links": ("delay_s", "loss")}
"""What files do not have where it is nothing, as those were before servers, switches and links had it."""


@lru_cache(maxsize=64)
def _slots_beside(gpus: int, slots: int) -> tuple[int, ...]:
    """Return for each GPU of a server the first slot of its own, or that of the last GPU that has one."""
    found = list[int]()
    for gpu in range(gpus):
        own = (slot for slot in range(slots) if slot * gpus // slots == gpu)
        found.append(next(own, found[-1] if found else 0))
    return tuple(found)


def equal_servers(count: int, nics: int, gpus: int | None, nvlink_bps: float) -> tuple[Server, ...]:
    """Return servers h0, h1, ... that are all alike; by default with as many GPUs as NICs."""
    gpus = nics if gpus is None else gpus
    return tuple(Server(f"h{index}", nics, gpus, nvlink_bps) for index in range(count))


def nic_links(servers: int, nics: int, end: Callable[[int, int], Port], rate_bps: float) -> list[Link]:
    """Return the links of equal servers: ``end`` says at which port that of a server's NIC ends."""
    return [
        Link(Port(f"h{server}", nic), end(server, nic), rate_bps)
        for server in range(servers)
        for nic in range(nics)
    ]


def check_links(links: int) -> None:
    """Raise FabricError for more links than a fabric may have, before a builder makes them."""
    if links > MOST_LINKS:
        raise FabricError(f"a fabric of {shown(links)} links", f"give it at most {MOST_LINKS:,}")


def _check_nodes(fabric: Fabric) -> None:
    _check_names(fabric)
    for server in fabric.servers:
        _check_server(server)
    for switch in fabric.switches:
        _check_switch(switch)
    if (gpus := sum(server.gpus for server in fabric.servers)) > MOST_GPUS:
        raise FabricError(f"a fabric of {shown(gpus)} GPUs", f"give it at most {MOST_GPUS:,}")
    if not 1 <= fabric.buffer_bytes <= MOST_BUFFER_BYTES:
        raise FabricError(
            f"switch ports hold {shown(fabric.buffer_bytes)} bytes",
            f"give them room for a packet, and at most {MOST_BUFFER_BYTES:,} bytes",
        )


def _check_names(fabric: Fabric) -> None:
    if not (fabric.name.isprintable() and 0 < len(fabric.name) <= MOST_NAME):
        raise FabricError(
            f"a fabric is named {shown(fabric.name)}", f"give it 1 to {MOST_NAME} printable characters"
        )
    if not fabric.servers:
        raise FabricError(f"fabric {fabric.name!r} has no server", "give it at least one")
    for nodes, what in ((fabric.servers, "servers"), (fabric.switches, "switches")):
        if len(nodes) > MOST_NODES:
            raise FabricError(f"a fabric of {len(nodes):,} {what}", f"give it at most {MOST_NODES:,}")
    names = Counter([server.name for server in fabric.servers] + [switch.name for switch in fabric.switches])
    for name, count in names.items():
        if not NODE_NAME.fullmatch(name):
            raise FabricError(
                f"a node is named {shown(name)}",
                "give it 1 to 12 letters, digits, dots, hyphens and underscores, no hyphen first",
            )
        if count > 1:
            raise FabricError(f"{count} nodes are named {name!r}", "give each a name of its own")


def _check_server(server: Server) -> None:
    if not (1 <= server.nics <= MOST_NICS and server.gpus >= 1):
        raise FabricError(
            f"server {server.name} has {shown(server.nics)} NICs and {shown(server.gpus)} GPUs",
            f"give it at least one of each, and at most {MOST_NICS} NICs",
        )
    _check_rate(server.nvlink_bps, f"the NVLink of server {server.name}")
    if server.slots and sorted(nic for nic in server.slots if nic != -1) != list(range(server.nics)):
        raise FabricError(
            f"server {server.name} of {server.nics} NICs has them in slots {_listed(server.slots)}",
            "name each NIC once, and -1 for an empty slot",
        )


def _check_switch(switch: Switch) -> None:
    if not (1 <= switch.ports <= MOST_PORTS and 0 <= switch.tier < MOST_TIERS):
        raise FabricError(
            f"switch {switch.name} of tier {shown(switch.tier)} has {shown(switch.ports)} ports",
            f"give it 1 to {MOST_PORTS:,} ports, and a tier from 0 to {MOST_TIERS - 1}",
        )
    last = f"{switch.name}-{SWITCH_PORT}{switch.ports - 1}"
    if len(last) > MOST_INTERFACE:
        raise FabricError(
            f"the switch {switch.name!r} has an interface {last!r}, and the kernel takes "
            f"{MOST_INTERFACE} characters",
            f"give the switch a name of at most {len(switch.name) - len(last) + MOST_INTERFACE}",
        )
    _check_permitted(switch)


def _listed(numbers: Sequence[int]) -> str:
    """Return numbers in brackets, the first ones of many."""
    return f"({', '.join(map(shown, numbers[:8]))}{', ...' if len(numbers) > 8 else ''})"


def _check_permitted(switch: Switch) -> None:
    if switch.permitted and switch.kind != "ocs":
        raise FabricError(
            f"packet switch {switch.name} is limited to {len(switch.permitted)} permutations",
            "only an OCS has circuits",
        )
    for permutation in switch.permitted:
        lit = [(a, b) for a, b in enumerate(permutation) if b != -1]
        if (
            len(permutation) != switch.ports
            or len({b for _, b in lit}) < len(lit)
            or any(not 0 <= b < switch.ports or a == b for a, b in lit)
        ):
            raise FabricError(
                f"OCS {switch.name} of {switch.ports} ports cannot show {_listed(permutation)}",
                "give each port another one of its own, or -1",
            )


def _check_links(fabric: Fabric) -> None:
    check_links(len(fabric.links))
    ports = {node.name: node.nics for node in fabric.servers} | {s.name: s.ports for s in fabric.switches}
    seen: dict[Port, Link] = {}
    for link in fabric.links:
        _check_ends(fabric, link, ports)
        for port in (link.a, link.b):
            if port in seen:
                raise FabricError(
                    f"two links share the port {port}: {seen[port]} and {link}",
                    "give each link a port of its own",
                )
            seen[port] = link
        _check_rate(link.rate_bps, f"the link {link}")
        _check_impairment(link)
    _check_rates(fabric.links)
    for server in fabric.servers:
        for number in range(server.nics):
            if Port(server.name, number) not in seen:
                raise FabricError(
                    f"NIC {Port(server.name, number)} has no link", "connect it or leave it out"
                )


def _check_rates(links: Sequence[Link]) -> None:
    """Refuse links that are too unlike; the next slower tier of real fabrics has a tenth or a hundredth."""
    rate_bps = [link.rate_bps for link in links]
    if links and max(rate_bps) > MOST_TIMES * min(rate_bps):
        slow, fast = links[rate_bps.index(min(rate_bps))], links[rate_bps.index(max(rate_bps))]
        raise FabricError(
            f"the link {fast} has {fast.rate_bps:g} bit/s, and {slow} {slow.rate_bps:g}",
            f"let none be more than {MOST_TIMES:,.0f} times as fast as another",
        )


def _check_impairment(link: Link) -> None:
    if not 0 <= link.delay_s <= LONGEST_DELAY_S:
        raise FabricError(
            f"the link {link} has a delay of {link.delay_s:g} s",
            f"give it none, or at most {LONGEST_DELAY_S:g} s",
        )
    if not 0 <= link.loss < 1:
        raise FabricError(
            f"the link {link} has a loss of {link.loss:g}", "give a probability from 0 to below 1"
        )


def _check_ends(fabric: Fabric, link: Link, ports: Mapping[str, int]) -> None:
    for port in (link.a, link.b):
        if port.node not in ports:
            raise FabricError(f"a link ends at {shown(port.node)}, which is neither server nor switch")
        if not 0 <= port.number < ports[port.node]:
            raise FabricError(
                f"a link ends at port {shown(port.number)} of {port.node}, which has {ports[port.node]}",
                "count ports from 0",
            )
    if link.a.node == link.b.node:
        raise FabricError(f"the link {link} joins {link.a.node} with itself", "let it end elsewhere")
    if link.a.node in fabric.server_index and link.b.node in fabric.server_index:
        raise FabricError(f"the link {link} joins two servers", "put a switch between them")


def _check_rate(rate_bps: float, what: str) -> None:
    if not LEAST_BPS <= rate_bps <= MOST_BPS:
        raise FabricError(
            f"{what} has a rate of {rate_bps:g} bit/s", f"give a rate from {LEAST_BPS:g} to {MOST_BPS:g}"
        )
