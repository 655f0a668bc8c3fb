"""Whether this kernel's TCP can control congestion as a transport wants it."""

import socket

from topologies.errors import MachineError

MARKED = ("dctcp",)
"""What needs switches that mark packets: none of these here does."""


def check_congestion_control(name: str | None) -> None:
    """Raise MachineError if this kernel, or this user, cannot have TCP control congestion by a name."""
    if name is None:
        return
    if name in MARKED:
        raise MachineError(
            f"tcp:{name} needs ports that mark packets (ECN), and emulated ports drop them only",
            "take tcp, tcp:bbr or credit",
        )
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as available:
            known = ", ".join(available.read().split())
        raise MachineError(
            f"this kernel's TCP cannot be set to {name!r}: {error.strerror}",
            f"take one of {known}, or load the module tcp_{name}",
        ) from error
