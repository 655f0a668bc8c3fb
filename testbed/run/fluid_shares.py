"""Messages whose packets go by several paths in fixed shares, in the model: each share is as a message.

So an oblivious scheme does not lead packets away from a path that is slow, or dead and not known to be: a
message has arrived when the slowest of its shares has.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, count, pairwise

import numpy as np

from testbed.run.fluid_choices import FluidChoices

FIRST_PART = 1 << 48
"""The number of the first share: no operation has one as high."""
Carried = dict[int, int]
"""How many bytes each queue pair carried."""


class FluidShares:
    """The messages under way that go in shares.

    Parameters
    ----------
    choices
        Carries each share, which has one queue pair to choose from.
    """

    def __init__(self, choices: FluidChoices) -> None:
        self._choices, self._numbers = choices, count(FIRST_PART)
        self._parts_of: dict[int, list[int]] = {}
        """The shares of each message."""
        self._message_of: dict[int, int] = {}
        self._to_come: dict[int, int] = {}
        """How many shares of each message have not arrived."""

    def __contains__(self, message: int) -> bool:
        """Return whether a message goes in shares."""
        return message in self._parts_of

    def post(
        self, messages: Sequence[int], sizes: Sequence[int], ways: Sequence[Mapping[int, int]], posted: int
    ) -> None:
        """Post messages, each over queue pairs in proportion to numbers; ``posted`` is as of the choices'."""
        rows = list[tuple[int, int, int]]()
        for message, size, shares in zip(messages, sizes, ways, strict=True):
            whole, ends = sum(shares.values()), accumulate(shares.values(), initial=0)
            edges = pairwise(size * end // whole for end in ends)
            own = [
                (next(self._numbers), way, end - begin)
                for way, (begin, end) in zip(shares, edges, strict=True)
                if end > begin
            ]
            self._parts_of[message] = [part for part, *_ in own]
            self._to_come[message] = len(own)
            self._message_of.update((part, message) for part, *_ in own)
            rows += own
        parts, over, parcels = (list(column) for column in zip(*rows, strict=True))
        self._choices.post([(way,) for way in over], np.array(parcels), np.array(parts), posted)

    def landed(self, part: int) -> int | None:
        """Return the message of a share that has arrived, if it was its last; what is no share as it is."""
        if part not in self._message_of:
            return part
        message = self._message_of[part]
        self._to_come[message] -= 1
        return None if self._to_come[message] else message

    def has_arrived(self, message: int) -> bool:
        """Return whether a message lacks nothing."""
        return all(map(self._choices.has_arrived, self._parts_of[message]))

    def lacking(self, message: int) -> int:
        """Return how many bytes a message lacks."""
        return sum(map(self._choices.lacking, self._parts_of[message]))

    def chosen(self, message: int, *, goes_on: bool) -> Carried:
        """Return what each queue pair carried of a message since this was last asked."""
        carried: Carried = defaultdict(int)
        for part in self._parts_of[message]:
            for way, size in self._choices.chosen(part, goes_on=goes_on).items():
                carried[way] += size
        if not goes_on:
            self._forget(message)
        return carried

    def recall(self, messages: Sequence[int]) -> tuple[dict[int, Carried], dict[int, int], list[int]]:
        """Take back what messages lack, with those that share their queue pairs; as of the choices'."""
        parts, lacking, flows, seen = dict[int, Carried](), dict[int, int](), list[int](), set[int]()
        to_do = set(messages)
        while to_do:
            seen |= to_do
            mine = [part for message in sorted(to_do) for part in self._parts_of[message]]
            lacks = [part for part in mine if part not in parts and not self._choices.has_arrived(part)]
            back = self._choices.recall(lacks)
            parts |= back[0]
            lacking |= back[1]
            flows += back[2]
            to_do = {self._message_of[part] for part in back[0]} - seen
        return self._merged(seen, parts), self._summed(seen, lacking), flows

    def _merged(self, messages: Collection[int], recalled: Mapping[int, Carried]) -> dict[int, Carried]:
        """Return what was carried of each message, of shares that were recalled and of those that arrived."""
        found = dict[int, Carried]()
        for message in sorted(messages):
            carried: Carried = defaultdict(int)
            for part in self._parts_of[message]:
                own = recalled[part] if part in recalled else self._choices.chosen(part, goes_on=False)
                for way, size in own.items():
                    carried[way] += size
            found[message] = carried
        return found

    def _summed(self, messages: Collection[int], lacking: Mapping[int, int]) -> dict[int, int]:
        found = {m: sum(lacking.get(part, 0) for part in self._parts_of[m]) for m in messages}
        for message in messages:
            self._forget(message)
        return found

    def _forget(self, message: int) -> None:
        for part in self._parts_of.pop(message):
            del self._message_of[part]
        del self._to_come[message]
