"""What the machine really set, and what its ports have sent: read back from the kernel."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from pyroute2 import IPRoute

from testbed.machine.netlink import ATTRIBUTE_BYTES, CERTAIN, RED, RED_COUNTS, TICK_NS
from testbed.network.netem import Netem
from testbed.network.network import Network
from testbed.network.wiring import Shape
from topologies.addresses import interface
from topologies.fabric import Port

TOLERANCE = 0.01


@dataclass(frozen=True)
class PortSetting:
    """How a port sends, as the kernel has it, and what it sent and its queue dropped so far."""

    shape: Shape | None
    """Its shaper; None if there is none."""
    netem: Netem | None
    """Its delay and loss; None if there is no netem."""
    mtu: int
    """Largest packet [bytes]."""
    drops: int
    """Packets that its full queue dropped, which a netem's loss is none of."""
    lost: int
    """Packets that left a server, or a switch that routes, and that the kernel was too slow to hand on."""
    marked: int
    """Packets that it marked (ECN) so far."""
    sent_bytes: int
    """What left it, Ethernet's headers among it [bytes]."""
    sent_packets: int
    unsent: int
    """Packets that it was given after the other end of its link had gone, or that did not fit there."""


def port_settings(network: Network) -> dict[Port, PortSetting]:
    """Return the settings of every linked port."""
    settings: dict[Port, PortSetting] = {}
    for ports in network.wiring.together(network.fabric.link_at):
        with network.wiring.inside(ports[0].node):
            settings |= _settings_here(network, ports)
    return settings


def unmet(network: Network, settings: dict[Port, PortSetting]) -> list[str]:
    """Return a sentence for each setting that did not take effect; one such makes a result void."""
    sentences = []
    for port, asked in network.wiring.shapes.items():
        found = settings.get(port)
        if found is None or found.shape is None:
            sentences.append(f"port {port} is not shaped")
        elif not _alike(found.shape, asked):
            sentences.append(f"port {port} is shaped to {found.shape}, not to {asked}")
        elif found.mtu != network.mtu:
            sentences.append(f"port {port} has an MTU of {found.mtu}, not {network.mtu}")
    for port, netem in network.netems.items():
        found = settings.get(port)
        if found is None or not _alike(found.netem or Netem(), netem):
            sentences.append(f"port {port} has {found and found.netem}, not {netem}")
    return sentences


def effective(network: Network, settings: dict[Port, PortSetting]) -> dict[str, object]:
    """Return what run.json keeps of the settings."""
    return {
        "ports": {
            str(port): {**(asdict(setting.shape) if setting.shape else {}), "mtu": setting.mtu}
            for port, setting in sorted(settings.items())
        },
        "switch_send_buffer_bytes": network.send_buffer_bytes,
        "flows": {switch.name: switch.flows for switch in network.northbound.switches()},
        **({"routes": network.switches.counts} if network.wiring.routers else {}),
    }


def _settings_here(network: Network, ports: Iterable[Port]) -> dict[Port, PortSetting]:
    """Return the settings of ports whose interfaces are in this thread's namespace."""
    names = {interface(network.fabric, port): port for port in ports}
    with IPRoute() as kernel:
        links = {link["index"]: link for link in kernel.get_links()}
        qdiscs = {(qdisc["index"], qdisc.get_attr("TCA_KIND")): qdisc for qdisc in kernel.get_qdiscs()}
    settings = {}
    for index, link in links.items():
        port = names.get(link.get_attr("IFLA_IFNAME"))
        if port is not None:
            shaper, netem, marker, first = (
                qdiscs.get((index, kind)) for kind in ("tbf", "netem", "red", "htb")
            )
            counts = link.get_attr("IFLA_STATS64")
            settings[port] = PortSetting(
                _shape(shaper, marker, acks_first=first is not None) if shaper else None,
                _netem(netem) if netem else None,
                link.get_attr("IFLA_MTU"),
                shaper.get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")["drops"] if shaper else 0,
                # What a port of Open vSwitch lost is in its own counters.
                0 if network.wiring.namespace_of(port.node) is None else counts["tx_dropped"],
                _marked(marker) if marker else 0,
                counts["tx_bytes"],
                counts["tx_packets"],
                counts["tx_dropped"],
            )
    return settings


def _shape(shaper: "dict[str, object]", marker: "dict[str, object] | None", *, acks_first: bool) -> Shape:
    parameters = shaper.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")  # type: ignore[attr-defined]
    burst_s = parameters["buffer"] * TICK_NS / 1e9
    rate_bytes_s, queue_bytes = parameters["rate"], parameters["limit"]
    marks = _mark_bytes(marker) if marker else (0, 0)
    return Shape(8.0 * rate_bytes_s, round(burst_s * rate_bytes_s), queue_bytes, *marks, acks_first)


def _mark_bytes(marker: "dict[str, object]") -> tuple[int, int]:
    """Return behind how much a RED marks packets, and over how much more the share of them rises.

    pyroute2 knows no RED, and gives bytes as they are.
    """
    first = bytes.fromhex(marker.get_attr("TCA_OPTIONS").replace(":", ""))  # type: ignore[attr-defined]
    _, least_bytes, most_bytes, *_ = RED.unpack_from(first, ATTRIBUTE_BYTES)
    return least_bytes, most_bytes - least_bytes


def _marked(marker: "dict[str, object]") -> int:
    """Return how many packets a RED has marked."""
    counts = bytes.fromhex(marker.get_attr("TCA_XSTATS").replace(":", ""))  # type: ignore[attr-defined]
    marked: int = RED_COUNTS.unpack(counts)[3]
    return marked


def _netem(netem: "dict[str, object]") -> Netem:
    options = netem.get_attr("TCA_OPTIONS")  # type: ignore[attr-defined]
    return Netem(options["delay"] * TICK_NS * 1e-9, options["loss"] / CERTAIN)


def _alike(found: Shape | Netem, asked: Shape | Netem) -> bool:
    pairs = zip(asdict(found).values(), asdict(asked).values(), strict=True)
    return all(abs(one - other) <= TOLERANCE * other for one, other in pairs)
