"""Invariants of the engine of datagrams, whatever is done while packets are on their way, delayed or not."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.traffic import relay
from tests.traffic.relay import PACKET, PACKET_S, RATE_BPS, STEP_S, Net, net
from tests.traffic.test_datagram_engine import FATES, PAIRS, Fed, choosing, work_between
from topologies.fabric import Nic
from traffic.congestion.control import TAKEN_BACK, Acknowledged, CongestionControl, Lost, Sent
from traffic.spraying.policy import QueuePair
from traffic.transports import registry
from traffic.transports.datagram_lane import Crossed
from traffic.transports.loop import Arrival
from traffic.transports.registry import Algorithm
from traffic.transports.transport import HEADER_BYTES

ONE = QueuePair(Nic(1, 0), Nic(0, 0), 1)
EVERY = ["nscc", "dctcp", "swift", "ideal", "credit"]
POLICIES = ["spray", "reps", "plb", "minrtt"]
ACTS = [
    *["post"] * 3,
    *["withdraw", "retract", "hold", "resume", "open", "lose", "cross", "slow", "feed", "recall", "fill"],
]
DELAYS_S = [0.0, 2 * PACKET_S, 20 * PACKET_S]


@dataclass
class Heard:
    """Bytes of which a congestion control heard."""

    sent: int = 0
    acknowledged: int = 0
    lost: int = 0
    taken_back: int = 0

    def hear(self, sent: Sequence[Sent], acknowledged: Sequence[Acknowledged], lost: Sequence[Lost]) -> None:
        """Count a batch."""
        self.sent += sum(each.bytes for each in sent)
        self.acknowledged += sum(each.bytes for each in acknowledged)
        self.lost += sum(each.bytes for each in lost if each.how != TAKEN_BACK)
        self.taken_back += sum(each.bytes for each in lost if each.how == TAKEN_BACK)


def listening(heard: dict[int, Heard]) -> Callable[[str], Algorithm]:
    """Return congestion controls by name, which count what each source hears, by the source's number."""

    def named(name: str) -> Algorithm:
        algorithm = registry.algorithm_named(name)

        class Listens(algorithm.make):  # type: ignore[name-defined,misc]  # a class, of each of those here
            def on_events(
                self,
                sent: Sequence[Sent],
                acknowledged: Sequence[Acknowledged],
                lost: Sequence[Lost],
                now_s: float,
            ) -> None:
                heard[id(self)].hear(sent, acknowledged, lost)
                super().on_events(sent, acknowledged, lost, now_s)

        def made(*arguments: object) -> CongestionControl:
            control: CongestionControl = Listens(*arguments)
            heard[id(control)] = Heard()
            return control

        return replace(algorithm, make=made)

    return named


class Course:
    """A run in which anything may be done at any time, and what is to come of it."""

    def __init__(self, of: Net, heard: dict[int, Heard], shares: dict[Nic, float], seed: int) -> None:
        self._of, self._heard, self._shares = of, heard, shares
        self._rng = np.random.default_rng(seed)
        self.numbers = of.lanes(*PAIRS)
        self.posted, self.ended = dict[int, int](), Counter[int]()
        self.back = Counter[int]()
        self.fed, self.recalled = list[Fed](), set[int]()
        self._open_until_s = dict[int, float]()
        self._looked_at = 0

    def do(self, act: str) -> None:
        """Do something, and let some time pass."""
        getattr(self, f"_{act}")(int(self._rng.choice(self.numbers)))
        for _ in range(int(self._rng.choice([0, 1, 10, 40]))):
            self._hear(self._of.step())
            self.check_conservation()
            self._check_open()

    def _post(self, number: int) -> None:
        message = len(self.posted)
        self.posted[message] = int(self._rng.choice([1, PACKET, 20 * PACKET]))
        self._of.post((number, self.posted[message], message))

    def _withdraw(self, number: int) -> None:
        for each, size in self._of.engine.withdraw(number):
            self.back[each] += size
            self.ended[each] += 1

    def _retract(self, number: int) -> None:
        for each, size, is_whole in self._of.engine.retract(number):
            self.back[each] += size
            self.ended.update([each] * is_whole)

    def _hold(self, number: int) -> None:
        self._of.engine.hold([number])

    def _resume(self, number: int) -> None:
        self._of.engine.resume([number])

    def _open(self, _number: int) -> None:
        self._of.relay.turn()  # what was given before
        self._looked_at = len(self._of.relay.seen)
        for each in self.lanes:
            if self._rng.random() < 0.5:
                lasts_s = float(self._rng.choice([-1, 0.5, 3, 20, inf])) * PACKET_S
                self._open_until_s[each] = self._of.clock.now + lasts_s
                self._of.engine.open([each], self._open_until_s[each])

    def _lose(self, _number: int) -> None:
        self._of.engine.lose([each for each in self.lanes if self._rng.random() < 0.5])

    def _check_open(self) -> None:
        """Check that no packet was given to a NIC that had no time left for it."""
        seen, given_s = self._of.relay.seen, self._of.clock.now - STEP_S
        for each in seen[self._looked_at :]:
            takes_s = 8 * (each.size + HEADER_BYTES) / RATE_BPS
            assert given_s + takes_s <= self._open_until_s.get(each.lane, inf) + 1e-9
        self._looked_at = len(seen)

    def _cross(self, _number: int) -> None:
        delay_s = float(self._rng.choice(DELAYS_S))
        self._of.round_trip_s = max(self._of.round_trip_s, 2 * delay_s)
        for each in self.lanes:
            if self._rng.random() < 0.5:
                slowest_bytes_s = RATE_BPS / 8 * float(self._rng.choice([0.25, 1]))
                self._of.engine.crosses(each, Crossed(slowest_bytes_s, delay_s))

    def _slow(self, _number: int) -> None:
        nic = Nic(int(self._rng.integers(4)), int(self._rng.integers(2)))
        self._shares[nic] = float(self._rng.choice([0.25, 1.0]))
        self._of.engine.rates_changed()

    def _feed(self, _number: int) -> None:
        policy, first = choosing(str(self._rng.choice(POLICIES))), 1000 * (1 + len(self.fed))
        self.fed.append(Fed(self._of, policy, work_between(int(self._rng.integers(99))), first=first))

    def _recall(self, _number: int) -> None:
        for fed in self.fed[-1:]:
            names = [name for name in fed.names if fed.feeder.lacks(name) and self._rng.random() < 0.5]
            fed.recall(names)
            self.recalled.update(names)

    def _fill(self, _number: int) -> None:
        for sender in self._of.senders.values():
            sender.is_full = self._rng.random() < 0.3

    @property
    def lanes(self) -> list[int]:
        """All queue pairs."""
        return [*self.numbers, *(number for fed in self.fed for number in fed.feeder.pairs)]

    def _hear(self, arrived: Sequence[Arrival]) -> None:
        self.ended.update(each.message for each in arrived)

    def finish(self) -> None:
        """Let all that is left arrive."""
        for sender in self._of.senders.values():
            sender.is_full = False
        self._of.engine.open(self.lanes, inf)
        self._hear(self._of.finish())

    def check_conservation(self) -> None:
        """Check that all that each source sent is acknowledged, lost, taken back or on its way."""
        for source in self._of.engine.sources:
            heard = replace(self._heard.get(id(source.control), Heard()))
            heard.hear(source.news_sent, source.news_acknowledged, source.news_lost)
            over = heard.acknowledged + heard.lost + heard.taken_back
            assert (heard.sent, over) == (source.sent, source.sent - source.on_the_way)
            assert source.on_the_way >= 0 <= source.wants
            assert source.over_window <= 0

    def check_ended(self) -> None:
        """Check that each message arrived once or was taken back, and that nothing is left."""
        engine = self._of.engine
        named = {name for fed in self.fed for name in fed.names} - self.recalled
        assert self.ended == Counter([*self.posted, *named])
        carried = sum(fed.carried(name) for fed in self.fed for name in fed.names)
        assert engine.health.payload_bytes + self.back.total() == sum(self.posted.values()) + carried
        assert all(
            fed.carried(name) == fed.sizes[name] for fed in self.fed for name in fed.sizes.keys() & named
        )
        counts = engine.packets
        assert (counts.sent, counts.arrived + counts.late) == (
            len(self._of.relay.seen),
            len(self._of.relay.passed),
        )
        assert all(engine.drained(number) and not engine.left(number) for number in self.lanes)
        assert {(source.wants, source.on_the_way) for source in engine.sources} <= {(0, 0)}
        assert not [source for source in engine.sources if source.waiting]


@pytest.mark.parametrize("control", EVERY)
@settings(max_examples=examples(6, 60))
@given(
    seed=st.integers(0, 1 << 16),
    fate=st.sampled_from(list(FATES)),
    acts=st.lists(st.sampled_from(ACTS), min_size=5, max_size=40),
)
@example(seed=3, fate="all pass", acts=["post", "slow", "feed", "lose", "recall"])
def test_nothing_is_lost_or_left_whatever_is_done_meanwhile(
    control: str, seed: int, fate: str, acts: list[str]
) -> None:
    heard, shares = dict[int, Heard](), dict[Nic, float]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relay, "algorithm_named", listening(heard))
        with net(
            FATES[fate](seed), control=control, rate_bps=lambda nic: RATE_BPS * shares.get(nic, 1.0)
        ) as servers:
            course = Course(servers, heard, shares, seed)
            for act in acts:
                course.do(act)
            course.finish()
            course.check_conservation()
            course.check_ended()


def test_nothing_arrives_before_what_the_caller_did_while_it_was_due() -> None:
    with net(control="nscc") as servers:
        (number,) = servers.lanes(ONE, round_trip_s=40 * PACKET_S)
        servers.post((number, PACKET, 0))
        servers.run(lambda: len(servers.relay.passed) == 1)
        servers.clock.now += 100 * PACKET_S
        (arrival,) = servers.engine.serve(0.0)
        assert arrival.at == servers.clock.now


def test_what_is_due_while_the_engine_waits_arrives_then() -> None:
    with net(control="nscc") as servers:
        (number,) = servers.lanes(ONE, round_trip_s=4 * PACKET_S)
        servers.post((number, PACKET, 0))
        (arrival,) = servers.finish()
        assert 2 * PACKET_S <= arrival.at - 1000.0 <= 2 * PACKET_S + PACKET_S
