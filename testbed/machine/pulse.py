"""How late the kernel forwards, by packets that a shaper passes at every tick, on each CPU.

Where packet switches route there is no process to watch: the kernel forwards as it handles interrupts. What
keeps it from that, a hypervisor, or programs while ksoftirqd waits for their CPU, shows in no process of this
sandbox. So some packets take the same course: a shaper has them ahead of time and lets one pass at each tick,
and the kernel notes when each comes out of a veth pair. A shaper's timer stays on the CPU of the thread that
last filled it.
"""

import math
import os
import socket
import struct
import threading
import time
from contextlib import ExitStack, suppress
from typing import Self

from pyroute2.netlink.rtnl import RTM_NEWLINK

from testbed.machine.kernel import inside_namespace, new_network_namespace
from testbed.machine.netlink import IFF_UP, Batch, shaper_request

TICK_S = 0.02
AHEAD_S, ROUND_S = 0.5, 0.1
"""How far ahead shapers are filled, and how often [s]: a thread that is later than that is a stall too."""
MOST_CPUS = 8
"""CPUs that have a shaper, the first: a thread that fills more would itself use a part of one."""
KIND = 0x88B5
"""An EtherType for experiments (IEEE 802)."""
FRAME = bytes.fromhex("ffffffffffff" + "020000000000") + KIND.to_bytes(2) + bytes(46)
QUEUE_BYTES = 1 << 16
SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("@ll")
UP = {"flags": IFF_UP, "change": IFF_UP}


class PulseWatch:
    """Counts how late the kernel is between entering and leaving; a context manager."""

    def __init__(self) -> None:
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Begin to fill shapers."""
        with ExitStack() as stack:
            self.namespace = new_network_namespace()
            """A descriptor of the network namespace that shapers are in."""
            stack.callback(os.close, self.namespace)
            with inside_namespace(self.namespace):
                cpus = sorted(os.sched_getaffinity(0))[:MOST_CPUS]
                self.shapers = _make_links(cpus)
                """The number of each one's interface there."""
                self._pulses = [_Pulse(stack, cpu) for cpu in cpus]
            self._stack = stack.pop_all()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Look no more."""
        self._left.set()
        self._thread.join()
        self._stack.close()

    @property
    def longest_s(self) -> float:
        """The longest time by which a packet was late [s]."""
        return max(pulse.longest_s for pulse in self._pulses)

    @property
    def late_s(self) -> float:
        """For how long packets were late, together, on the CPU where that is longest [s]."""
        return max(pulse.late_s for pulse in self._pulses)

    def _run(self) -> None:
        while True:
            for pulse in self._pulses:
                pulse.look()
            if self._left.wait(ROUND_S):
                return


class _Pulse:
    """The shaper of a CPU, and what came of it."""

    def __init__(self, stack: ExitStack, cpu: int) -> None:
        self._cpu = cpu
        self.longest_s = self.late_s = 0.0
        self._last_s = math.nan
        self._sends, self._hears = (
            stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) for _ in range(2)
        )
        self._sends.bind((f"out{cpu}", 0))
        self._hears.bind((f"in{cpu}", KIND))  # IPv6 has packets of its own there
        self._hears.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._hears.setblocking(False)
        self._began_s, self._sent = time.monotonic(), 0

    def look(self) -> None:
        """Note what has come, and fill the shaper."""
        with suppress(BlockingIOError):
            while True:
                _, ((_, _, stamp), *_), _, _ = self._hears.recvmsg(1, socket.CMSG_SPACE(TIMESPEC.size))
                seconds, nanoseconds = TIMESPEC.unpack(stamp)
                self._note(seconds + nanoseconds / 1e9)
        with suppress(OSError):  # the CPU has been taken from this process
            os.sched_setaffinity(0, {self._cpu})
        due = int((time.monotonic() - self._began_s + AHEAD_S) / TICK_S)
        for _ in range(self._sent, due):
            self._sends.send(FRAME)
        self._sent = due

    def _note(self, at_s: float) -> None:
        # The kernel begins to note times a moment after it was asked to.
        if time.monotonic() - self._began_s > 2 * ROUND_S and not math.isnan(self._last_s):
            late_s = max(at_s - self._last_s - TICK_S, 0.0)
            self.late_s += late_s
            self.longest_s = max(self.longest_s, late_s)
        self._last_s = at_s


def _make_links(cpus: list[int]) -> list[int]:
    """Make a veth pair for each CPU, shaped to a packet in each tick; return the numbers of those shaped."""
    batch = Batch()
    for cpu in cpus:
        peer = {"attrs": [("VETH_INFO_PEER", {"attrs": [("IFLA_IFNAME", f"in{cpu}")]})]}
        info = {"attrs": [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", peer)]}
        batch.add(
            f"create out{cpu}", RTM_NEWLINK, UP, [("IFLA_IFNAME", f"out{cpu}"), ("IFLA_LINKINFO", info)]
        )
        batch.add(f"raise in{cpu}", RTM_NEWLINK, {**UP, "index": 0}, [("IFLA_IFNAME", f"in{cpu}")])
    batch.commit()
    shaper = shaper_request(round(len(FRAME) / TICK_S), len(FRAME), QUEUE_BYTES)
    shaped = [socket.if_nametoindex(f"out{cpu}") for cpu in cpus]
    for index in shaped:
        batch.add_qdisc(f"shape interface {index}", shaper, index)
    batch.commit()
    return shaped
