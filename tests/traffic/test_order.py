"""Order: how far packets overtake each other by the words of RFC 4737, and what a receiver would hold."""

from collections import Counter
from math import isnan

from hypothesis import given
from hypothesis import strategies as st

from traffic.transports.order import MessageOrder, Orders
from traffic.transports.reordering import Reordering

ARRIVALS = st.integers(1, 12).flatmap(lambda packets: st.permutations(range(packets)))
"""The numbers of a message's packets, in the order in which they arrive."""


def extents(arrivals: list[int]) -> list[int]:
    """Return by how many each was overtaken: what the highest number before it was higher."""
    return [max([0, *(n - number for n in arrivals[:at])]) for at, number in enumerate(arrivals)]


def held(arrived: dict[int, int]) -> int:
    """Return what of bytes that arrived, by number, waits for a packet before it."""
    first = next(number for number in range(len(arrived) + 1) if number not in arrived)
    return sum(size for number, size in arrived.items() if number > first)


@given(ARRIVALS)
def test_a_packet_is_overtaken_by_as_many_as_the_highest_before_it_is_higher(arrivals: list[int]) -> None:
    order = MessageOrder()
    assert [order.number() for _ in arrivals] == list(range(len(arrivals)))
    assert [order.arrived(number, 10) for number in arrivals] == extents(arrivals)


@given(ARRIVALS, st.data())
def test_what_arrived_behind_a_gap_is_held_until_it_is_filled_or_waited_for_no_more(
    arrivals: list[int], data: st.DataObject
) -> None:
    skipped = data.draw(st.sets(st.sampled_from(arrivals)))
    order, arrived = MessageOrder(), dict[int, int]()
    for number in arrivals:
        arrived[number] = 0 if number in skipped else 10 + number
        if number in skipped:
            order.skip(number)
        else:
            order.arrived(number, arrived[number])
        assert order.held_bytes == held(arrived)
    assert order.held_bytes == 0


@given(st.lists(ARRIVALS, min_size=1, max_size=3))
def test_messages_have_orders_of_their_own_and_the_run_has_all_extents(messages: list[list[int]]) -> None:
    orders, most, expected = Orders(), 0, Counter[int]()
    for name, arrivals in enumerate(messages, start=7):
        for _ in arrivals:
            orders.of(name).number()
    for at in range(max(map(len, messages))):  # packets of all messages arrive by turns
        for name, arrivals in enumerate(messages, start=7):
            if at < len(arrivals):
                orders.arrived(orders.of(name), arrivals[at], 10)
                expected[extents(arrivals)[at]] += 1
                most = max(most, held(dict.fromkeys(arrivals[: at + 1], 10)))
    assert orders.seen == Reordering(dict(expected), most)


def test_a_gap_that_is_skipped_holds_nothing_more() -> None:
    orders = Orders()
    order = orders.of(3)
    assert [order.number() for _ in range(4)] == [0, 1, 2, 3]
    orders.arrived(order, 1, 100)
    orders.arrived(order, 2, 100)
    order.skip(0)
    orders.arrived(order, 3, 100)
    assert orders.seen == Reordering({0: 3}, held_bytes=200)


def test_a_run_in_which_nothing_arrived_has_no_shares() -> None:
    nothing = Orders().seen
    assert (nothing, nothing.packets) == (Reordering({}, 0), 0)
    assert isnan(nothing.overtaken)
    assert isnan(nothing.extent(0.5))


@given(st.dictionaries(st.integers(0, 20), st.integers(1, 9), min_size=1), st.floats(0.01, 1.0))
def test_shares_are_of_all_packets(counts: dict[int, int], share: float) -> None:
    each = sorted(extent for extent, count in counts.items() for _ in range(count))
    seen = Reordering(counts)
    assert seen.packets == len(each)
    assert seen.overtaken == sum(map(bool, each)) / len(each)
    up_to = int(seen.extent(share))
    assert sum(extent <= up_to for extent in each) >= share * len(each)
    assert sum(extent < up_to for extent in each) < share * len(each)
