"""Whether TCP can control congestion here as a transport wants it, and ports mark packets for it."""

import socket
from functools import cache
from pathlib import Path

from testbed.machine.datapath import Datapath
from testbed.machine.netlink import kernel_takes, marker_request, shaper_request
from topologies.errors import MachineError, ScenarioError
from traffic.packets import frame_bytes

MOST_MARKED_BYTES = 3800
"""The largest packet of Open vSwitch's daemon that the kernel marks: of larger ones it keeps the IP header in
another page, where it does not look (INET_ECN_set_ce in include/net/inet_ecn.h, packet_alloc_skb in
net/packet/af_packet.c)."""
OF_LINUX = (
    "bbr", "bic", "cdg", "cubic", "dctcp", "highspeed", "htcp", "hybla", "illinois", "lp", "nv", "reno",
    "scalable", "vegas", "veno", "westwood", "yeah",
)  # fmt: skip
"""What may control congestion in Linux (net/ipv4/Kconfig), but for modules of others."""
DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def check_known(name: str | None) -> None:
    """Raise ScenarioError for a congestion control that neither Linux has nor a module of this kernel."""
    known = list(dict.fromkeys([*OF_LINUX, *_available()]))
    if name and name not in known:
        raise ScenarioError(f"no congestion control is named {name!r}", f"choose among {', '.join(known)}")


def check_congestion_control(name: str | None) -> None:
    """Raise MachineError if this kernel, or this user, cannot have TCP control congestion by a name."""
    if name is None:
        return
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        raise MachineError(
            f"this kernel's TCP cannot be set to {name!r}: {error.strerror}",
            f"take one of {', '.join(_available())}, or load the module tcp_{name}",
        ) from error


def begin_with(name: str) -> bool:
    """Have TCP of this thread's network namespace control congestion by a name where programs name none.

    Returns
    -------
    bool
        False if the kernel refuses: a namespace may begin with what tcp_allowed_congestion_control lists
        (tcp(7)), where cubic is missing if another one is the machine's. A route can still name it.
    """
    try:
        DEFAULT.write_text(name)
    except OSError:
        return False
    return True


def _available() -> list[str]:
    """Return what may control congestion in this kernel."""
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def check_marks(marked_for: str | None, datapath: Datapath, mtu: int) -> None:
    """Raise MachineError if ports are to mark packets (ECN) and cannot.

    Parameters
    ----------
    marked_for
        The reason (`TransportSetup.marked_for`); None if they are not.
    datapath
        What forwards.
    mtu
        Of the emulation's links [bytes].
    """
    if marked_for is None:
        return
    if not kernel_has_red():
        raise MachineError(
            f"this kernel has no RED, which marks packets (ECN) for {marked_for}",
            "load or install its module sch_red, or take credit, tcp or tcp:bbr, and --marks engine",
        )
    if datapath == "netdev" and frame_bytes(mtu) > MOST_MARKED_BYTES:
        raise MachineError(
            f"the kernel cannot mark packets of --mtu {mtu} (ECN), as {marked_for} needs it",
            "give --mtu 3000, or --datapath kernel",
        )


@cache
def kernel_has_red() -> bool:
    """Return whether RED can be put below a shaper; the kernel loads its module for that if it has one."""
    return kernel_takes(shaper_request(1 << 20, 1 << 20, 1 << 20), marker_request(1 << 19, 0, 1 << 20))
