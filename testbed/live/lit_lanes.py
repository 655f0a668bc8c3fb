"""Messages over the circuits of slots: lanes of datagrams, each open while light leads from NIC to NIC.

The light of a NIC leads to one other NIC at a time, and all messages that may go there take turns. When the
light turns, packets that have not arrived are lost, and their bytes go by the lane that is open next. The
bytes that the lanes of an OCS sent, delivered and lost are recorded for each slot.
"""

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

from testbed.core.backend import Left
from testbed.experiment.dilation import Dilation
from testbed.network.network import Network
from topologies.fabric import Nic
from traffic.messages import Chunks
from traffic.scheme_setup import WhileLitSetup
from traffic.spraying.policy import SPRAYED, Lanes, QueuePair, each_of
from traffic.transports.datagram_engine import DatagramEngine
from traffic.transports.datagram_lane import Moved
from traffic.transports.loop import Arrival
from traffic.transports.packet_feeder import PacketFeeder
from traffic.transports.slots import (
    AHEAD_S,
    SLOT_HEADER_BYTES,
    SLOT_PORT,
    SlotRecord,
    patience_s,
    slot_packet_bytes,
)
from traffic.transports.transport import NicRate


@dataclass(frozen=True)
class _FirstOpen:
    """Messages that take the first of their lanes that is open."""

    lanes: tuple[Lanes, ...]
    chunks: Chunks
    policy = None
    first = 0


@dataclass(frozen=True)
class _Light:
    """Where a NIC's light leads, and until when its lanes there are open [s]."""

    towards: Nic | None
    until_s: float


DARK = _Light(None, -math.inf)


class LitLanes:
    """The lanes of one run, and the messages that take those that are open; a context manager.

    Parameters
    ----------
    network
        Whose servers send.
    dilation
        The scale of bytes and time.
    ocs_of
        The OCS that each NIC is on.
    sending
        The policy of senders before a reconfiguration.
    nic_rate_bps
        The rate that a NIC has now, at emulated scale [bit/s].
    """

    def __init__(
        self,
        network: Network,
        dilation: Dilation,
        ocs_of: Mapping[Nic, str],
        sending: WhileLitSetup,
        nic_rate_bps: NicRate,
    ) -> None:
        self._dilation, self._ocs_of, self._nic_rate_bps = dilation, ocs_of, nic_rate_bps
        self._meeting = sending.meeting
        self._guard_s = sending.margins.guard_s if sending.meeting == "drain" else 0.0
        self._packet_bytes = slot_packet_bytes(min(map(nic_rate_bps, ocs_of), default=1.0), network.mtu)
        self._engine = DatagramEngine(
            network.datagrams_at(SLOT_PORT),
            nic_rate_bps,
            algorithm=None,  # a circuit joins two NICs alone
            packet_bytes=self._packet_bytes,
            header_bytes=SLOT_HEADER_BYTES,
            ahead_s=AHEAD_S,
            patience_s=patience_s(sending.meeting),
            excused=lambda: True,
        )
        self._lane_of: dict[int, int] = {}
        """The engine's number of each queue pair of the run."""
        self._between: dict[tuple[Nic, Nic | None], list[int]] = defaultdict(list)
        """The engine's lanes from each NIC to each other."""
        self._light = dict.fromkeys(ocs_of, DARK)
        self._feeders: dict[int, PacketFeeder] = {}
        """The feeder of each message that was posted and not taken back."""
        self.slots: list[SlotRecord] = []
        self._current: dict[str, tuple[SlotRecord, Moved]] = {}
        """The slot that each OCS shows, and what its lanes had moved before."""

    def __enter__(self) -> Self:
        """Get ready."""
        self._engine.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Close its sockets."""
        self._engine.__exit__(*error)

    def rates_changed(self) -> None:
        """Reckon with the rates that NICs have now."""
        self._engine.rates_changed()

    # Messages

    def post(
        self,
        numbers: Sequence[tuple[int, ...]],
        lanes: Sequence[Lanes],
        sizes: NDArray[np.int64],
        messages: Sequence[int],
    ) -> None:
        """Send messages by their lanes while these are open.

        Parameters
        ----------
        numbers, lanes
            What each message may use: the run's numbers of queue pairs, and these.
        sizes, messages
            Real bytes and number of each message.
        """
        own = [
            tuple(map(self._lane, mine, each_of(among))) for mine, among in zip(numbers, lanes, strict=True)
        ]
        feeder = PacketFeeder(
            _FirstOpen(tuple(lanes), Chunks(np.arange(len(sizes)), sizes)),
            self._dilation.emulated_bytes(sizes),
            self._nic_rate_bps,
            numbers=own,
            names=messages,
            began_at=time.monotonic(),
            real_s=self._dilation.real_s,
            packet=self._packet_bytes,
            volume=self._dilation.volume,
            time=self._dilation.time,
        )
        self._feeders.update(dict.fromkeys(messages, feeder))
        self._engine.feed(feeder)

    def _lane(self, number: int, queue_pair: QueuePair) -> int:
        """Return the lane of one of the run's queue pairs; one that is new is open if there is light."""
        if number not in self._lane_of:
            own = self._lane_of[number] = self._engine.add(replace(queue_pair, entropy=SPRAYED))
            near, far = queue_pair.source, queue_pair.destination
            self._between[near, far].append(own)
            light = self._light[near]
            self._engine.open([own], light.until_s if light.towards == far else -math.inf)
        return self._lane_of[number]

    @property
    def owes(self) -> bool:
        """Whether messages were posted that were not taken back, arrived or not."""
        return bool(self._feeders)

    @property
    def missing_bytes(self) -> int:
        """The bytes of all messages that have not arrived [emulated]."""
        return sum(feeder.left_bytes for feeder in set(self._feeders.values()))

    @property
    def delivered(self) -> tuple[int, int]:
        """How many packets arrived, and the bytes that they carried [emulated]."""
        return self._engine.packets.arrived, self._engine.health.payload_bytes

    def lacking(self, message: int) -> int:
        """Return the bytes of a message to light circuits for: what has not arrived, and a packet."""
        feeder = self._feeders[message]
        lacks = feeder.real_bytes(message) - sum(feeder.carried(message).values())
        return lacks + math.ceil(self._packet_bytes / self._dilation.volume) * feeder.lacks(message)

    def stop(self, message: int) -> list[Left]:
        """Take back what a message lacks; return that, and what queue pairs carried of it [real bytes]."""
        feeder = self._feeders.pop(message)
        numbers = {own: number for number, own in self._lane_of.items()}
        carried = {numbers[own]: size for (own, _), size in feeder.carried(message).items()}
        lacks = [feeder.real_bytes(message) - sum(carried.values())] * feeder.lacks(message)
        if lacks:
            self._engine.recall(feeder, [message])
        return [
            *(Left(message, number, carried=size) for number, size in sorted(carried.items())),
            *(Left(message, -1, left=size) for size in lacks),
        ]

    def turn(self) -> list[Arrival]:
        """Send what can be sent; return the messages that arrived."""
        return self._engine.serve_now()

    @property
    def is_behind(self) -> bool:
        """True if NICs take more than the last turn gave them, so that the next is due at once."""
        return self._engine.is_behind and not self._engine.quiet

    @property
    def busy(self) -> bool:
        """Whether something is on its way, or waits for a lane that is open."""
        return self._engine.busy

    # Light

    def lit(self, ocs: str, outputs: Mapping[Nic, Nic], until_s: float, now_s: float) -> None:
        """Begin a slot: light leads from some NICs of an OCS to others, until a time [s, monotonic]."""
        closes_s = math.inf if self._meeting == "cut" else until_s - self._guard_s
        self._engine.hear()  # what waits to be read since the light before was not lost in its dark
        for nic in self._nics(ocs):
            self._point(nic, _Light(outputs.get(nic), closes_s), turns=self._meeting == "cut")
        self._settle(ocs)
        self.slots.append(SlotRecord(ocs, now_s, until_s, len(outputs)))
        self._current[ocs] = self.slots[-1], self._moved(ocs)

    def dark(self, ocs: str, outputs: Mapping[Nic, Nic]) -> None:
        """Close the lanes of an OCS between two slots, but for those of circuits that are kept.

        What others have on their way is looked for in the next light. Senders that cut take no notice.
        """
        if self._meeting == "cut":
            return
        for nic in self._nics(ocs):
            towards = self._light[nic].towards
            is_kept = towards is not None and towards == outputs.get(nic)
            self._point(nic, _Light(towards, math.inf if is_kept else -math.inf))

    def ended(self, ocs: str, now_s: float) -> None:
        """Close the lanes of an OCS that shows nothing more."""
        self._engine.hear()
        for nic in self._nics(ocs):
            self._point(nic, DARK, turns=True)
        if ocs in self._current:
            slot, _ = self._current[ocs]
            slot.until_s = min(slot.until_s, now_s)

    def end(self) -> None:
        """Count as lost what is on its way, and record what the last slots carried."""
        self._engine.lose(self._lane_of.values())
        for ocs in self._current:
            self._settle(ocs)

    def _nics(self, ocs: str) -> list[Nic]:
        return [nic for nic, own in self._ocs_of.items() if own == ocs]

    def _point(self, nic: Nic, light: _Light, *, turns: bool = False) -> None:
        """Record where a NIC's light leads, and until when; what is on its way is lost if the light turns."""
        before, self._light[nic] = self._light[nic], light
        if turns or light.towards != before.towards:
            left = self._between[nic, before.towards]
            self._engine.open(left, -math.inf)
            self._engine.lose(left)
        self._engine.open(self._between[nic, light.towards], light.until_s)

    def _moved(self, ocs: str) -> Moved:
        """Return the bytes that the lanes of an OCS have moved until now."""
        between = (own for (near, _), own in self._between.items() if self._ocs_of[near] == ocs)
        moved = map(self._engine.moved, chain.from_iterable(between))
        return Moved(*map(sum, zip(Moved(0, 0, 0), *moved, strict=True)))

    def _settle(self, ocs: str) -> None:
        """Record what the slot that an OCS shows has carried until now."""
        if ocs in self._current:
            slot, before = self._current[ocs]
            now = self._moved(ocs)
            slot.sent_bytes, slot.delivered_bytes, slot.lost_bytes = np.subtract(now, before).tolist()
