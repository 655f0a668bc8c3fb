"""Slots of recorded plans, lit again by a test's clock: their messages over NICs and light that are modelled.

A NIC sends what it is given in order, at its rate. What leaves while its circuit is lit is received a little
later; what leaves in the dark is lost.
"""

import heapq
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import TypedDict, cast

import numpy as np
import pytest

from testbed.experiment.dilation import Dilation
from testbed.live import lit_lanes
from testbed.live.lit_lanes import LitLanes
from testbed.network.network import Network
from topologies.fabric import Nic
from traffic.packets import ETHERNET_HEADER_BYTES
from traffic.scheme_setup import WhileLitSetup
from traffic.spraying.policy import LaneSet
from traffic.transports import datagram_engine, loop, nic_sender
from traffic.transports.datagram_sockets import Address, DatagramEndpoints
from traffic.transports.loop import Arrival
from traffic.transports.slots import Margins, Meeting

RECORDED = Path(__file__).parent / "recorded_slots.json"
STEP_S = 0.001
LANDS_S = 0.0005
"""From leaving a NIC until it is received [s]."""
FRAME_BYTES = ETHERNET_HEADER_BYTES + 28
"""Ethernet's, IP's and UDP's of a packet."""


class Owed(TypedDict):
    """A message that was posted."""

    at_s: float
    bytes: int
    ends: list[list[str]]
    """The NICs between which it may go."""


class Light(TypedDict):
    """News of an OCS."""

    at_s: float
    ocs: str
    outputs: dict[str, str]
    until_s: float | None
    ended: bool


class Plan(TypedDict):
    """A plan as it was recorded, and what each of its slots carried."""

    name: str
    ends_s: float
    """When all had arrived."""
    ocs_of: dict[str, str]
    rate_bps: float
    meeting: Meeting
    mtu: int
    guard_s: float
    owed: list[Owed]
    light: list[Light]
    slots: list[list[int]]
    """Bytes that each was given, delivered and lost, in the order of their light."""


def plans() -> list[Plan]:
    """Return the plans that were recorded."""
    return cast(list[Plan], json.loads(RECORDED.read_text()))


class Clock:
    """Time as the test has it [s]."""

    now = 0.0

    def monotonic(self) -> float:
        """Return it."""
        return self.now


class Wire:
    """NICs that send at a rate, and light."""

    def __init__(self, clock: Clock, rate_bps: float, light: Sequence[Light]) -> None:
        self._clock, self._byte_s = clock, 8 / rate_bps
        self._lit: dict[tuple[str, str], list[tuple[float, float]]] = {}
        next_s = dict[str, float]()
        for news in reversed(light):
            until_s = news["until_s"] or next_s.get(news["ocs"], news["at_s"])  # some are kept in the dark
            next_s[news["ocs"]] = news["at_s"]
            for ends in news["outputs"].items():
                self._lit.setdefault(ends, []).append((news["at_s"], until_s))
        self.loses = False
        """Whether what leaves now is lost, whatever the light."""
        self.dead = set[str]()
        """NICs of which nothing arrives."""
        self.lands_s = LANDS_S
        self.slower: dict[str, float] = {}
        """How many times as long as the engine knows some NICs take."""
        self.is_full = False
        """Whether NICs take no packet now."""
        self._free_s: dict[str, float] = {}
        self._landing: list[tuple[float, int, Callable[[], object]]] = []
        self._tickets = count()

    def send(self, near: str, far: str, size: int, lands: Callable[[], object]) -> None:
        """Send a packet of so many bytes."""
        begins_s = max(self._free_s.get(near, 0.0), self._clock.now)
        leaves_s = self._free_s[near] = begins_s + self._takes_s(near, size + FRAME_BYTES)
        lit = self._lit.get((near, far), ())
        if not (self.loses or near in self.dead) and any(
            from_s <= leaves_s <= until_s for from_s, until_s in lit
        ):
            heapq.heappush(self._landing, (leaves_s + self.lands_s, next(self._tickets), lands))

    def waits(self, nic: str) -> int:
        """Return the bytes that a NIC has not sent."""
        return round(max(self._free_s.get(nic, 0.0) - self._clock.now, 0.0) / self._takes_s(nic, 1))

    def _takes_s(self, nic: str, size: int) -> float:
        return size * self._byte_s * self.slower.get(nic, 1.0)

    def turn(self) -> None:
        """Have what is due land."""
        while self._landing and self._landing[0][0] <= self._clock.now:
            heapq.heappop(self._landing)[2]()


class Sender(socket.socket):
    """The socket of a NIC, whose packets go by the wire."""

    def __init__(self, wire: Wire, nic: Nic, receivers: Mapping[int, socket.socket]) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)
        self.nic, self._wire, self._receivers = str(nic), wire, receivers

    def sendto(self, data: bytes, to: Address) -> int:  # type: ignore[override]  # of this form only
        """Send a packet to a NIC, by its name."""
        if self._wire.is_full:
            raise BlockingIOError
        receiver, packet = self._receivers[nic_of(to[0]).server], bytes(data)  # the next is put in its place
        self._wire.send(self.nic, to[0], len(data), lambda: self._land(packet, receiver))
        return len(data)

    def _land(self, data: bytes, receiver: socket.socket) -> None:
        super().sendto(data, receiver.getsockname())


def nic_of(text: str) -> Nic:
    """Return a NIC by its name."""
    return Nic(*map(int, text.split(".")))


@dataclass
class Lit:
    """A plan under way."""

    lanes: LitLanes
    wire: Wire
    clock: Clock
    _turns: Iterator[list[Arrival]]

    def run(self, seconds: float = inf) -> list[Arrival]:
        """Let time pass, at most to the end of the plan; return what arrived."""
        until_s, arrived = self.clock.now + seconds, list[Arrival]()
        while self.clock.now < until_s - STEP_S / 2 and (turn := next(self._turns, None)) is not None:
            arrived += turn
        return arrived


@contextmanager
def lit_again(plan: Plan) -> Iterator[Lit]:
    """Yield a plan whose light is to come again."""
    clock = Clock()
    wire = Wire(clock, plan["rate_bps"], plan["light"])
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for module in (datagram_engine, loop, lit_lanes):
            patch.setattr(module, "time", clock)
        patch.setattr(nic_sender, "unsent_bytes", lambda sender: wire.waits(sender.nic))
        lanes = stack.enter_context(_lanes(plan, wire))
        yield Lit(lanes, wire, clock, _turns(plan, lanes, wire, clock))


def _turns(plan: Plan, lanes: LitLanes, wire: Wire, clock: Clock) -> Iterator[list[Arrival]]:
    """Yield what arrives in each turn."""
    for _ in _happenings(plan, lanes, clock):
        wire.turn()
        yield lanes.turn()


def _lanes(plan: Plan, wire: Wire) -> LitLanes:
    receivers = dict[int, socket.socket]()

    def open_receiver(server: int) -> socket.socket:
        receivers[server] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receivers[server].bind(("127.0.0.1", 0))
        return receivers[server]

    def open_sender(nic: Nic) -> Sender:
        return Sender(wire, nic, receivers)

    endpoints = DatagramEndpoints(open_sender, open_receiver, lambda nic, _: (str(nic), 0), open_sender)
    network = SimpleNamespace(mtu=plan["mtu"], datagrams_at=lambda _port: endpoints)
    return LitLanes(
        cast(Network, network),
        Dilation(1.0, 1.0),
        {nic_of(nic): ocs for nic, ocs in plan["ocs_of"].items()},
        WhileLitSetup(plan["meeting"], Margins(plan["guard_s"])),
        lambda _nic: plan["rate_bps"],
    )


def _happenings(plan: Plan, lanes: LitLanes, clock: Clock) -> Iterator[None]:
    """Have messages posted and light come when they did, and yield a turn after the other."""
    of = groupby(enumerate(plan["owed"]), key=lambda row: row[1]["at_s"])
    does = [(at_s, partial(_post, lanes, list(owed))) for at_s, owed in of]
    does += [(news["at_s"], partial(_shine, lanes, news, clock)) for news in plan["light"]]
    for at_s, do in sorted(does, key=lambda row: row[0]):
        while clock.now < at_s:
            clock.now = min(clock.now + STEP_S, at_s)
            yield
        do()
    while clock.now < plan["ends_s"]:
        clock.now += STEP_S
        yield


def _post(lanes: LitLanes, owed: Sequence[tuple[int, Owed]]) -> None:
    """Post messages together."""
    sets = [tuple(LaneSet((nic_of(near),), (nic_of(far),)) for near, far in each["ends"]) for _, each in owed]
    numbers = [tuple(map(hash, each)) for each in sets]
    sizes = np.array([each["bytes"] for _, each in owed])
    lanes.post(numbers, sets, sizes, [number for number, _ in owed])


def _shine(lanes: LitLanes, light: Light, clock: Clock) -> None:
    outputs = {nic_of(near): nic_of(far) for near, far in light["outputs"].items()}
    if light["ended"]:
        lanes.ended(light["ocs"], clock.now)
    elif light["until_s"] is None:
        lanes.dark(light["ocs"], outputs)
    else:
        lanes.lit(light["ocs"], outputs, light["until_s"], clock.now)
