"""The sources of a run and their congestion controls: what each hears, and what it may send.

Once in a tick a source's congestion control hears what happened to its packets and says what may be sent.
Where receivers grant, announcements and grants go between the two ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from operator import attrgetter

import numpy as np

from topologies.fabric import Nic
from traffic.congestion.control import CongestionControl, Granted, ReceiverControl, SourceEnds
from traffic.transports.control_packets import ControlPackets
from traffic.transports.datagram_lane import DatagramLane, Source
from traffic.transports.packet_feeder import NicGroup
from traffic.transports.registry import Algorithm
from traffic.transports.transport import UNLIMITED_BYTES, NicRate

MOST = 1 << 20
"""More servers, or NICs of one, are not in order."""
RECEIVERS_AT_ONCE = 128
"""So many NICs grant before packets that arrived have their turn."""


class Sources:
    """All sources, by numbers that count from 0.

    Parameters
    ----------
    algorithm
        The congestion control of all; None where all may leave at once.
    nic_rate_bps
        The rate of a NIC at emulated scale [bit/s].
    packet_bytes
        Payload of a packet [bytes].
    seed
        What is random in a congestion control is drawn by it and the source's number.
    news
        By what announcements and grants go; None if they are no packets.
    """

    def __init__(
        self,
        algorithm: Algorithm | None,
        nic_rate_bps: NicRate,
        packet_bytes: int,
        seed: int,
        news: tuple[ControlPackets[object], ControlPackets[object]] | None = None,
    ) -> None:
        self._algorithm, self._nic_rate_bps = algorithm, nic_rate_bps
        self._packet_bytes, self._seed = packet_bytes, seed
        self._sources: list[Source] = []
        self.ends: list[SourceEnds] = []
        """Those of each."""
        self._news: dict[Source, None] = {}
        """Those that have something to hear, or another thing to offer than before."""
        self._ask_at: dict[Source, float] = {}
        """When each is to be asked that asked for it [s]."""
        self._receivers: dict[Nic, ReceiverControl[object, object]] = {}
        self._next = 0
        """Which of them has the next turn."""
        self._announcements, self._grants = news or (ControlPackets[object](), ControlPackets[object]())
        sees_all = algorithm.overview if algorithm else None
        self._overview = sees_all(self, packet_bytes) if sees_all else None

    def __iter__(self) -> Iterator[Source]:
        """Yield all."""
        return iter(self._sources)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._sources)

    def add(
        self, lane: DatagramLane, key: NicGroup | None = None, others: Sequence[DatagramLane] = ()
    ) -> Source:
        """Return a new source: a queue pair, or a group of which it is the first, and the others."""
        near, far = lane.queue_pair.source, lane.queue_pair.destination
        self.ends.append(key.ends if key else SourceEnds((near,), far, lane.queue_pair.communicator))
        # Sources begin with different NICs: else all would send to the same first.
        order = ((near.server - far.server) % MOST << 40) + (near.nic - far.nic) * MOST + near.nic
        source = Source(len(self._sources), far, lane, key, order, lanes=(lane, *others))
        self._sources.append(source)
        for each in source.lanes:
            each.leads.append(source)
        if not self._algorithm:
            source.allowed = UNLIMITED_BYTES
        elif self._algorithm.receiver:
            if far not in self._receivers:
                rate_bytes_s = self._nic_rate_bps(far) / 8
                self._receivers[far] = self._algorithm.receiver(rate_bytes_s, self._packet_bytes)
            source.receiver = self._receivers[far]
            source.receiver.expect(source.number)
        return source

    def left_bytes(self, number: int) -> int:
        """Return what a source has to send now, or on its way."""
        source = self._sources[number]
        return source.offers + source.on_the_way

    def rate_bytes_s(self, nic: Nic) -> float:
        """Return the rate that a NIC has now [bytes/s]."""
        return self._nic_rate_bps(nic) / 8

    def granted_bytes(self, source: Source) -> int | None:
        """Return all that a source was granted and did not give back; None where nobody grants."""
        return source.receiver.granted_bytes(source.number) if source.receiver else None

    # What happens to them

    def want(self, source: Source, more: int) -> None:
        """Have a source want to send more, or less."""
        source.wants += more
        self.touch(source)

    def touch(self, source: Source) -> None:
        """Ask a source anew: it has something to hear, or it was held or let go."""
        if self._algorithm:
            self._news[source] = None

    def crosses(self, source: Source) -> None:
        """Have a source go by the path that its queue pair takes now: of several, the longest.

        Windows then fill all of them.
        """
        ends = self.ends[source.number]
        bytes_s = min(sum(map(self.rate_bytes_s, ends.sources)), self.rate_bytes_s(ends.destination))
        longest = max((lane.crossed for lane in source.lanes), key=attrgetter("propagation_s"))
        pipe = longest.pipe(bytes_s, self._packet_bytes)
        if pipe == source.pipe:
            return
        source.pipe, source.half_s = pipe, pipe.propagation_s / 2
        if source.control:
            source.control.rates_changed(pipe)
            self._news[source] = None

    def rates_changed(self) -> None:
        """Have all reckon with the rates that NICs have now."""
        for nic, receiver in self._receivers.items():
            receiver.rates_changed(self._nic_rate_bps(nic) / 8)
        for source in self._sources:
            self.crosses(source)

    # Turns

    def turn(self, now_s: float) -> tuple[list[Source], bool]:
        """Have receivers grant, and sources hear what happened and say what they may send.

        Returns
        -------
        list of sources
            Those that may send, of those that were asked.
        bool
            Whether all receivers had their turn.
        """
        heard = sorted(self._news, key=attrgetter("order"))
        self._news = {}
        self._announce(heard, now_s)
        granted, is_over = self._grant(now_s)
        due = [source for source, at_s in self._ask_at.items() if at_s <= now_s]
        asked = dict.fromkeys([*heard, *granted, *due])
        return [source for source in asked if self._asked(source, now_s)], is_over

    def _asked(self, source: Source, now_s: float) -> bool:
        """Have a source hear its news; return whether it may send something that it has."""
        control = source.control or self._control(source)
        if source.news_sent or source.news_acknowledged or source.news_lost:
            control.on_events(source.news_sent, source.news_acknowledged, source.news_lost, now_s)
            source.news_sent, source.news_acknowledged, source.news_lost = [], [], []
        if self._ask_at:
            self._ask_at.pop(source, None)
        source.allowed = control.may_send(now_s)
        if source.has_window:
            source.window_bytes = getattr(control, "window_bytes", inf)
        if not source.offers:
            return False
        if (next_s := control.next_s(now_s)) < inf:
            self._ask_at[source] = next_s
        return source.allowed > 0

    def _control(self, source: Source) -> CongestionControl:
        if not source.control:
            self.crosses(source)
            assert source.pipe
            rng = np.random.default_rng([self._seed, source.number])
            seen = (self._overview, source.number) if self._overview else ()
            assert self._algorithm  # else it has nothing to hear
            source.control = self._algorithm.make(source.pipe, rng, *seen)
            # Compiled, `hasattr` would swallow the error of a user's control.
            source.has_window = getattr(source.control, "window_bytes", None) is not None
            if self._algorithm.receiver:
                assert isinstance(source.control, Granted)
                source.granted = source.control
        return source.control

    # Where receivers grant

    def _announce(self, sources: Iterable[Source], now_s: float) -> None:
        if not self._receivers:
            return
        for source in sources:
            if not source.control:
                self._control(source)
            assert source.granted
            news = source.granted.announcement(source.sent + source.offers, source.sent)
            if news is not None:
                self._announcements.send(source, news, now_s, source.half_s)

    def _grant(self, now_s: float) -> tuple[Sequence[Source], bool]:
        """Have receivers hear and grant; return whom grants reached, and whether all had their turn."""
        for source, news in self._announcements.come(now_s):
            assert source.receiver
            source.receiver.on_announced(source.number, news)
        begin, self._next = self._next, self._next + RECEIVERS_AT_ONCE
        for receiver in islice(self._receivers.values(), begin, self._next):
            for number, grant in receiver.grants(now_s):
                source = self._sources[number]
                self._grants.send(source, grant, now_s, source.half_s)
        is_over = self._next >= len(self._receivers)
        self._next *= not is_over
        granted = list[Source]()
        for source, grant in self._grants.come(now_s):
            assert source.granted  # it announced something
            source.granted.on_granted(grant)
            granted.append(source)
        return granted, is_over
