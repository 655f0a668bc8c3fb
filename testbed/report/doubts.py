"""Doubts: why points are not faithful, each reason once, and what to do."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from testbed.report.means import WORDS
from testbed.trust.outcome import Verdict

FIGURE = re.compile(r"(?<![\w:.])\d[\d.,]*")
"""A number that stands alone; those in names of ports do not."""


def doubts(verdicts: Sequence[Verdict]) -> list[str]:
    """Return a line for each reason, with how many points have it where there are several, and for advice.

    The worst word comes first. Reasons that differ in their figures alone are one, with the largest.
    """
    return [
        f"{word}: {text}"
        for word in reversed(WORDS)
        for mine in [[each for each in verdicts if each.word == word]]
        for text in (*_reasons(mine, len(verdicts)), *dict.fromkeys(each.advice for each in mine))
        if text
    ]


def _reasons(mine: Sequence[Verdict], points: int) -> Iterator[str]:
    """Yield each reason of some of so many points."""
    alike = defaultdict[str, dict[str, None]](dict)
    having = defaultdict[str, set[int]](set)
    for number, each in enumerate(mine):
        for reason in each.reasons:
            bare = FIGURE.sub("#", reason)
            alike[bare][reason] = None
            having[bare].add(number)
    for bare, texts in alike.items():
        counted = f"{len(having[bare])} of {points} points" + ", figures up to this" * (len(texts) > 1)
        yield max(texts, key=_figures) + f" ({counted})" * (points > 1)


def _figures(reason: str) -> list[float]:
    """Return the figures of a reason."""
    return [float(figure.replace(",", "").rstrip(".")) for figure in FIGURE.findall(reason)]
