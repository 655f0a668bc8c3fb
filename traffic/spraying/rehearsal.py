"""A reactive scheme asked on made-up states, since its prediction is a limit and asks it nothing.

What is asked is what an emulation may ask: whether lanes have room, how far behind they are and what
their round trips were is drawn at random. What is acknowledged was chosen before, once; for a scheme that
hears of losses, some of it is lost instead. So a scheme that raises, or chooses a lane that there is not, is
found before a byte is sent. How well it chooses is not seen.
"""

from functools import cache

import numpy as np

from topologies.fabric import Fabric
from traffic.messages import Messages
from traffic.spraying.checks import choice
from traffic.spraying.policy import HearsLosses, LaneState, ReactivePolicy, each_message
from traffic.spraying.states import States

MESSAGES = 32
"""As many of an exchange are admitted, drawn at random: 256 questions, 2 to 4 ms of a built-in scheme."""
ROOM = (1.0, 0.5, 0.5, 0.0, 0.5, 0.5, 0.0, 1.0)
"""The share of lanes that have room, in each round of questions; in the first nothing is known."""
BACKLOG_BYTES = 1 << 20
RTT_S = 1e-3
"""What states are drawn up to; a chunk's own round trip too."""
LOST = 1 / 8
"""The share of chunks that are lost, for a scheme that hears of losses."""


def rehearse(policy: ReactivePolicy, fabric: Fabric, messages: Messages, seed: int = 0) -> None:
    """Ask a scheme for lanes, and acknowledge what it chose, or report it as lost.

    Parameters
    ----------
    policy
        The scheme, made for this alone.
    fabric, messages
        What it is asked for.
    seed
        Of the states that are made up.

    Raises
    ------
    ScenarioError
        If it chooses a lane that there is not, or a user's own code raises.
    """
    rng, now = np.random.default_rng(seed), 0.0
    policy.open(fabric=fabric, rng=np.random.default_rng(seed))
    drawn = sorted(rng.permutation(len(messages))[:MESSAGES].tolist())
    lanes = {
        each.number: sum(map(len, policy.admit(message=each)))
        for each in each_message(messages.select(np.isin(np.arange(len(messages)), drawn)))
    }
    in_flight: list[tuple[int, int]] = []
    for turn, room in enumerate(ROOM):
        states = {message: _made_up(count, room, rng, is_known=turn > 0) for message, count in lanes.items()}
        for message in lanes:
            now += float(rng.uniform(0, RTT_S))
            lane = choice(policy, message, states[message], now)
            if lane is not None:
                in_flight.append((message, lane))
        is_last = turn == len(ROOM) - 1
        for _ in range(len(in_flight) if is_last else len(in_flight) // 2):
            message, lane = in_flight.pop(int(rng.integers(len(in_flight))))
            now, rtt_s = now + float(rng.uniform(0, RTT_S)), float(rng.uniform(0, RTT_S))
            marked = bool(rng.integers(2))
            if isinstance(policy, HearsLosses) and rng.random() < LOST:
                policy.lost(message=message, lane=lane, now=now)
                continue
            policy.acknowledged(message=message, lane=lane, rtt_s=rtt_s, marked=marked, now=now)
    for message in lanes:
        policy.withdraw(message=message)


def _made_up(count: int, room: float, rng: np.random.Generator, *, is_known: bool) -> States:
    """Return the states of so many lanes, each drawn when it is first looked at."""

    @cache
    def drawn(_lane: int) -> LaneState:
        has_room = bool(rng.random() < room)
        if not is_known:
            return LaneState(0, 0.0, has_room)
        return LaneState(int(rng.integers(BACKLOG_BYTES)), float(rng.uniform(0, RTT_S)), has_room)

    return States(count, drawn)
