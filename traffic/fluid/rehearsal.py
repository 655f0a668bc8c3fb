"""A reactive scheme asked on made-up states, since its prediction is a limit and asks it nothing.

What is asked is what an emulation may ask: whether queue pairs have room, how far behind they are and what
their round trips were is drawn at random; what is acknowledged was chosen before, once. So a scheme that
raises, or chooses what is not permitted, is found where nothing is emulated. How well it chooses is not seen.
"""

from collections.abc import Sequence
from typing import overload

import numpy as np

from traffic.scheme import Choice
from traffic.spraying.checks import choice
from traffic.spraying.policy import QpState

MESSAGES = 32
"""As many of an exchange are asked for, drawn at random: 256 questions, 2 to 4 ms of a built-in scheme."""
ROOM = (1.0, 0.5, 0.5, 0.0, 0.5, 0.5, 0.0, 1.0)
"""The share of queue pairs that have room, in each round of questions; in the first nothing is known."""
BACKLOG_BYTES = 1 << 20
RTT_S = 1e-3
"""What states are drawn up to; a chunk's own round trip too."""


def rehearse(chosen: Choice, seed: int = 0) -> None:
    """Ask a scheme for queue pairs, and acknowledge what it chose.

    Parameters
    ----------
    chosen
        The scheme, and what it permits.
    seed
        Of the states that are made up.

    Raises
    ------
    ScenarioError
        If it chooses what it did not permit, or a user's own code raises.
    """
    rng, now = np.random.default_rng(seed), 0.0
    policy, of_message = chosen.policy, chosen.permitted.of_message
    messages = rng.permutation(len(of_message))[:MESSAGES].tolist()
    in_flight: list[tuple[int, int]] = []
    for turn, room in enumerate(ROOM):
        states = _MadeUp(len(chosen.permitted.queue_pairs), room, rng, is_known=turn > 0)
        for message in messages:
            now += float(rng.uniform(0, RTT_S))
            qp = choice(policy, message, of_message[message], states, now)
            if qp is not None:
                in_flight.append((message, qp))
        is_last = turn == len(ROOM) - 1
        for _ in range(len(in_flight) if is_last else len(in_flight) // 2):
            message, qp = in_flight.pop(int(rng.integers(len(in_flight))))
            now, rtt_s = now + float(rng.uniform(0, RTT_S)), float(rng.uniform(0, RTT_S))
            marked = bool(rng.integers(2))
            policy.acknowledged(message=message, qp=qp, rtt_s=rtt_s, marked=marked, now=now)


class _MadeUp(Sequence[QpState]):
    """The states of so many queue pairs, each drawn when it is first looked at."""

    def __init__(self, count: int, room: float, rng: np.random.Generator, *, is_known: bool) -> None:
        self._count, self._room, self._rng, self._is_known = count, room, rng, is_known
        self._drawn: dict[int, QpState] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, qp: int) -> QpState: ...
    @overload
    def __getitem__(self, qp: slice) -> list[QpState]: ...
    def __getitem__(self, qp: int | slice) -> QpState | list[QpState]:
        if isinstance(qp, slice):
            return [self[index] for index in range(*qp.indices(self._count))]
        number = range(self._count)[qp]  # as a list's: also from the end, and IndexError beyond it
        if number not in self._drawn:
            self._drawn[number] = self._draw()
        return self._drawn[number]

    def _draw(self) -> QpState:
        room = bool(self._rng.random() < self._room)
        if not self._is_known:
            return QpState(0, 0.0, room)
        return QpState(int(self._rng.integers(BACKLOG_BYTES)), float(self._rng.uniform(0, RTT_S)), room)
