"""The engine of datagrams: numbered, counted once, sent again if lost, as a congestion control allows.

One process and one epoll loop hold the sockets of all servers, so that one clock times all messages. A queue
pair carries parcels of messages in the order in which they are posted, or packets as a feeder binds them to
entropies (`traffic.transports.packet_feeder`). A packet leaves when its source's congestion control lets it
(`traffic.transports.sources`) and its NIC has nearly nothing to send: no kernel's window stands in between,
and what waits does so at the sender. The queue pairs of a NIC take turns, a packet each. A queue pair may be
held, or open until a time: its NIC then takes no packet that would leave later.

A packet counts as arrived after its path's delay, and is acknowledged after the way back
(`traffic.transports.propagation`). It is lost if one that left after it by the same path was received, since
paths keep their order, or if it is missing for `LOST_ROUND_TRIPS`. Its sender hears so with the other's
acknowledgement; its bytes go by a lane that is chosen anew where bytes choose. What arrives after all, or
twice, counts once. Acknowledgements are packets where that is asked for (`traffic.transports.ack_packets`).

All times here are those of `time.monotonic`, all sizes those of the emulation.
"""

import secrets
import socket
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from topologies.addresses import ENTROPIES
from topologies.errors import NetworkError, StuckError
from topologies.fabric import Nic
from traffic.congestion.control import OVERTAKEN, SILENT, TAKEN_BACK, Acknowledged, Lost, LostHow
from traffic.packets import MOST_MTU, burst_bytes, mtu_of
from traffic.spraying.policy import SPRAYED, QueuePair
from traffic.transports.ack_packets import AckPackets
from traffic.transports.datagram_lane import (
    NOT_NUMBERED,
    Crossed,
    DatagramLane,
    Moved,
    Packet,
    Parcel,
    Piece,
    Source,
    UnderWay,
)
from traffic.transports.datagram_sockets import (
    CONTROL,
    HEADER,
    PROBE,
    Address,
    DatagramEndpoints,
    PacketReader,
    receiving,
    sending,
)
from traffic.transports.flow_log import MOST_SOURCES, FlowLog
from traffic.transports.loop import STUCK_S, TICK_S, Arrival, Health, PacketCounts, QueuePairs
from traffic.transports.marking import USUAL, Marking
from traffic.transports.nic_sender import DEPTH_PACKETS, PLACED_PACKETS, NicSender
from traffic.transports.order import Orders
from traffic.transports.packet_feeder import Burst, NicGroup, PacketFeeder
from traffic.transports.propagation import Propagation, Received
from traffic.transports.registry import Algorithm
from traffic.transports.reordering import Reordering
from traffic.transports.sources import Sources
from traffic.transports.transport import HEADER_BYTES, PACKET_BYTES, NicRate, packet_s

TICK_PACKETS = 0.5
"""After how many packets' time of the fastest NIC congestion controls are asked, and NICs looked at."""
HELD_PACKETS = 4.0
"""Packets of the fastest NIC in whose time NICs go on with what they hold, about, while nobody looks."""
LOST_ROUND_TRIPS, LOST_PACKETS, LOSSY_PACKETS = 8.0, 250, 50
"""For how many round trips a packet is missing before it counts as lost, and for how many packets' time of
its NIC at least: a queue may grow faster than the smoothed round trip; fewer where links lose packets."""
SMOOTHING = 1 / 8
PROBE_S, PROBES_S = 0.2, 20.0
"""After how long a probe that did not arrive is sent again, and for how long [s]."""
LONGEST_TURN_S = 0.0005
"""For how long NICs that hold some time's packets are given more before others have their turn [s]."""
TURN_PACKETS = 4
"""Messages of a queue pair take turns in so many packets: what is counted of each packet is by message."""


class DatagramEngine(QueuePairs[DatagramLane, PacketFeeder]):
    """Moves bytes over queue pairs, which it calls by numbers; a context manager, made for one run.

    Parameters
    ----------
    endpoints
        How sockets are made.
    nic_rate_bps
        The rate of a NIC at emulated scale [bit/s].
    algorithm
        The congestion control of all; None where all may leave at once.
    packet_bytes
        Payload of a packet [bytes].
    seed
        Decides what is random in congestion controls and marks.
    switches_mark
        Whether switches' ports mark packets, by whose marks it goes; else it marks them itself.
    header_bytes
        What a packet takes of a link beside its payload; less than `HEADER_BYTES` where the engine's own
        header stands for a part of the payload.
    ahead_s
        A NIC takes more of what chooses its lanes while it will have sent all that it holds in so long [s];
        None for `DEPTH_PACKETS`, as the kernel counts what it holds.
    patience_s
        How long after its NIC has sent all a packet counts as lost [s], or as long as one took that did and
        came; None for some round trips after it has left itself.
    ack_packets
        Whether acknowledgements, announcements and grants are packets.
    check, stuck_s, excused
        As of `QueuePairs`.
    """

    fed = "packets", "a scheme must choose a lane that has room"

    def __init__(
        self,
        endpoints: DatagramEndpoints,
        nic_rate_bps: NicRate,
        *,
        algorithm: Algorithm | None,
        packet_bytes: int = PACKET_BYTES,
        seed: int = 0,
        switches_mark: bool = False,
        header_bytes: int = HEADER_BYTES,
        ahead_s: float | None = None,
        patience_s: float | None = None,
        ack_packets: bool = False,
        check: Callable[[], None] = lambda: None,
        stuck_s: float = STUCK_S,
        excused: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(check, stuck_s, excused)
        self._endpoints, self._nic_rate_bps, self._packet_bytes = endpoints, nic_rate_bps, packet_bytes
        self._switches_mark, self._algorithm = switches_mark, algorithm
        self._header_bytes, self._ahead_s, self._idle_patience_s = header_bytes, ahead_s, patience_s
        self._token = secrets.randbits(64)
        self.acks = AckPackets(endpoints, self._token, self._acknowledged) if ack_packets else None
        news = self.acks.news if self.acks else None
        self.sources = Sources(algorithm, nic_rate_bps, packet_bytes, seed, news)
        red = algorithm.marks if algorithm else None
        self.marking = Marking(red or USUAL, np.random.default_rng(seed))
        self._nics: dict[Nic, NicSender] = {}
        self._receivers: dict[int, socket.socket] = {}
        self._groups: dict[NicGroup, Source] = {}
        self._addresses: dict[Nic, list[Address]] = {}
        """Those of each NIC to which packets go by any entropy, by that."""
        self._ready: dict[NicSender, deque[DatagramLane]] = defaultdict(deque)
        """The queue pairs of each NIC that may send, in the order of their turns: a packet each."""
        self._under_way = UnderWay()
        self._propagation = Propagation()
        self.flow_log = FlowLog()
        self._orders = Orders()
        self._probed: set[int] = set()
        self._tick_s = inf
        """How often congestion controls are asked, and NICs looked at [s]."""
        self._turns = 0
        self.is_behind = False
        """True if the last turn ended before NICs were full."""
        self._turn_at = self._turned_at = 0.0
        self._asked_at = 0.0
        """When it was last asked to serve [s]: what its caller did before came before what arrives now."""
        self._heard_at = 0.0
        """When it last looked for what arrived [s]: what waits since then is not missing."""
        self._given_up: dict[tuple[int, int], float] = {}
        """When packets left that were missing too long, by lane and number."""
        self._landed = self._resent = self._late = 0
        self._ended = False
        """Whether a message has arrived since the last turn."""
        self._reader = PacketReader(marks=switches_mark)
        self._frame = bytearray(HEADER.size + MOST_MTU)
        """The packet that is being sent; its payload is zeros."""
        self._frames: dict[int, memoryview] = {}
        """Its first bytes, by how many of its payload they have."""

    @property
    def health(self) -> Health:
        """How all went until now."""
        counted = sum(lane.counted for lane in self._pairs)
        loop = self.loop
        away = loop.away(HELD_PACKETS * self._tick_s / TICK_PACKETS)
        return Health(self._resent, loop.lateness_s, counted, loop.stall_s, self.packets, away)

    @property
    def packets(self) -> PacketCounts:
        """What became of its packets until now."""
        sent = sum(lane.packets for lane in self._pairs)
        return PacketCounts(sent, self._landed, self._resent, self._late)

    @property
    def order(self) -> Reordering:
        """How packets overtook each other."""
        return self._orders.seen

    # Queue pairs

    def add(self, queue_pair: QueuePair) -> int:
        """Return the number of a new queue pair; nothing is opened for it but the sockets of its ends."""
        source, destination = queue_pair.source, queue_pair.destination
        if source not in self._nics:
            endpoint = sending(self.loop.stack, self._endpoints, source, marks=self._switches_mark)
            self._nics[source] = NicSender(
                endpoint, self._nic_rate_bps(source) / 8, self._packet_bytes, self._header_bytes
            )
        self._receive_at(destination.server)
        if self.acks:
            self._receive_at(source.server)
            for nic in (source, destination):
                self.acks.open(self.loop.stack, nic)
        is_sprayed = queue_pair.entropy == SPRAYED
        addresses = self._addresses.get(destination) if is_sprayed else None
        if addresses is None:
            entropies = range(ENTROPIES) if is_sprayed else [queue_pair.entropy % ENTROPIES]
            addresses = [self._endpoints.address(destination, entropy) for entropy in entropies]
        if is_sprayed:
            self._addresses[destination] = addresses
        crossed = Crossed(min(map(self._nic_rate_bps, (source, destination))) / 8)
        lane = DatagramLane(
            len(self._pairs), queue_pair, nic=self._nics[source], addresses=addresses, crossed=crossed
        )
        if not is_sprayed:
            lane.source = self.sources.add(lane)
        self._see_path(lane)
        self._pairs.append(lane)
        self._set_tick((source, destination))
        return lane.number

    def _receive_at(self, server: int) -> None:
        """Receive at a server from now on."""
        if server in self._receivers:
            return
        receiver = receiving(self.loop.stack, self._endpoints, server, self._token, marks=self._switches_mark)
        self._receivers[server] = receiver
        self.loop.watch(receiver.fileno(), lambda _event: self._receive(receiver))

    def _open_groups(self, feeder: PacketFeeder) -> None:
        """Have a source for each group of a feeder."""
        for group, numbers in feeder.groups.items():
            if group not in self._groups:
                first, *others = (self._pairs[number] for number in numbers)
                self._groups[group] = self.sources.add(first, group, others)

    def _set_tick(self, nics: Iterable[Nic]) -> None:
        """Look at NICs as often as the fastest of them, and of those before, needs it."""
        for nic in nics:
            tick_s = TICK_PACKETS * packet_s(self._nic_rate_bps(nic), self._packet_bytes)
            self._tick_s = min(self._tick_s, tick_s)

    def crosses(self, number: int, crossed: Crossed) -> None:
        """Note the path that a queue pair takes."""
        lane = self._pairs[number]
        lane.crossed = crossed
        self._see_path(lane)
        for source in lane.leads:
            self.sources.crosses(source)

    def _see_path(self, lane: DatagramLane) -> None:
        """Mark a queue pair's packets by its path, and by the rates that its NICs have now."""
        ends = lane.queue_pair.source, lane.queue_pair.destination
        bps = min(8 * lane.crossed.slowest_bytes_s, *map(self._nic_rate_bps, ends))
        time_s = packet_s(bps, self._packet_bytes)
        lent_s = 8 * burst_bytes(bps, mtu_of(self._packet_bytes)) / bps
        lane.curve = self.marking.curve(lane.crossed.propagation_s + time_s, time_s, lent_s)

    def connect(self, numbers: Sequence[int]) -> None:
        """Send a packet that carries nothing on each of some queue pairs, and wait until all have arrived.

        Raises
        ------
        NetworkError
            If one has not arrived within `PROBES_S`; it is named.
        """
        self._probed.clear()
        deadline, again_at = time.monotonic() + PROBES_S, 0.0
        while missing := [number for number in numbers if number not in self._probed]:
            now = time.monotonic()
            if now > deadline:
                raise NetworkError(
                    f"no packet of queue pair {self._pairs[missing[0]].queue_pair} arrived within "
                    f"{PROBES_S:g} s ({len(missing)} of {len(numbers)} had none)",
                    "look at the links and rules with --cli",
                )
            if now >= again_at:
                again_at = now + PROBE_S
                for number in missing:
                    lane = self._pairs[number]
                    lane.nic.send(HEADER.pack(self._token, number, PROBE, 0, 0), lane.addresses[0])
            self.serve(min(PROBE_S, deadline - now))

    def dial(self, number: int) -> None:
        """Do nothing: a datagram needs no connection."""

    def dialled(self, number: int) -> bool:
        """Return that a queue pair can send."""
        return True

    # Bytes

    def post(self, number: NDArray[np.int64], size: NDArray[np.int64], message: NDArray[np.int64]) -> None:
        """Put parcels behind what queue pairs carry: the queue pair, size and message of each, in order."""
        self._begins()
        turn_bytes = TURN_PACKETS * self._packet_bytes
        lanes, sizes, messages = _in_turns(number, size, message, turn_bytes)
        used, first = np.unique(lanes, return_index=True)
        edges = [*first.tolist(), len(lanes)]
        for which, (begin, end) in zip(used.tolist(), pairwise(edges), strict=True):
            self._post_on(self._pairs[which], sizes[begin:end].tolist(), messages[begin:end].tolist())

    def _post_on(self, lane: DatagramLane, sizes: Sequence[int], messages: Sequence[int]) -> None:
        assert lane.source  # what is posted is on a queue pair of one entropy
        parcels = {each: Parcel(each, 0, lane.source, self._orders.of(each)) for each in messages}
        for message, size in zip(messages, sizes, strict=True):
            parcels[message].size += size
            lane.unsent.append(Piece(parcels[message], size))
        self._put(lane, parcels.values())
        self.sources.want(lane.source, sum(sizes))
        self._line_up(lane)

    def feed(self, feeder: PacketFeeder) -> None:
        """Have a feeder bind packets to entropies as they go."""
        self._begins()
        self._feeders.append(feeder)
        self._open_groups(feeder)
        for group in feeder.groups:
            self.sources.want(self._groups[group], feeder.unbound(group))

    def _begins(self) -> None:
        super()._begins()
        self._turn_at = 0.0

    def _put(self, lane: DatagramLane, parcels: Iterable[Parcel]) -> None:
        if not lane.left:
            self._open += 1
            lane.moved_at = time.monotonic()
        lane.put(parcels)

    def room(self, nic: Nic) -> bool:
        """Return whether a NIC takes another packet."""
        return self._has_room(self._nics[nic])

    def _has_room(self, nic: NicSender) -> bool:
        if self._ahead_s is None:
            return nic.room(DEPTH_PACKETS, self._turns)
        has_time = nic.clear_s - time.monotonic() <= self._ahead_s
        return has_time and nic.room(PLACED_PACKETS, self._turns)  # it may be slower than known

    def allows(self, group: NicGroup) -> bool:
        """Return whether a packet of a group may leave; one that waits is larger than what is allowed."""
        source = self._groups[group]
        return source.allowed > 0 and not source.waiting

    def takes(self, number: int, group: NicGroup, size: int) -> bool:
        """Return whether so many bytes between two NICs may leave."""
        lane = self._pairs[number]
        return (
            not lane.held
            and self.allows(group)
            and self._has_room(lane.nic)
            and (lane.open_until_s == inf or lane.is_open(size, time.monotonic()))
        )

    @property
    def turn_is_over(self) -> bool:
        """Whether NICs that hold some time's packets may wait for more: other news may wait."""
        return self._ahead_s is not None and time.monotonic() > self._turned_at + LONGEST_TURN_S

    def put(self, feeder: PacketFeeder, burst: Burst) -> None:
        """Send bytes by a lane, what is allowed of them at once."""
        lane = self._pairs[burst.number]
        order = self._orders.of(burst.name)
        parcel = Parcel(burst.name, burst.size, self._groups[burst.group], order, burst, feeder)
        self._put(lane, (parcel,))
        for group in feeder.other_groups(burst):
            self.sources.want(self._groups[group], -burst.size)
        lane.unsent.append(Piece(parcel, burst.size, burst.order))
        self._line_up(lane)
        self._send(lane.nic)

    def _line_up(self, lane: DatagramLane) -> None:
        """Have a queue pair wait for its turn at its NIC, or for its source to be allowed something."""
        if lane.lined_up or lane.held or not lane.unsent:
            return
        source = lane.unsent[0].parcel.source
        if source.allowed > 0:
            lane.lined_up = True
            self._ready[lane.nic].append(lane)
        else:
            source.waiting[lane] = None

    def _send(self, nic: NicSender) -> None:
        """Send packets of a NIC's queue pairs in turn, as far as there is room."""
        ready, most = self._ready[nic], self._packet_bytes
        while ready and nic.room(PLACED_PACKETS, self._turns):
            lane = ready[0]
            if lane.unsent and not lane.held:
                size, source = lane.next_bytes(most), lane.unsent[0].parcel.source
                if size > source.allowed:
                    ready.popleft()
                    lane.lined_up = False
                    source.waiting[lane] = None
                    continue
                if lane.open_until_s < inf and not lane.is_open(size, time.monotonic()):
                    ready.popleft()
                    lane.lined_up = False  # until it is open again
                    continue
                if not self._send_packet(lane, size):
                    break
            ready.popleft()
            lane.lined_up = False
            self._line_up(lane)
        if not ready:
            del self._ready[nic]

    def _send_packet(self, lane: DatagramLane, size: int) -> bool:
        """Send a packet of a queue pair; return whether there was room for it."""
        pieces, now = lane.cut(size), time.monotonic()
        number, parcel = pieces[0].number, pieces[0].parcel
        path = lane.path(parcel.burst.entropy % ENTROPIES if parcel.burst else 0)
        HEADER.pack_into(self._frame, 0, self._token, lane.number, lane.packets, parcel.message, number)
        if not lane.nic.send(self._framed(size), path.to):
            lane.unsent.extendleft(reversed(pieces))
            return False
        source, left_at = parcel.source, lane.nic.leaves(size, now)
        packet = lane.flying[lane.packets] = Packet(path, lane.packets, source, pieces, size, left_at)
        lane.packets += 1
        lane.sent += size
        self._under_way.left(packet, None if self._idle_patience_s is None else lane.nic)
        if (over := source.on_the_way - source.window_bytes) > source.over_window:
            source.over_window = over
        source.sent += size
        source.on_the_way += size
        source.wants -= size
        if self._algorithm:
            source.allowed -= size
            source.news_sent.append(path.sent(size))
            self.sources.touch(source)
        return True

    def _framed(self, size: int) -> memoryview:
        """Return the packet that is being sent, of so many bytes: 8 us less than to make each anew."""
        if (frame := self._frames.get(size)) is None:
            filled = max(size + self._header_bytes - HEADER_BYTES, 0)
            frame = self._frames[size] = memoryview(self._frame)[: HEADER.size + filled]
        return frame

    # Packets arrive, or are lost

    def _receive(self, receiver: socket.socket) -> None:
        """Count packets that arrived at a server, each once."""
        reader = self._reader
        count, now = reader.read(receiver), time.monotonic()
        for at in range(count):
            size, packet_read = reader.size(at), reader.packets[at]
            if size < HEADER.size:
                if self.acks and size == CONTROL.size:
                    self.acks.received(packet_read, now)
                continue
            token, number, which, _, _ = HEADER.unpack_from(packet_read)
            if token != self._token or number >= len(self._pairs):
                continue
            if which == PROBE:
                self._probed.add(number)
            elif (packet := self._pairs[number].flying.get(which)) and not packet.over:
                packet.marked = reader.is_marked(at)
                self._land(packet, now)
            else:
                self._late += 1
                if (left_at := self._given_up.pop((number, which), None)) is not None:
                    assert self._idle_patience_s is not None
                    self._idle_patience_s = max(self._idle_patience_s, now - left_at)

    def _land(self, packet: Packet, now: float) -> None:
        """Have a packet that was received arrive, and be acknowledged, once its path's delay is over."""
        lane = packet.lane
        packet.over, lane.moved_at = True, now
        overtaken, delay_s = self._under_way.overtaken_by(packet), lane.crossed.delay_s
        acks = self.acks if lane.crossed.returns else None
        if delay_s:
            received = Received(packet, overtaken, now, delay_s)
            self._propagation.put("arrives", received)
            if not acks:
                self._propagation.put("acknowledged", received)
        else:
            self._arrive(packet, overtaken, now)
            if not acks:
                self._acknowledge(packet, overtaken, now)
        if acks:
            acks.acknowledge(Received(packet, overtaken, now, delay_s))

    def _acknowledged(self, received: Received, came_s: float, took_s: float) -> None:
        """Have a packet be acknowledged whose acknowledgement has come, once the links' delay is over."""
        back_s = came_s - received.at_s
        if received.delay_s:
            received = received._replace(at_s=came_s, back_s=back_s, took_s=took_s)
            self._propagation.put("acknowledged", received)
        else:
            self._acknowledge(received.packet, received.lost, came_s, back_s, took_s)

    def _propagate(self, now: float) -> None:
        """Have packets arrive, and be acknowledged, whose path's delay is over."""
        for stage, (packet, overtaken, at_s, delay_s, *back) in self._propagation.due(now):
            if stage == "arrives":
                self._arrive(packet, overtaken, max(at_s + delay_s, self._asked_at))
            else:
                self._acknowledge(packet, overtaken, at_s + 2 * delay_s, *back)

    def _arrive(self, packet: Packet, overtaken: Sequence[Packet], now: float) -> None:
        """Count a packet at its receiver, unless it was taken back; the receiver sees what is missing."""
        lane = packet.lane
        for lost in overtaken:
            self._await_no_longer(lost)
        self._await_no_longer(packet)
        if packet.dropped:
            self._late += 1
            return
        del lane.flying[packet.number]
        self._landed += 1
        for piece in packet.pieces:
            if not piece.parcel.gone:
                packet.source.delivered += piece.size
                self._deliver(lane, piece, now)
        if lane.counted == lane.posted:
            self._open -= 1

    def _await_no_longer(self, packet: Packet) -> None:
        """Have a packet's receiver know, once, that it is no longer on its way."""
        source = packet.source
        if packet.awaited and source.receiver:
            source.receiver.on_arrived(source.number, packet.size)
        packet.awaited = False

    def _acknowledge(
        self,
        packet: Packet,
        overtaken: Sequence[Packet],
        now: float,
        back_s: float = 0.0,
        took_s: float = 0.0,
    ) -> None:
        """Have a sender hear that a packet arrived, and that those which it overtook are lost.

        ``back_s`` and ``took_s`` are as of `Received`: no packet is marked for its acknowledgement's way.
        """
        for lost in overtaken:
            self._lose(lost, OVERTAKEN, now)
        if packet.dropped:
            return
        source, there_s = packet.source, now - packet.left_at - back_s
        source.on_the_way -= packet.size
        source.acknowledged += 1
        if not self._algorithm:
            return
        rtt_s = there_s + took_s
        source.rtt_s += SMOOTHING * (rtt_s - source.rtt_s) if source.rtt_s else rtt_s
        curve = packet.lane.curve
        queue_s = there_s - curve.base_s if there_s > curve.base_s else 0.0
        source.queued_s += queue_s
        source.queued += 1
        met = self.marking.met(queue_s, curve)
        marked = packet.marked if self._switches_mark else met
        source.marked += marked
        assert source.pipe  # it has sent something
        own_s = rtt_s - curve.base_s + source.pipe.round_trip_s  # paths of a source may differ in length
        values = packet.size, own_s, marked, packet.path.entropy
        source.news_acknowledged.append(tuple.__new__(Acknowledged, values))  # in 0.1 us, not 0.3
        self.sources.touch(source)
        parcel = packet.pieces[0].parcel  # a burst has packets of its own
        if parcel.burst and parcel.feeder:
            parcel.feeder.acknowledged(parcel.burst, packet.size, rtt_s, marked, now)

    def _deliver(self, lane: DatagramLane, piece: Piece, now: float) -> None:
        """Count a piece that arrived."""
        parcel = piece.parcel
        self._orders.arrived(parcel.order, piece.number, piece.size)
        lane.deliver(parcel, piece.size)
        if not (parcel.burst and parcel.feeder):
            if not parcel.size:
                self._ended = True
                self._arrived.append(Arrival(parcel.message, now, lane.number))
        elif parcel.feeder.landed(parcel.burst, piece.size):
            self._ended = True
            self._arrived.append(Arrival(parcel.message, now))
            if parcel.feeder.done:
                self._feeders.remove(parcel.feeder)

    def _patience_s(self, packet: Packet) -> float:
        if self._idle_patience_s is not None:
            return packet.lane.nic.clears_s(time.monotonic()) - packet.left_at + self._idle_patience_s
        source, crossed = packet.source, packet.lane.crossed
        packets = LOSSY_PACKETS if crossed.lossy else LOST_PACKETS
        least_s = packets * packet_s(self._nic_rate_bps(source.nic), self._packet_bytes)
        return max(least_s, LOST_ROUND_TRIPS * source.rtt_s) + crossed.propagation_s

    def _give_up(self, packet: Packet, now: float) -> None:
        """Have a packet count as lost that is missing for too long."""
        self._await_no_longer(packet)
        if self._idle_patience_s is not None:
            self._given_up[packet.lane.number, packet.number] = packet.left_at
        self._lose(packet, SILENT, now)

    def _awaited_s(self, pair: DatagramLane) -> float:
        return max(map(self._patience_s, pair.flying.values()), default=0.0)

    def _lose(self, packet: Packet, how: LostHow, now: float) -> None:
        """Have what a packet carried sent again, unless it was taken back."""
        lane, source = packet.lane, packet.source
        if packet.dropped:
            return
        del lane.flying[packet.number]
        lane.lost += packet.size
        self._resent += 1
        packet.source.resent += 1
        self._forget(packet, how)
        for piece in packet.pieces:
            parcel = piece.parcel
            if parcel.gone:
                continue
            if not (parcel.burst and parcel.feeder):
                lane.send_again(piece)
                self.sources.want(source, piece.size)
                continue
            self.sources.want(source, piece.size)
            self._unbind(lane, piece, now)
        self._line_up(lane)

    def _unbind(self, lane: DatagramLane, piece: Piece, now: float) -> None:
        """Have a piece that was fed go by a lane that is chosen anew."""
        parcel = piece.parcel
        assert parcel.burst
        assert parcel.feeder
        was_open = bool(lane.left)
        lane.lessen(parcel, piece.size)
        self._open -= was_open and not lane.left
        for group in parcel.feeder.other_groups(parcel.burst):
            self.sources.want(self._groups[group], piece.size)
        parcel.feeder.lost(parcel.burst, piece.size, piece.number, now)

    def _forget(self, packet: Packet, how: LostHow) -> None:
        """Have the sender of a packet hear that it is on its way no longer."""
        packet.source.on_the_way -= packet.size
        if self._algorithm:
            packet.source.news_lost.append(Lost(packet.size, packet.path.entropy, how))
            self.sources.touch(packet.source)

    # What is taken back

    def carried(self, number: int) -> set[int]:
        """Return the messages whose bytes a queue pair still carries."""
        return {parcel.message for parcel in self._pairs[number].parcels}

    def left(self, number: int) -> dict[int, int]:
        """Return how many bytes of each message a queue pair has yet to deliver."""
        left: dict[int, int] = defaultdict(int)
        for parcel in self._pairs[number].parcels:
            left[parcel.message] += parcel.size
        return dict(left)

    def withdraw(self, number: int) -> list[tuple[int, int]]:
        """Close a queue pair; return what it did not deliver, a message and its bytes each."""
        return self._drop(self._pairs[number], lambda _parcel: True)

    def recall(self, feeder: PacketFeeder, messages: Iterable[int]) -> None:
        """Have a feeder send no more of some messages; what is on its way counts no longer."""
        names = set(messages)
        before = {group: feeder.unbound(group) for group in feeder.groups}
        for number in feeder.pairs:
            self._drop(
                self._pairs[number], lambda parcel: parcel.feeder is feeder and parcel.message in names
            )
        feeder.forget(names)
        for group, size in before.items():
            self.sources.want(self._groups[group], feeder.unbound(group) - size)
        if feeder.done:
            self._feeders.remove(feeder)

    def _drop(self, lane: DatagramLane, which: Callable[[Parcel], bool]) -> list[tuple[int, int]]:
        was_open = bool(lane.left)
        dropped = lane.drop(which)
        for source, size in dropped.unsent.items():
            source.waiting.pop(lane, None)
            self.sources.want(source, -size)
        for packet in dropped.packets:
            self._await_no_longer(packet)
            self._forget(packet, TAKEN_BACK)
        for piece in dropped.pieces:
            self._skip(piece)
            if piece.parcel.burst and piece.parcel.feeder:
                piece.parcel.feeder.dropped(piece.parcel.burst, piece.size)
        self._open -= was_open and not lane.left
        self._line_up(lane)  # what is next may be of another source
        return dropped.left

    def retract(self, number: int) -> list[tuple[int, int, bool]]:
        """Take back what a queue pair has not sent; it delivers the rest.

        Returns
        -------
        list of tuples of message, bytes and whether none stays
            As of `Backlog.retract`.
        """
        lane, back = self._pairs[number], dict[Parcel, int]()
        was_open = bool(lane.left)
        for piece in lane.unsent:
            back[piece.parcel] = back.get(piece.parcel, 0) + piece.size
            self._skip(piece)
        lane.unsent.clear()
        for parcel, size in back.items():
            parcel.source.waiting.pop(lane, None)
            self.sources.want(parcel.source, -size)
            lane.lessen(parcel, size)
        self._open -= was_open and not lane.left
        return [(parcel.message, size, not parcel.size) for parcel, size in back.items()]

    def _skip(self, piece: Piece) -> None:
        if piece.number != NOT_NUMBERED:
            piece.parcel.order.skip(piece.number)

    def _set_held(self, pair: DatagramLane, *, is_held: bool) -> None:
        self._turn_at = 0.0
        if pair.held != is_held:
            super()._set_held(pair, is_held=is_held)
            pair.moved_at = time.monotonic()
            if pair.source:
                pair.source.held = is_held
                self.sources.touch(pair.source)
        if not is_held:
            for source in pair.leads:
                for feeder in self._feeders:
                    feeder.opened(source.key)
            self._line_up(pair)

    def open(self, numbers: Iterable[int], until_s: float) -> None:
        """Let queue pairs send what leaves their NICs by a time [s, monotonic]."""
        for number in numbers:
            self._pairs[number].open_until_s = until_s
            self._set_held(self._pairs[number], is_held=False)

    def hear(self) -> None:
        """Count what was received until now; the next `serve` returns the messages that arrived."""
        self.loop.serve(0.0, counts=False)

    def lose(self, numbers: Iterable[int]) -> None:
        """Have what queue pairs have on their way count as lost, and bind anew what they were fed."""
        now = time.monotonic()
        for lane in map(self._pairs.__getitem__, numbers):
            for packet in [each for each in lane.flying.values() if not each.over]:
                packet.over = True
                self._await_no_longer(packet)
                self._lose(packet, SILENT, now)
            fed = [piece for piece in lane.unsent if piece.parcel.burst]
            lane.unsent = deque(piece for piece in lane.unsent if not piece.parcel.burst)
            for piece in fed:
                piece.parcel.source.waiting.pop(lane, None)
                self._unbind(lane, piece, now)

    def moved(self, number: int) -> Moved:
        """Return the bytes that a queue pair has moved until now."""
        lane = self._pairs[number]
        return Moved(lane.sent, lane.counted, lane.lost)

    @property
    def busy(self) -> bool:
        """Whether something is on its way, or waits for a queue pair that is open."""
        now = time.monotonic()
        return any(
            lane.flying
            or (not lane.held and lane.open_until_s > now and any(source.wants for source in lane.leads))
            for lane in self._pairs
        )

    def rates_changed(self) -> None:
        """Have congestion controls, and what chooses as it goes, ask anew how fast NICs are."""
        self.sources.rates_changed()
        for lane in self._pairs:
            self._see_path(lane)
        now = time.monotonic()
        for nic, sender in self._nics.items():
            sender.send_at(self._nic_rate_bps(nic) / 8, now)
        for feeder in self._feeders:
            feeder.rates_changed()
        self._tick_s = inf
        self._set_tick({*self._nics, *(lane.queue_pair.destination for lane in self._pairs)})

    def on_the_way(self, number: int) -> int:
        """Return how many bytes a queue pair has sent that have not arrived."""
        lane = self._pairs[number]
        return lane.left - sum(piece.size for piece in lane.unsent)

    def drained(self, number: int) -> bool:
        """Return whether all that a queue pair has sent has arrived, or is known to be lost."""
        return not self._pairs[number].flying

    # The loop

    def serve(self, timeout_s: float) -> list[Arrival]:
        """Wait until something happens, and serve it; return the messages that arrived."""
        self.loop.begins_round(counts=not self.quiet)
        now = self._asked_at = time.monotonic()
        self._propagate(now)
        if not self.quiet and now >= self._turn_at:
            self._turn(now)
        wait_s = 0.0 if self._arrived else min(timeout_s, TICK_S)
        if not self.quiet:
            wait_s = min(wait_s, min(self._turn_at, self._propagation.arrives_s) - time.monotonic())
        self._heard_at = time.monotonic()
        self.loop.serve(max(wait_s, 0.0), counts=not self.quiet)
        now = time.monotonic()
        if self.acks and self.quiet:
            self.acks.settle()
        self._propagate(now)  # else what is due now would arrive after what the caller does next
        if self._ended and self.quiet:  # there is no next turn
            self._log_flows(now)
        return self._ended_round(now)

    def serve_now(self) -> list[Arrival]:
        """Send what can be sent, and serve what waits; return the messages that arrived.

        `serve` leaves time between turns for others, as long as the last took: on a busy machine too long for
        NICs that hold little.
        """
        self._turn_at = 0.0
        return self.serve(0.0)

    def _turn(self, now: float) -> None:
        """Ask congestion controls, and have NICs send what they allow."""
        self._turns, self._turned_at = self._turns + 1, now
        if self.acks:
            self.acks.repeat(self._heard_at)
        for missing in self._under_way.missing(self._heard_at, self._patience_s):
            self._give_up(missing, now)
        may_send, is_over = self.sources.turn(now)
        for source in may_send:
            if source.waiting:
                waiting, source.waiting = source.waiting, {}
                for lane in waiting:
                    self._line_up(lane)
            if source.key:
                for feeder in self._feeders:
                    feeder.opened(source.key)
        self._log_flows(now)
        for nic in list(self._ready):
            self._send(nic)
        turns = [feeder.turn(self, now) for feeder in list(self._feeders)]
        self.is_behind = any(turns)
        # Others wait meanwhile: as long as it took, unless some receivers have yet to have their turn.
        self._turn_at = now + max(self._tick_s, time.monotonic() - now) if is_over else now

    def _log_flows(self, now: float) -> None:
        if self._algorithm and len(self.sources) <= MOST_SOURCES:
            self.flow_log.take(self.sources, now, self._tick_s / TICK_PACKETS, anyway=self._ended)
        self._ended = False

    # Congestion controls that let nothing go

    def _unfed(self) -> StuckError:
        silent = [source for source in self._groups.values() if source.offers and source.allowed <= 0]
        return self._nothing_let(silent[0].lane) if silent else super()._unfed()

    def _no_progress(self, stuck: Sequence[DatagramLane]) -> StuckError:
        for lane in stuck:
            source = lane.unsent[0].parcel.source if lane.unsent else None
            if source and not source.on_the_way and source.allowed < lane.next_bytes(self._packet_bytes):
                return self._nothing_let(lane)
        return super()._no_progress(stuck)

    def _nothing_let(self, lane: DatagramLane) -> StuckError:
        near, far = lane.queue_pair.source, lane.queue_pair.destination
        assert self._algorithm
        name = self._algorithm.name
        return StuckError(
            f"the transport {name!r} let {near} send nothing to {far} for {self._stuck_s:g} s",
            "have may_send return a packet's bytes or more while nothing is on the way",
        )


def _in_turns(
    number: NDArray[np.int64], size: NDArray[np.int64], message: NDArray[np.int64], turn_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return parcels by queue pair, in order, those of a message among so many bytes as one.

    Messages take turns chunk by chunk, and dilation makes chunks tiny: a packet may have a thousand.

    Examples
    --------
    >>> number, size, message = np.array([[0, 0, 0, 0, 1], [1, 1, 1, 9, 1], [5, 6, 5, 6, 5]])
    >>> [each.tolist() for each in _in_turns(number, size, message, 10)]
    [[0, 0, 1], [2, 10, 1], [5, 6, 5]]
    """
    by_lane = np.argsort(number, kind="stable")
    lanes, sizes, messages = number[by_lane], size[by_lane], message[by_lane]
    begins = np.cumsum(sizes) - sizes
    _, first, of = np.unique(lanes, return_index=True, return_inverse=True)
    turn = (begins - begins[first][of]) // turn_bytes
    order = np.lexsort((messages, turn, lanes))
    lanes, sizes, messages, turn = lanes[order], sizes[order], messages[order], turn[order]
    differs = np.diff(lanes, prepend=-1) | np.diff(turn, prepend=-1) | np.diff(messages, prepend=-1)
    firsts = np.flatnonzero(differs)
    return lanes[firsts], np.add.reduceat(sizes, firsts), messages[firsts]
