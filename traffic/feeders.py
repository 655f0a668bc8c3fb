"""Feeders decide which bytes a queue pair carries next, for the engine: one per kind of policy."""

from collections import deque
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from traffic.messages import Chunks
from traffic.spraying.policy import Assignment, Permitted, QpState, ReactivePolicy


class Carrier(Protocol):
    """What a feeder sees of the engine."""

    def post(self, qp: int, size: int) -> None:
        """Put bytes behind what a queue pair carries already."""

    def posted(self, qp: int) -> int:
        """Return how many bytes were posted on a queue pair."""

    def counted(self, qp: int) -> int:
        """Return how many bytes of a queue pair were counted at its receiver."""

    def rtt_s(self, qp: int) -> float:
        """Return TCP's smoothed round-trip time of a queue pair [s]."""


class Feeder(Protocol):
    """Posts chunks on queue pairs."""

    chunk_qp: NDArray[np.int64]
    """Index of each chunk's queue pair, shape (chunks,); -1 while it has none."""

    @property
    def order(self) -> NDArray[np.int64]:
        """The chunks in the order in which they were posted."""

    def start(self, carrier: Carrier) -> None:
        """Post what goes first."""

    def arrived(self, carrier: Carrier, qp: int, now: float) -> None:
        """Take note that bytes of a queue pair were counted at its receiver."""


class ProactiveFeeder:
    """Posts everything at the start, as a proactive policy assigned it.

    Parameters
    ----------
    assignment
        Which queue pair carries which chunk.
    chunk_bytes
        Size of each chunk at emulated scale [bytes], shape (chunks,).
    """

    def __init__(self, assignment: Assignment, chunk_bytes: NDArray[np.int64]) -> None:
        self.chunk_qp, self.order = assignment.chunk_qp, assignment.order
        self._load = np.bincount(assignment.chunk_qp, chunk_bytes, len(assignment.queue_pairs))

    def start(self, carrier: Carrier) -> None:
        """Post everything."""
        for qp, load in enumerate(self._load.astype(np.int64).tolist()):
            carrier.post(qp, load)

    def arrived(self, carrier: Carrier, qp: int, now: float) -> None:
        """Nothing is decided later."""


class ReactiveFeeder:
    """Posts chunk by chunk what a reactive policy chooses, messages taking turns.

    Parameters
    ----------
    policy
        The scheme.
    permitted
        The queue pairs that each message may use.
    chunks
        The work.
    chunk_bytes
        Size of each chunk at emulated scale [bytes], shape (chunks,).
    window_bytes
        A queue pair takes another chunk while fewer bytes than this are posted and not yet counted.
    """

    def __init__(
        self,
        policy: ReactivePolicy,
        permitted: Permitted,
        chunks: Chunks,
        chunk_bytes: NDArray[np.int64],
        window_bytes: int,
    ) -> None:
        self._policy = policy
        self._window = window_bytes
        self._bytes = chunk_bytes.tolist()
        self._message = chunks.message.tolist()
        self._states = [QpState(0, 0.0, True) for _ in permitted.queue_pairs]
        self._flying: list[deque[tuple[int, int]]] = [deque() for _ in permitted.queue_pairs]
        self._left: list[deque[int]] = [deque() for _ in permitted.of_message]
        for chunk, message in enumerate(self._message):
            self._left[message].append(chunk)
        self._turns: list[deque[int]] = [deque() for _ in permitted.queue_pairs]
        for message, qps in enumerate(permitted.of_message):
            for qp in qps:
                self._turns[qp].append(message)
        self.chunk_qp = np.full(len(chunks), -1, dtype=np.int64)
        self._order: list[int] = []

    @property
    def order(self) -> NDArray[np.int64]:
        """The chunks in the order in which they were posted."""
        return np.array(self._order, dtype=np.int64)

    def start(self, carrier: Carrier) -> None:
        """Give every message a turn until none finds room."""
        waiting = list(range(len(self._left)))
        while waiting:
            waiting = [message for message in waiting if self._post_next(carrier, message, 0.0)]

    def arrived(self, carrier: Carrier, qp: int, now: float) -> None:
        """Tell the policy which chunks arrived, and let messages take the room they leave."""
        flying, counted = self._flying[qp], carrier.counted(qp)
        self._note_backlog(carrier, qp)
        if flying and flying[0][0] <= counted:
            state = self._states[qp]
            state.rtt_s = carrier.rtt_s(qp)
            for chunk in _landed(flying, counted):
                self._policy.acknowledged(message=self._message[chunk], qp=qp, rtt_s=state.rtt_s, now=now)
        self._offer(carrier, qp, now)

    def _offer(self, carrier: Carrier, qp: int, now: float) -> None:
        """Let the messages that may use a queue pair take turns while it has room."""
        turns, idle = self._turns[qp], 0
        while self._states[qp].room and idle < len(turns):
            message = turns.popleft()
            if self._left[message]:
                turns.append(message)
            idle = 0 if self._post_next(carrier, message, now) else idle + 1

    def _post_next(self, carrier: Carrier, message: int, now: float) -> bool:
        """Post a message's next chunk where the policy wants it; False if there is none, or no room."""
        if not self._left[message]:
            return False
        qp = self._policy.choose(message=message, states=self._states, now=now)
        if qp is None:
            return False
        chunk = self._left[message].popleft()
        self._flying[qp].append((carrier.posted(qp) + self._bytes[chunk], chunk))
        self.chunk_qp[chunk] = qp
        self._order.append(chunk)
        carrier.post(qp, self._bytes[chunk])
        self._note_backlog(carrier, qp)
        return True

    def _note_backlog(self, carrier: Carrier, qp: int) -> None:
        state = self._states[qp]
        state.backlog_bytes = carrier.posted(qp) - carrier.counted(qp)
        state.room = state.backlog_bytes < self._window


def _landed(flying: deque[tuple[int, int]], counted: int) -> Iterable[int]:
    """Take the chunks off a queue pair's flight whose last byte was counted."""
    while flying and flying[0][0] <= counted:
        yield flying.popleft()[1]
