"""Congestion controls behind a relay: their news of packets, when it comes, and those that misbehave."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf, nan
from typing import cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.traffic import controls
from tests.traffic.cases import work_of
from tests.traffic.controls import PACED_PACKETS, Answers, Raises, RaisingCredit, Recorder
from tests.traffic.relay import PACKET, PACKET_S, RATE_BPS, STEP_S, Net, Passed, Seen, net, passes
from tests.traffic.test_datagram_engine import (
    FABRIC,
    FATES,
    LOSE,
    ONE,
    OTHER,
    PAIRS,
    Fed,
    choosing,
    matrix_of,
)
from topologies.errors import ScenarioError, StuckError
from topologies.fabric import Nic
from traffic.congestion.control import Acknowledged, PerPacket, Sent
from traffic.congestion.credit import QUEUE_PACKETS
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.policy import Lanes, LaneSet, LaneState, Message, QueuePair
from traffic.transports.datagram_lane import Crossed
from traffic.transports.registry import NAMED, algorithm_named
from traffic.transports.transport import UNLIMITED_BYTES

DELAYS_S = st.sampled_from([0.0, 0.003, 0.02])


def own(of: type) -> str:
    """Return how a congestion control of tests is named."""
    return f"{controls.__name__}:{of.__name__}"


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have recorders by names of lightrail's own, so that a test reads them; and nothing said."""
    for of in (Recorder, controls.OneByOne):
        monkeypatch.setitem(NAMED, of.__name__, of)
    monkeypatch.setattr(Answers, "answers", {})
    monkeypatch.setattr(controls.FirstWaits, "made", 0)
    for own_control in (Raises, RaisingCredit):
        monkeypatch.setattr(own_control, "where", "")


@pytest.mark.parametrize("name", NAMED)
def test_a_users_own_may_be_derived_from_one_of_lightrail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    control = algorithm_named(name)
    receiver = control.receiver and type("OwnReceiver", (cast(type, control.receiver),), {})
    derived = type(f"From{name}", (cast(type, NAMED[name]),), {"receiver": receiver})
    monkeypatch.setattr(controls, derived.__name__, derived, raising=False)
    with net(control=own(derived)) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 3 * PACKET, 0))
        assert [arrival.message for arrival in servers.finish()] == [0]


@pytest.mark.parametrize("name", ["nscc", "dctcp", "swift"])
def test_a_users_own_that_is_derived_hears_packet_by_packet(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Counter[str]()

    def hears(what: str) -> Callable[..., None]:
        def method(control: PerPacket, packet: Sent | Acknowledged, now_s: float) -> None:
            heard[what] += control.rng is not None
            getattr(NAMED[name], what)(control, packet, now_s)

        return method

    methods = {what: hears(what) for what in ("on_sent", "on_acknowledged")}
    derived = type(f"Hearing{name}", (cast(type, NAMED[name]),), methods)
    monkeypatch.setattr(controls, derived.__name__, derived, raising=False)
    with net(control=own(derived)) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 5 * PACKET, 0))
        servers.finish()
    assert min(heard[what] for what in methods) >= 4, "the last may come after all has arrived"


def heard_by(of: Net) -> Recorder:
    """Return the congestion control of the first source."""
    recorder = next(iter(of.engine.sources)).control
    assert isinstance(recorder, Recorder)
    return recorder


# When


def test_what_a_longer_path_of_a_source_takes_is_no_queue() -> None:
    work = work_of(FABRIC, matrix_of({(0, 2): 20 * PACKET}), chunk_bytes=PACKET)
    with net(passes, control="OneByOne") as servers:
        fed = Fed(servers, choosing("spray"), work, round_trip_s=0.02)
        servers.engine.crosses(1, Crossed(RATE_BPS / 8, 0.03))
        servers.finish()
        heard = heard_by(servers).acknowledged
        (name,) = fed.names
        assert {lane for lane, _ in fed.feeder.carried(name)} == {0, 1}
    assert [each.rtt_s for _, each in heard] == pytest.approx([STEP_S + 0.06] * len(heard))


@settings(max_examples=examples(6, 30))
@given(delay_s=st.just(0.0) | st.floats(0.001, 0.05))
def test_a_packet_arrives_one_delay_after_it_was_received_and_is_acknowledged_after_two(
    delay_s: float,
) -> None:
    received_s = dict[int, float]()

    def fate(seen: Seen) -> Passed:
        received_s[seen.message] = servers.clock.now
        return passes(seen)

    with net(fate, control="OneByOne") as servers:
        (number,) = servers.lanes(ONE, round_trip_s=2 * delay_s)
        servers.post(*((number, PACKET, message) for message in range(3)))
        arrived = servers.finish()
        recorder = heard_by(servers)
        expected_s = [received_s[message] + delay_s for message in range(3)]
        for each, due_s in zip(arrived, expected_s, strict=True):
            assert -1e-9 <= each.at - due_s <= STEP_S + 1e-9, "when it is due, or as the engine is asked then"
        assert [each.rtt_s for _, each in recorder.acknowledged] == pytest.approx(
            [STEP_S + 2 * delay_s] * 2, abs=1e-9
        )
        for message, (heard_s, _) in enumerate(recorder.acknowledged):
            late_s = heard_s - (received_s[message] + 2 * delay_s)
            assert -1e-9 <= late_s <= PACKET_S / 2 + STEP_S, "it is heard within a tick"


def test_what_has_propagated_is_returned_at_once_though_nothing_else_is_under_way() -> None:
    with net(control="Recorder") as servers:
        (number,) = servers.lanes(ONE, round_trip_s=0.05)
        servers.post((number, PACKET, 0))
        servers.go_on(0.01)
        servers.clock.now += 1.0
        began_s = time.perf_counter()
        assert [each.message for each in servers.engine.serve(0.5)] == [0]
        assert time.perf_counter() - began_s < 0.25


def test_without_a_delay_a_packet_arrives_and_is_acknowledged_as_it_is_received() -> None:
    with net(control="Recorder") as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 5 * PACKET, 0))
        servers.run(lambda: len(servers.relay.passed) == 5)
        servers.step()
        (source,) = servers.engine.sources
        assert (source.delivered, source.acknowledged, source.on_the_way) == (5 * PACKET, 5, 0)


def test_what_is_overtaken_is_heard_as_lost_with_the_acknowledgement_of_the_other() -> None:
    with net(lambda seen: passes(seen) if seen.number else [], control="Recorder") as servers:
        (number,) = servers.lanes(ONE, round_trip_s=0.05)
        servers.post((number, 8 * PACKET, 0))
        servers.run(lambda: bool(servers.engine.packets.arrived))
        recorder = heard_by(servers)
        servers.go_on(0.02)
        assert not recorder.lost, "its receiver sees the gap, its sender not yet"
        servers.finish()
        ((lost_s, lost),) = recorder.lost
        assert (lost.bytes, lost.how) == (PACKET, "overtaken")
        assert lost_s == recorder.acknowledged[0][0]


@pytest.mark.parametrize("received", [False, True])
def test_what_is_taken_back_before_it_arrives_counts_nowhere_and_is_heard_once(received: bool) -> None:
    with net(lambda seen: [(0.0 if received else 0.02, seen)], control="Recorder") as servers:
        one, other = servers.lanes(ONE, OTHER, round_trip_s=0.05)
        servers.post((one, 3 * PACKET, 0), (other, 200 * PACKET, 1))
        servers.go_on(0.01)
        assert len(servers.relay.passed) == (13 if received else 0), "both have what they may on the way"
        assert servers.engine.withdraw(one) == [(0, 3 * PACKET)]
        arrived = servers.finish()
        recorder, source = heard_by(servers), next(iter(servers.engine.sources))
        assert [each.message for each in arrived] == [1]
        assert [(each.bytes, each.how) for _, each in recorder.lost] == [(PACKET, "taken back")] * 3
        assert (recorder.acknowledged, recorder.on_the_way) == ([], 0)
        assert (source.delivered, source.acknowledged, source.on_the_way) == (0, 0, 0)
        assert servers.engine.packets.late == 3


# Always


def check_heard(of: Net) -> None:
    """Check that all that was sent is on its way, or was acknowledged, lost, or taken back."""
    for source in of.engine.sources:
        if not (recorder := source.control):
            continue
        assert isinstance(recorder, Recorder)
        news_bytes = [each.bytes for each in source.news_acknowledged]
        news_bytes += [each.bytes for each in source.news_lost]
        assert source.sent == recorder.on_the_way + bytes_of(recorder.over) + bytes_of(
            Counter((each.bytes, each.entropy) for each in source.news_sent)
        )
        assert source.on_the_way == source.sent - bytes_of(recorder.over) - sum(news_bytes)
        assert source.delivered <= bytes_of(recorder.sent) + sum(each.bytes for each in source.news_sent)
        assert recorder.over <= recorder.sent, "it was over before it was sent, or twice"


def bytes_of(packets: Counter[tuple[int, int]]) -> int:
    """Return the bytes of counted packets."""
    return sum(size * count for (size, _), count in packets.items())


@settings(max_examples=examples(15, 100), suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 16), fate=st.sampled_from(list(FATES)), delay_s=DELAYS_S)
def test_whatever_happens_each_packet_is_heard_as_sent_once_and_as_over_once(
    seed: int, fate: str, delay_s: float
) -> None:
    rng = np.random.default_rng(seed)
    with net(FATES[fate](seed), control="Recorder") as servers:
        numbers = servers.lanes(*PAIRS[:2], round_trip_s=2 * delay_s)
        for message in range(30):
            number = int(rng.choice(numbers))
            act = rng.choice(["post", "post", "post", "withdraw", "retract", "hold", "resume"])
            if act == "post":
                servers.post((number, int(rng.choice([1, PACKET, 20 * PACKET])), message))
            elif act in ("withdraw", "retract"):
                getattr(servers.engine, act)(number)
            else:
                getattr(servers.engine, act)([number])
            for _ in range(rng.integers(0, 40)):
                servers.step()
                check_heard(servers)
        servers.engine.resume(numbers)
        servers.finish()
        servers.post(*((number, PACKET, 100) for number in numbers))  # so that they hear the rest
        servers.finish()
        check_heard(servers)
        assert {source.on_the_way for source in servers.engine.sources} == {0}
        delivered = sum(source.delivered for source in servers.engine.sources)
        assert delivered == servers.engine.health.payload_bytes


@pytest.mark.parametrize("name", ["spray", "per chunk"])
@pytest.mark.parametrize("fate", ["all pass", *LOSE])
def test_the_same_holds_of_packets_that_choose_and_are_recalled(name: str, fate: str) -> None:
    with net(FATES[fate](0), control="Recorder") as servers:
        work = work_of(FABRIC, matrix_of({(0, 4): 60 * PACKET, (1, 4): 60 * PACKET}), chunk_bytes=PACKET)
        fed = Fed(servers, choosing(name), work, round_trip_s=0.01)
        for _ in range(100):
            servers.step()
            check_heard(servers)
        fed.recall([0])
        check_heard(servers)
        while not servers.engine.quiet:
            servers.step()
            check_heard(servers)
        servers.finish()
        assert {source.on_the_way for source in servers.engine.sources} == {0}
        assert fed.carried(1) == fed.sizes[1]


def test_a_receiver_counts_what_was_overtaken_and_taken_back_once() -> None:
    """Else it grants more than its queue: what makes room twice."""
    lost = set(range(0, 1000, 4))
    with net(lambda seen: [] if seen.number in lost else passes(seen)) as servers:
        (number,) = servers.lanes(ONE, round_trip_s=0.04)
        for message in range(10):
            servers.post((number, 8 * PACKET, message))
            enough = servers.engine.packets.arrived + 3
            servers.run(lambda: servers.engine.packets.arrived >= enough)  # noqa: B023  # it is called now
            servers.engine.withdraw(number)  # some was overtaken, and its sender has not heard so
            servers.finish()
        servers.senders[ONE.source].is_full = True
        servers.post((number, 500 * PACKET, 100))
        servers.go_on(0.5)
        (source,) = servers.engine.sources
        granted = servers.engine.sources.granted_bytes(source)
        assert granted
        assert granted - source.sent <= (QUEUE_PACKETS + 40) * PACKET


def test_a_source_of_several_nics_reckons_with_its_longest_path() -> None:
    """Else packets of a longer one than its first seem to queue, and windows do not fill it."""
    with net(control="Recorder") as servers:
        work = work_of(FABRIC, matrix_of({(0, 4): 60 * PACKET}), chunk_bytes=PACKET)
        fed = Fed(servers, choosing("spray"), work, round_trip_s=0.01)
        *_, last = fed.feeder.pairs
        assert last, "it has several NICs"
        servers.engine.crosses(last, Crossed(RATE_BPS / 8, 0.02))
        servers.finish()
        (source,) = servers.engine.sources
        assert source.pipe
        assert source.pipe.propagation_s == pytest.approx(0.04)
        assert source.pipe.round_trip_s == pytest.approx(0.04 + PACKET_S)


def test_no_more_is_bound_to_lanes_than_a_packet_that_waits() -> None:
    with net(control=own(controls.NotWhole)) as servers:
        work = work_of(FABRIC, matrix_of({(0, 4): 60 * PACKET}), chunk_bytes=PACKET)
        fed = Fed(servers, choosing("spray"), work, round_trip_s=0.02)
        while not servers.engine.quiet:
            servers.step()
            assert fed.feeder.on_the_way(0) <= 4 * PACKET, "three leave, and the fourth waits"
        assert fed.carried(0) == fed.sizes[0]


class OneNicOrBoth(MinRtt):
    """Has a server's first message go by its first NIC, and others by either: two groups share the NIC."""

    name = "one NIC or both"

    def admit(self, *, message: Message) -> Lanes:
        """Return a lane of each NIC."""
        server, nic = FABRIC.gpu_servers[message.source], FABRIC.pinned_nic(message.destination)
        return (LaneSet(tuple(Nic(server, index) for index in range(1 + bool(message.number))), (nic,)),)

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the first NIC's."""
        return 0 if states[0].room else None


def test_what_waited_behind_what_was_taken_back_of_another_source_goes() -> None:
    with net(control=own(controls.FirstWaits)) as servers:
        matrix = matrix_of({(0, 4): PACKET, (1, 4): PACKET})
        fed = Fed(servers, OneNicOrBoth(), work_of(FABRIC, matrix, chunk_bytes=PACKET))
        servers.go_on(0.02)
        assert [fed.feeder.on_the_way(name) for name in (0, 1)] == [PACKET, PACKET]
        assert servers.engine.packets.sent == 0, "one waits for its source, the other behind it"
        fed.recall([0])
        assert [each.message for each in servers.finish()] == [1]


# What sends, and when


def test_a_paced_congestion_control_sends_at_its_times_within_a_tick() -> None:
    sent_s = list[float]()

    def fate(seen: Seen) -> Passed:
        sent_s.append(servers.clock.now)
        return passes(seen)

    with net(fate, control=own(controls.Paced)) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 30 * PACKET, 0))
        servers.finish()
    due_s = sent_s[0] + PACED_PACKETS * PACKET_S * np.arange(30)
    late_s = np.array(sent_s) - due_s
    assert (np.abs(late_s) <= PACKET_S / 2 + 2 * STEP_S).all()


def test_what_has_no_receiver_never_announces() -> None:
    with net(control=own(controls.Announcing)) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 30 * PACKET, 0))
        assert [each.message for each in servers.finish()] == [0]
        sources = servers.engine.sources
        assert [sources.granted_bytes(each) for each in sources] == [None]


def test_a_source_that_is_let_nothing_is_sampled_with_nothing_and_one_without_bytes_is_not() -> None:
    """Else Jain's index would leave out what starves."""
    with net(control=own(controls.Never)) as servers:
        numbers = servers.lanes(*PAIRS)
        servers.post((numbers[0], PACKET, 0))
        servers.go_on(0.1)
        samples = servers.engine.flow_log.samples
    assert {(each.source, each.delivered_bytes) for each in samples} == {(0, 0)}


def test_one_that_sends_without_end_is_carried_and_what_is_lost_is_sent_again() -> None:
    with net(FATES["each 7th is lost"](0), control=own(controls.Endless)) as servers:
        numbers = servers.lanes(*PAIRS)
        servers.post(*((number, 100 * PACKET, number) for number in numbers))
        assert len(servers.finish()) == len(numbers)
        assert servers.engine.packets.anew > 0
        assert servers.engine.health.payload_bytes == 100 * PACKET * len(numbers)


# What misbehaves


@pytest.mark.parametrize(("let", "over"), [(3, 0), (4, 1), (30, 27)])
def test_what_leaves_above_a_window_is_counted_for_the_audit(let: int, over: int) -> None:
    """The window holds two packets: one leaves while they are on the way, and no more."""
    Answers.answers |= {"may_send": let * PACKET, "window_bytes": 2.0 * PACKET}
    with net(control=own(Answers)) as servers:
        (number,) = servers.lanes(ONE, round_trip_s=10.0)
        servers.post((number, let * PACKET, 0))
        servers.go_on(let * PACKET_S)
        (source,) = servers.engine.sources
        assert source.over_window == over * PACKET


@pytest.mark.parametrize("of", [controls.Never, controls.LessThanAPacket])
@pytest.mark.parametrize("chooses", [False, True])
def test_one_that_lets_nothing_go_is_named(of: type, chooses: bool) -> None:
    with net(control=own(of), stuck_s=1.0) as servers:
        if chooses:
            Fed(
                servers,
                choosing("spray"),
                work_of(FABRIC, matrix_of({(0, 4): 9 * PACKET}), chunk_bytes=PACKET),
            )
        else:
            (number,) = servers.lanes(QueuePair(Nic(0, 0), Nic(2, 0), 1))
            servers.post((number, 3 * PACKET, 0))
        with pytest.raises(StuckError) as caught:
            servers.finish()
    assert caught.value.sentence == f"the transport {own(of)!r} let 0.0 send nothing to 2.0 for 1 s"
    assert "may_send" in (caught.value.hint or "")


def run_some() -> None:
    """Have packets of one queue pair be carried, and its rates change."""
    with net(control=own(Answers)) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 30 * PACKET, 0))
        servers.finish()


@pytest.mark.parametrize(
    ("method", "answer", "found"),
    [
        (method, answer, found)
        for method in ("may_send", "next_s", "window_bytes")
        for answer, found in (
            (nan, "NaN"),
            (None, "an object of type NoneType"),
            ("7", "an object of type str"),
        )
    ],
)
def test_an_answer_that_is_no_number_is_an_error_in_a_sentence(
    method: str, answer: object, found: str
) -> None:
    Answers.answers[method] = answer
    with pytest.raises(ScenarioError) as caught:
        run_some()
    unit = "seconds" if method == "next_s" else "bytes"
    sentence = f"{method} of the transport {own(Answers)!r} is {found}, not a number of {unit}"
    assert caught.value.sentence == sentence
    assert caught.value.hint


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("may_send", 1500.75),
        ("may_send", np.float64(2500.0)),
        ("may_send", inf),
        ("next_s", -inf),
        ("next_s", -7),
        ("next_s", 0.5),
        ("window_bytes", 12_000.5),
        ("window_bytes", -1),
        ("window_bytes", inf),
    ],
)
def test_any_other_number_is_an_answer(method: str, answer: float) -> None:
    Answers.answers[method] = answer
    run_some()


@pytest.mark.parametrize("method", ["may_send", "next_s", "window_bytes"])
def test_a_number_that_is_too_large_is_an_error_in_a_sentence(method: str) -> None:
    Answers.answers[method] = 10**400
    with pytest.raises(ScenarioError, match="your transport raised OverflowError in"):
        run_some()


def test_a_negative_number_of_bytes_lets_nothing_go() -> None:
    Answers.answers["may_send"] = -5000
    with net(control=own(Answers)) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 3 * PACKET, 0))
        servers.go_on(0.1)
        (source,) = servers.engine.sources
        assert (source.allowed, servers.engine.packets.sent) == (0, 0)
        Answers.answers["may_send"] = inf
        servers.engine.hold([number])
        servers.engine.resume([number])
        servers.step()
        assert source.allowed + source.sent == UNLIMITED_BYTES
        servers.finish()


@pytest.mark.parametrize("method", ["__init__", "on_events", "may_send", "next_s", "rates_changed"])
def test_what_raises_is_named_with_its_line(method: str) -> None:
    Raises.where = method
    rates = {"bps": RATE_BPS}
    where = r"at .*controls\.py:\d+: division by zero"

    def run() -> None:
        servers.step()
        rates["bps"] /= 2
        servers.engine.rates_changed()
        servers.finish()

    with net(control=own(Raises), rate_bps=lambda _: rates["bps"]) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 30 * PACKET, 0))
        with pytest.raises(ScenarioError, match=f"your transport raised ZeroDivisionError {where}"):
            run()


def granted_by_own(packets: int = 30) -> int:
    """Return how many messages arrived of one that a user's own receiver grants."""
    with net(control=own(RaisingCredit)) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, packets * PACKET, 0))
        arrived = servers.finish()
        (source,) = servers.engine.sources
        assert source.sent == servers.engine.sources.granted_bytes(source) == packets * PACKET
        return len(arrived)


def test_a_users_own_may_have_receivers_that_grant() -> None:
    assert granted_by_own() == 1


@pytest.mark.parametrize("where", ["announcement", "on_granted", "grants", "on_arrived"])
def test_what_raises_of_a_users_own_grants_is_named_with_its_line(where: str) -> None:
    RaisingCredit.where = where
    line = r"at .*controls\.py:\d+: division by zero"
    with pytest.raises(ScenarioError, match=f"your transport raised ZeroDivisionError {line}"):
        granted_by_own()


def test_a_grant_to_a_stranger_is_an_error_in_a_sentence() -> None:
    RaisingCredit.where = "stranger"
    with pytest.raises(ScenarioError, match="granted something to a source that does not send to it"):
        granted_by_own()


def test_a_grant_to_what_cannot_be_a_source_is_one_too() -> None:
    RaisingCredit.where = "unhashable"
    with pytest.raises(ScenarioError, match=r"your transport raised TypeError in .*unhashable"):
        granted_by_own()
