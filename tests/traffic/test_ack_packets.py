"""Acknowledgements, announcements and grants as packets: what is lost of them, and what is heard by them."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.traffic import relay
from tests.traffic.relay import ACK, PACKET, PACKET_S, RATE_BPS, Fate, Net, Passed, Seen, net, passes
from tests.traffic.test_datagram_engine import FATES, ONE, Fed, choosing, work_between
from tests.traffic.test_engine_conservation import ACTS, Course, Heard, listening
from topologies.errors import ScenarioError
from topologies.fabric import Nic
from traffic.congestion.control import Acknowledged, PerPacket
from traffic.packets import ETHERNET_HEADER_BYTES
from traffic.transports.ack_packets import FRAME_BYTES, REPEAT_PACKETS
from traffic.transports.datagram_lane import Crossed
from traffic.transports.host_settings import TransportSetup
from traffic.transports.loop import PacketCounts
from traffic.transports.slots import IP_UDP_BYTES

heard = list[Acknowledged]()


class OneByOne(PerPacket):
    """A congestion control whose packets wait for the acknowledgement of the one before."""

    window_bytes = 1.0 * PACKET

    def on_acknowledged(self, packet: Acknowledged, now_s: float) -> None:
        """Note it."""
        heard.append(packet)


class TwoByTwo(OneByOne):
    """One that has two packets on their way."""

    window_bytes = 2.0 * PACKET


class AllAtOnce(OneByOne):
    """One whose packets wait for nothing."""

    window_bytes = 1000.0 * PACKET


@pytest.fixture(autouse=True)
def forget() -> None:
    """Begin with nothing that was heard."""
    heard.clear()


def named(kind: type[PerPacket]) -> str:
    """Return the name of a transport."""
    return f"{__name__}:{kind.__name__}"


def acks(fate: Callable[[Seen], Passed]) -> Fate:
    """Return the fate that befalls acknowledgements and the like alone."""
    return lambda seen: fate(seen) if seen.number == ACK else passes(seen)


def lost(numbers: Sequence[int]) -> Fate:
    """Return the fate that those of some numbers are lost the first time."""
    return acks(lambda seen: [] if seen.message in numbers and not seen.order else passes(seen))


def late(seconds: float) -> Fate:
    """Return the fate that they come late."""
    return acks(lambda seen: [(seconds, seen)])


def send(of: Net, packets: int, *, round_trip_s: float = 0.0) -> float:
    """Send a message; return how long it took [s]."""
    (number,) = of.lanes(ONE, round_trip_s=round_trip_s)
    of.post((number, packets * PACKET, 7))
    (arrival,) = of.finish()
    return arrival.at - 1000.0


@pytest.mark.parametrize("control", ["nscc", "credit"])
@settings(max_examples=examples(6, 60))
@given(
    seed=st.integers(0, 1 << 16),
    fate=st.sampled_from(list(FATES)),
    acts=st.lists(st.sampled_from(ACTS), min_size=5, max_size=40),
)
def test_bytes_count_once_whatever_befalls_packets_that_acknowledge_them(
    control: str, seed: int, fate: str, acts: list[str]
) -> None:
    heard, shares = dict[int, Heard](), dict[Nic, float]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relay, "algorithm_named", listening(heard))
        with net(
            FATES[fate](seed),
            control=control,
            rate_bps=lambda nic: RATE_BPS * shares.get(nic, 1.0),
            ack_packets=True,
        ) as servers:
            course = Course(servers, heard, shares, seed)
            for act in acts:
                course.do(act)
            course.finish()
            servers.step(2.0)  # what came late at the end is as late once all has arrived
            servers.step()
            course.check_conservation()
            course.check_ended()


def test_each_packet_is_acknowledged_by_a_frame_of_64_bytes_and_its_entropy() -> None:
    with net(control="nscc", ack_packets=True) as servers:
        send(servers, 20)
        assert servers.engine.packets == PacketCounts(sent=20, arrived=20)
        seen = servers.relay.acks
        assert [each.message for each in seen] == [*range(1, 21)]
        assert {each.entropy for each in seen} == {ONE.entropy}
        assert {each.server for each in seen} == {ONE.source.server}
        headers = ETHERNET_HEADER_BYTES + IP_UDP_BYTES
        assert {headers + len(each.data) for each in seen} == {FRAME_BYTES} == {64}


def test_announcements_and_grants_are_packets_too() -> None:
    with net(ack_packets=True) as servers:
        send(servers, 20)
        towards = [each.server for each in servers.relay.acks]
    assert towards.count(ONE.source.server) >= 20 + 10, "twenty acknowledgements, and grants"
    assert towards.count(ONE.destination.server) >= 1, "an announcement"


@pytest.mark.parametrize("kind", [OneByOne, AllAtOnce])
@pytest.mark.parametrize("numbers", [[3], [1, 2, 3, 8], [20], range(1, 21)])
def test_what_an_acknowledgement_is_lost_of_is_not_sent_again(
    kind: type[PerPacket], numbers: Sequence[int]
) -> None:
    with net(lost(numbers), control=named(kind), ack_packets=True) as servers:
        waits_s = send(servers, 20) - 20 * PACKET_S
        assert servers.engine.packets == PacketCounts(sent=20, arrived=20)
        assert [each.bytes for each in heard] + [each.bytes for each in news(servers)] == [PACKET] * 20
        repeated = [each.message for each in servers.relay.acks if each.order]
    if kind is OneByOne:  # nothing follows that could make it good, but for the last one: all has arrived
        assert repeated == [number for number in numbers if number < 20]
        assert waits_s == pytest.approx(len(repeated) * REPEAT_PACKETS * PACKET_S, abs=0.1)
    else:
        assert not [number for number in repeated if number < 20]
    assert {each.rtt_s < 3 * PACKET_S for each in heard} <= {True}, "what was lost took no time"


def test_an_acknowledgement_brings_those_before_it_that_were_lost() -> None:
    with net(lost(range(1, 40, 2)), control=named(TwoByTwo), ack_packets=True) as servers:
        assert send(servers, 40) < 45 * PACKET_S
        assert len([*heard, *news(servers)]) == 40
        assert not [each for each in servers.relay.acks if each.order], "none is sent again"


def test_of_several_that_are_lost_the_last_alone_is_sent_again() -> None:
    with net(lost([1, 2]), control=named(TwoByTwo), ack_packets=True) as servers:
        send(servers, 6)
        assert [each.message for each in servers.relay.acks if each.order] == [2]


def news(of: Net) -> list[Acknowledged]:
    """Return the acknowledgements of which congestion controls hear at their next turn."""
    return [each for source in of.engine.sources for each in source.news_acknowledged]


@pytest.mark.parametrize("round_trip_s", [0.0, 20 * PACKET_S])
def test_a_grant_that_is_lost_and_the_last_one_is_sent_again(round_trip_s: float) -> None:
    gone = list[int]()

    def first_grant(seen: Seen) -> Passed:
        if seen.server == ONE.source.server and not gone:
            gone.append(seen.lane)
            return []
        return passes(seen)

    with net(acks(first_grant), ack_packets=True) as servers:
        took_s = send(servers, 1, round_trip_s=round_trip_s)
        assert servers.engine.packets == PacketCounts(sent=1, arrived=1)
    assert gone
    # Half of one for the announcement, one until the grant is sent again, half for it, and half for data.
    assert took_s == pytest.approx(REPEAT_PACKETS * PACKET_S + 2.5 * round_trip_s, abs=6 * PACKET_S)


def test_a_round_trip_has_the_way_back_and_a_mark_has_not() -> None:
    back_s = 30 * PACKET_S
    with net(late(back_s), control=named(OneByOne), ack_packets=True) as servers:
        send(servers, 12, round_trip_s=10 * PACKET_S)
        assert len(heard) == 11
        assert [each.rtt_s for each in heard] == pytest.approx(
            [back_s + 10 * PACKET_S] * len(heard), abs=3 * PACKET_S
        )
        assert not any(each.marked for each in heard)
        assert max(servers.engine.marking.queues_s) < 2 * PACKET_S


def test_what_is_read_late_because_all_had_arrived_took_no_longer() -> None:
    with net(late(PACKET_S), control=named(AllAtOnce), ack_packets=True) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 20 * PACKET, 0))
        servers.run(lambda: servers.engine.quiet)
        servers.clock.now += 100.0
        servers.post((number, 20 * PACKET, 1))
        servers.finish()
        assert [each.bytes for each in [*heard, *news(servers)]] == [PACKET] * 40
        assert max(each.rtt_s for each in heard) < 5 * PACKET_S


def test_over_what_leads_back_only_at_times_acknowledgements_are_no_packets() -> None:
    with net(ack_packets=True) as servers:
        (number,) = servers.lanes(ONE)
        servers.engine.crosses(number, Crossed(RATE_BPS / 8, returns=False))
        servers.post((number, 20 * PACKET, 7))
        servers.finish()
        assert not servers.relay.acks
        assert {source.on_the_way for source in servers.engine.sources} == {0}


@pytest.mark.parametrize("control", ["nscc", "credit"])
def test_without_the_option_nothing_is_sent_but_data(control: str) -> None:
    with net(control=control) as servers:
        send(servers, 20)
        assert not servers.relay.acks
        assert servers.engine.acks is None


def test_what_is_not_of_this_run_is_none_of_its_acknowledgements() -> None:
    with net(control=named(OneByOne), ack_packets=True) as servers:
        send(servers, 2)
        packets = servers.engine.acks
        assert packets
        for other in (b"\xff" * 22, servers.relay.acks[0].data[:8] + b"\xff" * 14):
            packets.received(memoryview(other), servers.clock.now)
        assert servers.engine.packets == PacketCounts(sent=2, arrived=2)


def test_packets_of_any_entropy_are_acknowledged_by_theirs() -> None:
    with net(control="nscc", ack_packets=True) as servers:
        Fed(servers, choosing("spray"), work_between(0))
        servers.finish()
        pairs = {each.lane: servers.engine.queue_pair(each.lane) for each in servers.relay.seen}
        sent = Counter((pairs[each.lane].source.server, each.entropy) for each in servers.relay.seen)
        assert len({entropy for _, entropy in sent}) > 10
        assert Counter((each.server, each.entropy) for each in servers.relay.acks) == sent


@pytest.mark.parametrize("name", ["tcp", "tcp:bbr"])
def test_tcp_is_refused(name: str) -> None:
    with pytest.raises(ScenarioError, match=f"--ack-packets is for datagrams, and {name} acknowledges by"):
        TransportSetup(name, ack_packets=True)
    assert TransportSetup("credit", ack_packets=True).ack_packets
