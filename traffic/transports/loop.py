"""The loop of an engine, which waits for sockets and serves them, and what engines have in common."""

import contextlib
import select
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np

from topologies.errors import StuckError
from traffic.spraying.policy import QueuePair
from traffic.transports.feeder import Feeder

EVENTS = 128
"""As many are served at once: 512 kept the others of 7,848 queue pairs waiting for 18 ms."""
STUCK_S = 15.0
LATE_SHARE = 0.1
"""Of the time of a run, in which events may wait for longer than the lateness says."""
TICK_S = 0.5
"""How often an engine looks after its network and its queue pairs [s]."""


class Loop:
    """Descriptors and what is done when something happens to them; a context manager."""

    def __init__(self) -> None:
        self._serving: dict[int, Callable[[int], None]] = {}
        self._away_s: list[float] = []
        self._asleep_s = 0.0
        self._due_at: float | None = None

    def __enter__(self) -> Self:
        """Get ready."""
        with contextlib.ExitStack() as stack:
            self._poller = stack.enter_context(select.epoll())
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        """Close all that was opened on its stack."""
        self.stack.close()

    def watch(self, descriptor: int, action: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Do something whenever a descriptor can be read, or something else happens to it."""
        self._serving[descriptor] = action
        self._poller.register(descriptor, events)

    def modify(self, descriptor: int, events: int) -> None:
        """Wait for other events of a descriptor that is watched."""
        self._poller.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no longer."""
        del self._serving[descriptor]
        self._poller.unregister(descriptor)

    def starts_anew(self) -> None:
        """Take that nobody waited for what was done since the last round."""
        self._due_at = None

    def rest(self, seconds: float) -> None:
        """Let time pass while nothing is on its way; nobody waits, so the loop is not late."""
        time.sleep(max(seconds, 0.0))
        self.starts_anew()

    def begins_round(self, *, counts: bool) -> None:
        """Note for how long events since the last poll may have waited, if somebody waits for them."""
        if self._due_at is not None and counts:
            self._away_s.append(time.monotonic() - self._due_at)

    def serve(self, wait_s: float, *, counts: bool) -> None:
        """Wait for events, for so long at most [s], and serve them; ``counts`` as of `begins_round`.

        An engine that cannot run when a wait is over is away from then on. A wait is of whole
        milliseconds (epoll_wait(2)).
        """
        began = time.monotonic()
        events = self._poller.poll(wait_s, EVENTS)
        polled_at = time.monotonic()
        self._due_at = min(polled_at, began + ceil(1e3 * wait_s) / 1e3) if counts else polled_at
        if counts:
            self._asleep_s += self._due_at - began
        for descriptor, event in events:
            if serve := self._serving.get(descriptor):  # one served before may have closed it
                serve(event)

    @property
    def lateness_s(self) -> float:
        """How long an event waits at most, whenever it comes, but for one in ten [s].

        Each time that the loop was away counts for as long as it lasted. If each counted once, the 99th
        percentile would be 0.6 ms for an engine that is stopped for 100 of each 120 ms.
        """
        away_s = np.sort(self._away_s)[::-1]
        covered_s = np.cumsum(away_s)
        longest = int(np.searchsorted(covered_s, LATE_SHARE * (self._asleep_s + sum(self._away_s))))
        return float(away_s[longest]) if longest < len(away_s) else 0.0

    def away(self, held_s: float) -> float:
        """Return the share of the time that it was away beyond what others bridge of each time, 0..1.

        Parameters
        ----------
        held_s
            For how long NICs go on with what they hold [s].
        """
        beyond_s = sum([away_s - held_s for away_s in self._away_s if away_s > held_s])
        awaited_s = self._asleep_s + sum(self._away_s)
        return beyond_s / awaited_s if awaited_s else 0.0

    @property
    def stall_s(self) -> float:
        """The longest that it was away [s]."""
        return max(self._away_s, default=0.0)


@dataclass(frozen=True)
class PacketCounts:
    """The packets of a run; those that carry nothing, to see paths by, are none of them."""

    sent: int = 0
    """Those that NICs were given."""
    arrived: int = 0
    """Those that arrived and counted."""
    anew: int = 0
    """Those that counted as lost, so that their bytes were sent again."""
    late: int = 0
    """Those that arrived and did not count: they counted as lost, were taken back, or came twice."""


@dataclass(frozen=True)
class Health:
    """How the engine and TCP fared."""

    retransmits: int = 0
    """Packets that TCP sent again, over all queue pairs."""
    lateness_s: float = 0.0
    """How long the loop kept an event waiting at most, whenever it came, but for one in ten [s]."""
    payload_bytes: int = 0
    """What was counted at the receivers."""
    stall_s: float = 0.0
    """The longest that the loop was away: a round of it, with the wait before if that ended too late [s]."""
    packets: PacketCounts = PacketCounts()
    """The fates of datagrams; of these, what is sent again is what counted as lost."""
    away: float = 0.0
    """Share of the time in which NICs had nothing to send as the loop was away, 0..1; 0 over TCP."""


class Arrival(NamedTuple):
    """The last byte arrived of what was posted together of a message on a queue pair, or fed of it."""

    message: int
    at: float
    number: int = -1
    """Of the queue pair, unless it was fed."""


@dataclass(eq=False)
class QueuePairState:
    """A queue pair of an engine, and what became of its bytes."""

    number: int
    queue_pair: QueuePair
    held: bool = False
    """Whether nothing more may be sent for now."""
    posted: int = 0
    """All bytes that it was ever given, and did not give back."""
    counted: int = 0
    """Those of them that have arrived."""
    moved_at: float = 0.0

    @property
    def left(self) -> int:
        """The bytes that have not arrived."""
        return self.posted - self.counted


Pair = TypeVar("Pair", bound=QueuePairState)
Feeds = TypeVar("Feeds", bound=Feeder[Any])


class QueuePairs(Generic[Pair, Feeds]):
    """The queue pairs of an engine, by number, over the sockets of one loop; a context manager.

    Parameters
    ----------
    check
        Called now and then; raises if the network has died.
    stuck_s
        A queue pair with bytes to deliver that makes no progress for so long is an error [s].
    excused
        Whether at present none is: all may wait for light.
    """

    fed: ClassVar[tuple[str, str]]
    """What a feeder binds, and what to do if it binds none while nothing is on its way."""

    def __init__(
        self,
        check: Callable[[], None],
        stuck_s: float,
        excused: Callable[[], bool],
    ) -> None:
        self._check, self._stuck_s, self._excused = check, stuck_s, excused
        self.loop = Loop()
        self._pairs: list[Pair] = []
        self._feeders: list[Feeds] = []
        self._arrived: list[Arrival] = []
        self._open = 0
        """How many queue pairs have bytes to deliver."""
        self._held: set[int] = set()
        """The queue pairs that are held."""

    def __enter__(self) -> Self:
        """Get ready."""
        self.loop.__enter__()
        self._looked = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        """Close all sockets; connections are reset, so that their ports are free at once."""
        self.loop.__exit__(*error)

    @property
    def quiet(self) -> bool:
        """Whether nothing is on its way, nor waits to be."""
        return not (self._open or self._feeders)

    @property
    def waiting(self) -> QueuePair | None:
        """A queue pair that is held, if all that have bytes to deliver are."""
        owing = [pair for pair in self._pairs if pair.left] if self._held and self._open else []
        return owing[0].queue_pair if owing and all(pair.held for pair in owing) else None

    def queue_pair(self, number: int) -> QueuePair:
        """Return what a number stands for."""
        return self._pairs[number].queue_pair

    def counted(self, number: int) -> int:
        """Return how many bytes of a queue pair were counted at its receiver."""
        return self._pairs[number].counted

    def owed(self, number: int) -> int:
        """Return how many bytes of a queue pair have not arrived."""
        return self._pairs[number].left

    def excuse(self) -> None:
        """Let no queue pair count as stuck for what was until now: it may have waited for light."""
        now = time.monotonic()
        for pair in self._pairs:
            pair.moved_at = now

    def hold(self, numbers: Iterable[int]) -> None:
        """Let queue pairs send nothing more for now."""
        for number in numbers:
            self._set_held(self._pairs[number], is_held=True)

    def resume(self, numbers: Iterable[int]) -> None:
        """Let queue pairs send again."""
        for number in numbers:
            self._set_held(self._pairs[number], is_held=False)

    def _set_held(self, pair: Pair, *, is_held: bool) -> None:
        pair.held = is_held
        (self._held.add if is_held else self._held.discard)(pair.number)

    def _begins(self) -> None:
        """Have something to send from now on."""
        if self.quiet:
            self.loop.starts_anew()  # nothing waited for what was decided before

    def _ended_round(self, now: float) -> list[Arrival]:
        """Look after network and queue pairs now and then; return the messages that arrived."""
        if now - self._looked > TICK_S:
            self._check()
            if not self._excused():
                self._check_progress(now)
            self._looked = now
        arrived, self._arrived = self._arrived, []
        return arrived

    def _awaited_s(self, pair: Pair) -> float:
        """Return for how long a queue pair waits for what it has sent before that counts as lost [s]."""
        return 0.0

    def _check_progress(self, now: float) -> None:
        if self._feeders and not self._open:
            moved_at = max((pair.moved_at for pair in self._pairs), default=0.0)
            if now - max(moved_at, *(feeder.began_at for feeder in self._feeders)) > self._stuck_s:
                raise self._unfed()
        stuck = [each for each in self._pairs if each.left and not each.held]
        stuck = [each for each in stuck if now - each.moved_at > self._stuck_s + self._awaited_s(each)]
        if stuck:
            raise self._no_progress(stuck)

    def _unfed(self) -> StuckError:
        """Return the error that feeders bind nothing."""
        what, hint = self.fed
        return StuckError(f"{what} waited for {self._stuck_s:g} s while nothing was on its way", hint)

    def _no_progress(self, stuck: Sequence[Pair]) -> StuckError:
        """Return the error that some queue pairs are stuck."""
        return StuckError(
            f"queue pair {stuck[0].queue_pair} made no progress for {self._stuck_s:g} s "
            f"({stuck[0].counted:,} of {stuck[0].posted:,} bytes arrived; {len(stuck)} are stuck)",
            "look at the links with --cli, or lower --rate",
        )
