"""A backlog delivers in order, and gives back exactly what it did not deliver."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from traffic.backlog import Backlog

PARCELS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=20)


@given(PARCELS, st.data())
def test_what_is_delivered_and_what_is_withdrawn_is_what_was_posted(
    parcels: list[tuple[int, int]], data: st.DataObject
) -> None:
    backlog, total = Backlog(), sum(size for size, _ in parcels)
    backlog.post([size for size, _ in parcels], [message for _, message in parcels])
    count = data.draw(st.integers(0, total))
    stream = [message for size, message in parcels for _ in range(size)]
    assert set(backlog.deliver(count)) == set(stream) - set(stream[count:])
    assert backlog.messages == set(stream[count:])
    assert dict(backlog.withdraw(count)) == Counter(stream[count:])
    assert (backlog.posted, backlog.messages, backlog.next_end) == (count, set(), float("inf"))


@given(st.lists(PARCELS, min_size=1, max_size=4), st.data())
def test_what_was_posted_together_is_given_back_together(
    postings: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    backlog, stream = Backlog(), list[tuple[int, int]]()
    for number, parcels in enumerate(postings):
        backlog.post([size for size, _ in parcels], [message for _, message in parcels])
        stream += [(number, message) for size, message in parcels for _ in range(size)]
    count = data.draw(st.integers(0, len(stream)))
    backlog.deliver(count)
    expected = sorted((message, size) for (_, message), size in Counter(stream[count:]).items())
    assert sorted(backlog.withdraw(count)) == expected


def test_what_was_delivered_and_not_said_is_given_back_as_nothing() -> None:
    backlog = Backlog()
    backlog.post([5, 5], [1, 2])
    assert backlog.withdraw(5) == [(1, 0), (2, 5)]


def test_messages_that_are_posted_again_are_delivered_again() -> None:
    backlog = Backlog()
    backlog.post([5, 5, 5], [1, 2, 1])
    backlog.post([5], [1])
    assert backlog.next_end == 10
    assert backlog.deliver(15) == [2, 1]
    assert backlog.deliver(20) == [1]


@given(st.lists(PARCELS, min_size=1, max_size=4), st.data())
def test_what_is_retracted_is_what_was_not_sent_and_the_rest_is_delivered(
    postings: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    backlog, stream = Backlog(), list[tuple[int, int]]()
    for number, parcels in enumerate(postings):
        backlog.post([size for size, _ in parcels], [message for _, message in parcels])
        stream += [(number, message) for size, message in parcels for _ in range(size)]
    sent = data.draw(st.integers(0, len(stream)))
    delivered = data.draw(st.integers(0, sent))
    backlog.deliver(delivered)
    on_its_way = set(stream[delivered:sent])
    expected = [
        (message, size, (n, message) not in on_its_way)
        for (n, message), size in Counter(stream[sent:]).items()
    ]
    assert sorted(backlog.retract(sent, delivered)) == sorted(expected)
    assert backlog.posted == sent
    assert backlog.left(delivered) == Counter(message for _, message in stream[delivered:sent])
    assert sorted(backlog.deliver(sent)) == sorted(message for _, message in on_its_way)
    assert backlog.messages == set()
