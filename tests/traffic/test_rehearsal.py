"""The questions that a reactive scheme is asked where nothing is emulated: they find what is broken in it."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traffic.cases import Work, work_of, works
from topologies.errors import ScenarioError
from topologies.rail import rail_fabric
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.policy import LaneState, ReactivePolicy
from traffic.spraying.registry import POLICIES, policy_named
from traffic.spraying.rehearsal import MESSAGES, rehearse

REACTIVE = [name for name in (*POLICIES, "reps:5") if isinstance(policy_named(name), ReactivePolicy)]
WORK = work_of(rail_fabric(4, 2), np.full((8, 8), 24))


def rehearsed(policy: object, work: Work = WORK, seed: int = 0) -> None:
    assert isinstance(policy, ReactivePolicy)
    rehearse(policy, work.fabric, work.crossing, seed)


@pytest.mark.parametrize("name", REACTIVE)
@given(work=works(), seed=st.integers(0, 1000))
def test_schemes_of_lightrail_answer(name: str, work: Work, seed: int) -> None:
    rehearsed(policy_named(name), work, seed)


@pytest.mark.parametrize("name", REACTIVE)
def test_a_users_own_may_be_derived_from_one_of_lightrail(name: str) -> None:
    rehearsed(type("Own", (type(policy_named(name)),), {"name": "own"})())


class Seen(MinRtt):
    """Writes down what it is asked, and what is acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms: list[float] = []
        self.rtts_s: list[float] = []
        self.in_flight = Counter[tuple[int, int]]()
        self.at = 0.0
        self.withdrawn: list[int] = []

    def withdraw(self, *, message: int) -> None:
        """Note it."""
        self.withdrawn.append(message)

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Choose as MinRTT does."""
        assert now > self.at
        self.at = now
        mine = list(states)
        assert mine == [states[lane - len(states)] for lane in range(len(states))]
        self.rooms.append(float(np.mean([state.room for state in mine])))
        self.rtts_s += [state.rtt_s for state in mine]
        lane = super().choose(message=message, states=states, now=now)
        if lane is not None:
            self.in_flight[message, lane] += 1
        return lane

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Take off what was in flight."""
        assert now > self.at
        self.at = now
        self.in_flight[message, lane] -= 1
        assert self.in_flight[message, lane] >= 0


def test_what_is_asked_could_be_asked_in_an_emulation() -> None:
    seen = Seen()
    rehearsed(seen)
    assert {0.0, 0.5, 1.0} <= set(seen.rooms)
    assert 0.0 in seen.rtts_s
    assert 0.0 < max(seen.rtts_s) < 1.0
    assert not +seen.in_flight, "all that was chosen has been acknowledged"
    assert len(set(seen.withdrawn)) == len(seen.withdrawn) == min(MESSAGES, len(WORK.crossing))


class Late(MinRtt):
    """Does something wrong once a queue pair has no room, as a scheme may that was tried on idle ones."""

    def __init__(self, wrong: object) -> None:
        super().__init__()
        self.wrong = wrong

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Choose as MinRTT does, as long as there is room."""
        if all(state.room for state in states):
            return super().choose(message=message, states=states, now=now)
        return self.wrong  # type: ignore[return-value]


@pytest.mark.parametrize("wrong", [-1, 99_999, 0.0])
def test_a_choice_that_is_not_permitted_is_found(wrong: object) -> None:
    with pytest.raises(ScenarioError, match=f"the scheme 'minrtt' chose {wrong} for message"):
        rehearsed(Late(wrong))
