"""Which packets are missing: those that others overtook on their path, and those that take too long."""

from collections.abc import Sequence
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from traffic.transports.datagram_lane import DatagramLane, Packet, PacketPath, Source, UnderWay

NO_SOURCE = cast(Source, None)


def packet(number: int, entropy: int = 0, left_at: float = 0.0) -> Packet:
    """Return a packet of a lane that nobody looks at."""
    path = PacketPath(cast(DatagramLane, None), entropy, ("", 0))
    return Packet(path, number, NO_SOURCE, [], 1000, left_at)


def under_way(packets: Sequence[Packet]) -> UnderWay:
    """Return some packets under way, those of an entropy by one path."""
    found, paths = UnderWay(), dict[int, PacketPath]()
    for each in packets:
        each.path = paths.setdefault(each.path.entropy, each.path)
        found.left(each)
    return found


def arrived(found: UnderWay, one: Packet) -> list[int]:
    """Have a packet arrive; return the numbers of those that are lost, which then are over."""
    one.over = True
    return [each.number for each in found.overtaken_by(one)]


def test_what_left_before_by_the_same_path_and_has_not_arrived_is_lost() -> None:
    packets = [packet(number, number % 2) for number in range(10)]
    found = under_way(packets)
    order = [1, 0, 5, 8, 7, 9]
    assert [arrived(found, packets[number]) for number in order] == [[], [], [3], [2, 4, 6], [], []]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=20), st.data())
def test_each_packet_arrives_or_is_lost_once_whatever_arrives(
    entropies: list[int], data: st.DataObject
) -> None:
    packets = [packet(number, entropy) for number, entropy in enumerate(entropies)]
    found, ended = under_way(packets), list[int]()
    while left := [each for each in packets if not each.over]:
        one = data.draw(st.sampled_from(left))
        lost = arrived(found, one)
        assert lost == [each.number for each in left if each.path == one.path and each.number < one.number]
        ended += [*lost, one.number]
    assert sorted(ended) == list(range(len(packets)))
    assert not found.missing(1e9, lambda _: 0.0), "they count no more"


def test_what_is_over_otherwise_is_not_lost() -> None:
    packets = [packet(number) for number in range(4)]
    found = under_way(packets)
    packets[0].over = packets[2].over = True  # they were taken back
    assert arrived(found, packets[3]) == [1]


@given(st.lists(st.floats(0.0, 1.0), max_size=20), st.floats(0.0, 2.0))
def test_what_left_too_long_ago_is_missing(gaps_s: list[float], now: float) -> None:
    sent_s = [sum(gaps_s[: number + 1]) for number in range(len(gaps_s))]
    packets = [packet(number, number % 3, at) for number, at in enumerate(sent_s)]
    found = under_way(packets)
    for each in packets[::4]:
        arrived(found, each)
    late = [each for each in packets if not each.over and now - each.left_at >= 0.5]
    assert found.missing(now, lambda _: 0.5) == late
    assert not found.missing(now, lambda _: 0.5)
    left = [each for each in packets if not each.over]
    assert found.missing(now + 1e3, lambda _: 0.5) == left


def test_patience_is_asked_for_each_packet() -> None:
    packets = [packet(number, left_at=float(number)) for number in range(3)]
    patience_s = {0: 5.0, 1: 3.0, 2: 10.0}
    found = under_way(packets)
    asked = [found.missing(now, lambda each: patience_s[each.number]) for now in (4.5, 5.0, 11.9, 12.0)]
    assert [[each.number for each in some] for some in asked] == [[], [0, 1], [], [2]]
