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


def test_messages_that_are_posted_again_are_delivered_again() -> None:
    backlog = Backlog()
    backlog.post([5, 5, 5], [1, 2, 1])
    backlog.post([5], [1])
    assert backlog.next_end == 10
    assert backlog.deliver(15) == [2, 1]
    assert backlog.deliver(20) == [1]
