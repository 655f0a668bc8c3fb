"""Congestion controls of tests, which engines know as a user's own, by the names of their classes here."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from typing import ClassVar

import numpy as np

from traffic.congestion.control import Acknowledged, Lost, PerPacket, Pipe, Sent
from traffic.congestion.credit import Credit, CreditGrant, Has, Receiver


class Recorder(PerPacket):
    """Lets ten packets be on their way, and notes all that it hears."""

    packets: ClassVar[float] = 10.0

    def __init__(self, pipe: Pipe, rng: np.random.Generator) -> None:
        super().__init__(pipe, rng)
        self.window_bytes = self.packets * pipe.packet_bytes
        self.sent = Counter[tuple[int, int]]()
        """How many it heard of, by bytes and entropy."""
        self.over = Counter[tuple[int, int]]()
        """The same of those that were acknowledged or lost."""
        self.acknowledged: list[tuple[float, Acknowledged]] = []
        """When it heard of each."""
        self.lost: list[tuple[float, Lost]] = []

    def on_events(
        self,
        sent: Sequence[Sent],
        acknowledged: Sequence[Acknowledged],
        lost: Sequence[Lost],
        now_s: float,
    ) -> None:
        """Note them."""
        super().on_events(sent, acknowledged, lost, now_s)
        self.sent.update((each.bytes, each.entropy) for each in sent)
        self.over.update((each.bytes, each.entropy) for each in acknowledged)
        self.over.update((each.bytes, each.entropy) for each in lost)
        self.acknowledged += [(now_s, each) for each in acknowledged]
        self.lost += [(now_s, each) for each in lost]


class OneByOne(Recorder):
    """Lets one packet be on its way."""

    packets = 1.0


class NotWhole(Recorder):
    """Lets less than a packet more go than whole packets."""

    packets = 3.5

    def may_send(self, now_s: float) -> int:
        """Return the room in its window."""
        return int(self.window_bytes - self.on_the_way)


PACED_PACKETS = 7.3


class Paced(PerPacket):
    """Sends a packet now and then, and hears of none in time."""

    at_s = -inf

    def may_send(self, now_s: float) -> int:
        """Return a packet, if it is time."""
        return self.pipe.packet_bytes if now_s >= self.at_s else 0

    def on_sent(self, packet: Sent, now_s: float) -> None:
        """Wait for the next."""
        begins_s = now_s if self.at_s == -inf else self.at_s
        self.at_s = begins_s + PACED_PACKETS * self.pipe.round_trip_s

    def next_s(self, now_s: float) -> float:
        """Return when it is time."""
        return self.at_s


class Announcing(PerPacket):
    """Has no receiver, so that it announces nothing."""

    def announcement(self, total_bytes: int, sent_bytes: int) -> str:
        """Fail."""
        raise AssertionError("it was asked")

    def on_granted(self, grant: object) -> None:
        """Fail."""
        raise AssertionError("it was granted something")


class Never(PerPacket):
    """Sends nothing."""

    def may_send(self, now_s: float) -> int:
        """Return nothing."""
        return 0


class LessThanAPacket(PerPacket):
    """Lets less than any packet go."""

    def may_send(self, now_s: float) -> int:
        """Return half of a packet."""
        return self.pipe.packet_bytes // 2


class FirstWaits(PerPacket):
    """Lets all go but what the first source of a run has: less than a packet of that."""

    made: ClassVar[int] = 0

    def __init__(self, pipe: Pipe, rng: np.random.Generator) -> None:
        super().__init__(pipe, rng)
        self.is_first = not FirstWaits.made
        FirstWaits.made += 1

    def may_send(self, now_s: float) -> int:
        """Return half of a packet, or ten."""
        return self.pipe.packet_bytes // 2 if self.is_first else 10 * self.pipe.packet_bytes


class Endless(PerPacket):
    """Sends without end."""


class Answers(PerPacket):
    """Gives the answers that a test has it give."""

    answers: ClassVar[dict[str, object]] = {}

    def may_send(self, now_s: float) -> int:
        """Return it."""
        return self.answers.get("may_send", 1 << 40)  # type: ignore[return-value]  # what a user's own does

    def next_s(self, now_s: float) -> float:
        """Return it."""
        return self.answers.get("next_s", inf)  # type: ignore[return-value]  # the same

    @property
    def window_bytes(self) -> float:  # type: ignore[override]  # the same
        """The window that a test has it name."""
        return self.answers.get("window_bytes", inf)  # type: ignore[return-value]  # the same


class Raises(PerPacket):
    """Raises where a test has it raise."""

    where: ClassVar[str] = ""

    def __init__(self, pipe: Pipe, rng: np.random.Generator) -> None:
        super().__init__(pipe, rng)
        self._raise_in("__init__")

    def _raise_in(self, name: str) -> None:
        if name == self.where:
            raise ZeroDivisionError("division\nby zero")

    def on_events(
        self,
        sent: Sequence[Sent],
        acknowledged: Sequence[Acknowledged],
        lost: Sequence[Lost],
        now_s: float,
    ) -> None:
        """Raise, or hear."""
        self._raise_in("on_events")

    def may_send(self, now_s: float) -> int:
        """Raise, or let all go."""
        self._raise_in("may_send")
        return 1 << 40

    def next_s(self, now_s: float) -> float:
        """Raise, or not."""
        self._raise_in("next_s")
        return inf

    def rates_changed(self, pipe: Pipe) -> None:
        """Raise, or not."""
        self._raise_in("rates_changed")


class RaisingReceiver(Receiver):
    """A receiver that raises where a test has it raise, or grants to a stranger."""

    def grants(self, now_s: float) -> Iterator[tuple[int, CreditGrant]]:
        """Yield grants, raise, or name a source that there is not."""
        if RaisingCredit.where == "grants":
            raise ZeroDivisionError("division\nby zero")
        yield from super().grants(now_s)
        if RaisingCredit.where == "stranger":
            yield 99, CreditGrant(1, 0)
        if RaisingCredit.where == "unhashable":
            yield [], CreditGrant(1, 0)  # type: ignore[misc]  # what a user's own may do

    def on_arrived(self, source: int, size: int) -> None:
        """Raise, or count."""
        if RaisingCredit.where == "on_arrived":
            raise ZeroDivisionError("division\nby zero")
        super().on_arrived(source, size)


class RaisingCredit(Credit):
    """Receiver credits of a user's own, which raise where a test has them raise."""

    receiver = RaisingReceiver
    where: ClassVar[str] = ""

    def announcement(self, total_bytes: int, sent_bytes: int) -> Has | None:
        """Raise, or announce."""
        if self.where == "announcement":
            raise ZeroDivisionError("division\nby zero")
        return super().announcement(total_bytes, sent_bytes)

    def on_granted(self, grant: CreditGrant) -> None:
        """Raise, or hear."""
        if self.where == "on_granted":
            raise ZeroDivisionError("division\nby zero")
        super().on_granted(grant)
