"""The paper's claims beside what was measured: each holds, does not, is not comparable, or is arithmetic.

A claim is a sentence of a paper with the range in which lightrail takes it to hold. Where the
paper gives one number the range is 10 % to each side, but stays on the number's side of 1: which
scheme wins is part of the claim. Schemes within 2 % of each other are as good as each other: both
may be called the best, and neither ends later than the other.
What is measured comes from the summary alone; a void or unsound point makes a claim not comparable. So does
one that was only predicted, whichever paper it is of: what the model gives is shown beside the claim, which
it rules neither way (`judged`, `predicted`). A study that measures by itself, of a trace, a plan or a
graph, needs no emulation. Each claim is judged under each transport of a run, as if there were no other:
a conclusion about schemes that only one transport bears out is one about the transport. What follows from a
paper's own inputs, without anything of ours, or was made to meet its number, is arithmetic: that it comes
out says that both reckon alike, and it never counts as held. What lightrail claims itself has `LIGHTRAIL`
as its source; it stands behind what papers claim, and is counted apart.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.report.means import WORDS, transports_of
from testbed.trust.outcome import LEFT_OUT

TOLERANCE = 0.10
SAME = 0.02
TIMES, SHARE = "{:.2f}x", "{:.3f}"
"""How a ratio is written, and how a load MSE."""

LIGHTRAIL = "lightrail"
"""The beginning of the source of a claim that no paper makes."""
PREDICTED = "predicted, nothing was emulated"

Range = tuple[float, float]
AT_LEAST_AS_GOOD: Range = (1 - SAME, math.inf)
MORE: Range = (1 + SAME, math.inf)
LESS: Range = (0.0, 1 - SAME)
"""Of ratios: no worse, and clearly more or less."""
Ruling = Literal["holds", "does not hold", "not comparable", "arithmetic"]


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, and what a run says of it."""

    text: str
    """What the paper claims, in its own numbers."""
    source: str
    """Where: ``RailS, VI-B``."""
    expected: Range
    """The range of ``measured`` in which the claim holds; either end may be infinite."""
    measured: float = math.nan
    """What this run gives for the same quantity; NaN if not comparable."""
    verdict: Ruling = "not comparable"
    reason: str = ""
    """Why, in a sentence; empty where it holds."""
    pattern: str = TIMES
    """How ``measured`` is written."""
    transport: str = ""
    """Under which it was judged; empty where nothing was sent."""
    basis: str = ""
    """What ``measured`` rests on: seeds, and verdicts other than faithful."""
    ran: bool = True
    """Whether all that it is about was run: else it does not count."""

    @property
    def is_own(self) -> bool:
        """True if the claim is lightrail's, and no paper's."""
        return self.source.startswith(LIGHTRAIL)


@dataclass(frozen=True)
class Sentence:
    """A claim before it is judged."""

    text: str
    source: str
    expected: Range
    needs: Sequence[tuple[str, str]]
    """The points it is about: workload and scheme."""
    measure: Callable[[pd.DataFrame], float]
    """What gives the quantity, from a summary that has these points; NaN if no seed is common."""
    gain_over: tuple[str, str] | None = None
    """For a gain: the point whose distance from the lower bound limits it."""
    pattern: str = TIMES
    """How the quantity is written."""
    is_made: bool = False
    """Whether what is run was made to meet it, so that it is arithmetic if it comes out."""


def under_each_transport(
    judge: Callable[[pd.DataFrame], Sequence[Claim]], table: pd.DataFrame
) -> list[Claim]:
    """Return what a summary says of claims under each of its transports, one transport after the other.

    Parameters
    ----------
    judge
        What judges claims by the summary of one transport.
    table
        From `testbed.trust.outcome.summary`.
    """
    return [
        replace(claim, transport=transport)
        for transport in transports_of(table)
        for claim in judge(table[table["transport"] == transport])
    ]


def side_by_side(claims: Sequence[Claim]) -> list[dict[str, Claim]]:
    """Return a row per claim, by source, lightrail's last: what was ruled under each transport."""
    rows: dict[str, dict[str, dict[str, Claim]]] = {}
    for claim in sorted(claims, key=lambda claim: claim.is_own):
        rows.setdefault(claim.source, {}).setdefault(claim.text, {})[claim.transport] = claim
    return [row for group in rows.values() for row in group.values()]


def judged(sentence: Sentence, table: pd.DataFrame, *, by_model: bool = False) -> Claim:
    """Return what a summary says of a sentence.

    Parameters
    ----------
    sentence
        What is claimed.
    table
        From `testbed.trust.outcome.summary`.
    by_model
        Whether predictions rule it: only where it is about predictions, and not about what a paper measured.
    """
    about = sentence.text, sentence.source, sentence.expected
    if missing := _missing(sentence.needs, table):
        return Claim(*about, reason=f"not run: {'; '.join(missing)}", ran=False)
    for word in reversed(LEFT_OUT):
        if out := _left_out(word, sentence.needs, table):
            return Claim(*about, reason=f"{word}: {'; '.join(out)}")
    measured = sentence.measure(table)
    if math.isnan(measured):
        return Claim(*about, reason=_nothing(sentence.needs, table))
    low, high = sentence.expected
    basis = _basis(sentence.needs, table)
    if not by_model and (_needed(sentence.needs, table)["verdict"] == "model").any():
        return replace(predicted(*about, measured, pattern=sentence.pattern), basis=basis)
    if low <= measured <= high:
        verdict: Ruling = "arithmetic" if sentence.is_made else "holds"
        return Claim(*about, measured, verdict, pattern=sentence.pattern, basis=basis)
    reason = _miss(sentence, measured, table)
    return Claim(*about, measured, "does not hold", reason, sentence.pattern, basis=basis)


def ratio_sentence(
    text: str,
    source: str,
    expected: Range,
    workload: str,
    schemes: tuple[str, str],
    column: str,
    *,
    gain: bool = False,
) -> Sentence:
    """Return a sentence about a column of one scheme over that of another.

    A gain is limited by how far the other is from the lower bound.
    """
    scheme, other = schemes
    return Sentence(
        text,
        source,
        expected,
        [(workload, scheme), (workload, other)],
        lambda table: ratio(table, workload, scheme, other, column),
        gain_over=(workload, other) if gain else None,
    )


def around(value: float) -> Range:
    """Return the range in which a number of the paper is met: within 10 %, clearly on its side of 1."""
    low, high = value * (1 - TOLERANCE), value * (1 + TOLERANCE)
    return (max(low, MORE[0]), high) if value > 1 else (low, min(high, LESS[1]))


def ruling(measured: float, expected: Range) -> Ruling:
    """Return whether a claim holds by what was measured; NaN is not comparable."""
    if math.isnan(measured):
        return "not comparable"
    return "holds" if expected[0] <= measured <= expected[1] else "does not hold"


def predicted(
    text: str, source: str, expected: Range, value: float, reason: str = "", pattern: str = TIMES
) -> Claim:
    """Return a claim beside what the model alone gives: it is ruled by nothing, whatever comes out.

    One of which nothing was predicted, NaN, was not run.
    """
    if math.isnan(value):
        return Claim(text, source, expected, reason=reason or "not predicted", pattern=pattern, ran=False)
    found = "in the range" if ruling(value, expected) == "holds" else "not in the range"
    because = "; ".join(filter(None, (PREDICTED, found, reason)))
    return Claim(text, source, expected, value, "not comparable", because, pattern)


def arithmetic(
    text: str, source: str, expected: Range, computed: float, reason: str = "", pattern: str = TIMES
) -> Claim:
    """Return a claim that follows from the paper's own inputs: arithmetic, if the number comes out.

    One that does not come out contradicts its own inputs, and does not hold; NaN was not computed. None
    depends on a run.
    """
    found = ruling(computed, expected)
    verdict: Ruling = "arithmetic" if found == "holds" else found
    return Claim(text, source, expected, computed, verdict, reason, pattern, ran=not math.isnan(computed))


def worst_claim(
    text: str,
    source: str,
    expected: Range,
    values: Sequence[float],
    worst: Callable[[Sequence[float]], float],
    pattern: str = "{:.3f}",
    transport: str = "",
) -> Claim:
    """Return a claim ruled by the worst of some values; not comparable without any."""
    if not values:
        return Claim(text, source, expected, reason="nothing sound was emulated", pattern=pattern)
    measured = worst(values)
    reason = f"the worst of {len(values)}"
    return Claim(text, source, expected, measured, ruling(measured, expected), reason, pattern, transport)


def farthest_from_1(values: Sequence[float]) -> float:
    """Return the ratio that says most of a difference."""
    return max(values, key=lambda value: abs(value - 1))


def ratio(table: pd.DataFrame, workload: str, scheme: str, other: str, column: str) -> float:
    """Return a column of one scheme over that of another, the mean over the seeds that both ran."""
    above, below = (_by_seed(table, workload, name, column) for name in (scheme, other))
    return float((above / below).dropna().mean())


def mean(table: pd.DataFrame, workload: str, scheme: str, column: str) -> float:
    """Return the mean of a column over the seeds of a point."""
    return float(table.loc[_is_of(table, workload, scheme), column].mean())


def _by_seed(table: pd.DataFrame, workload: str, scheme: str, column: str) -> pd.Series:
    mine = _is_of(table, workload, scheme)
    return table.loc[mine, column].groupby(table.loc[mine, "seed"]).mean()


def _is_of(table: pd.DataFrame, workload: str, scheme: str) -> NDArray[np.bool_]:
    """Return which rows are those of a point."""
    # Through numpy: a claim reads hundreds of points, and pandas takes 0.2 ms to compare a column of text.
    return np.asarray((table["workload"].to_numpy() == workload) & (table["name"].to_numpy() == scheme))


def _missing(needs: Sequence[tuple[str, str]], table: pd.DataFrame) -> list[str]:
    """Return the points of a claim that were not run."""
    there = set(zip(table["workload"], table["name"], strict=True))
    return [f"{scheme}, {workload}" for workload, scheme in needs if (workload, scheme) not in there]


def _left_out(word: str, needs: Sequence[tuple[str, str]], table: pd.DataFrame) -> list[str]:
    """Return the points of a claim that are void, or unsound, each with the seeds."""
    found = _needed(needs, table[table["verdict"] == word])
    seeds: dict[tuple[str, str], list[str]] = {}
    for scheme, workload, seed in zip(found["name"], found["workload"], found["seed"], strict=True):
        seeds.setdefault((scheme, workload), []).append(str(seed))
    return [f"{scheme}, {workload}, seed {', '.join(mine)}" for (scheme, workload), mine in seeds.items()]


def _nothing(needs: Sequence[tuple[str, str]], table: pd.DataFrame) -> str:
    """Return why a claim about points that were all run has no value."""
    rows = _needed(needs, table)
    seeds = [set(mine) for _, mine in rows.groupby(["workload", "name"])["seed"]]
    if set.intersection(*seeds):
        return "0 over 0, or not measured: there is nothing to compare"
    return "the schemes have no seed in common"


def _needed(needs: Sequence[tuple[str, str]], table: pd.DataFrame) -> pd.DataFrame:
    rows = zip(table["workload"], table["name"], strict=True)
    return table[np.array([row in needs for row in rows], dtype=bool)]


def _basis(needs: Sequence[tuple[str, str]], table: pd.DataFrame) -> str:
    """Return what a measured value rests on: seeds, and verdicts other than faithful."""
    rows = _needed(needs, table)
    seeds = rows["seed"].nunique()
    words = [word for word in WORDS if (rows["verdict"] == word).any() and word != "faithful"]
    if words == ["model"]:
        words = ["by the model, nothing was emulated"]
    return ", ".join([f"{seeds} seed{'s' if seeds > 1 else ''}", *words])


def _miss(sentence: Sentence, measured: float, table: pd.DataFrame) -> str:
    """Return how far, and to which side, a value lies from what was expected."""
    low, high = sentence.expected
    side = "above" if measured > high else "below"
    limit = _limit(sentence, table)
    if high < 1 and measured > high and 1 / limit > high:
        return f"{side} the range: {_at_the_bound(sentence, limit)}"
    if sentence.pattern == TIMES and abs(measured - 1) <= SAME:
        return "no difference"
    if (low >= 1 - SAME and measured < 1) or (high <= 1 and measured > 1):
        return "the other way round"
    if measured < low and limit < low:
        return f"{side} the range: {_at_the_bound(sentence, limit)}"
    return f"{side} the range"


def _limit(sentence: Sentence, table: pd.DataFrame) -> float:
    """Return how far from the lower bound the point is that a gain is over; infinite if there is none."""
    if sentence.gain_over is None:
        return math.inf
    workload, scheme = sentence.gain_over
    rows = table[(table["workload"] == workload) & (table["name"] == scheme)]
    return float((rows["cct_s"] / rows["bound_s"]).mean())


def _at_the_bound(sentence: Sentence, limit: float) -> str:
    _, scheme = sentence.gain_over or ("", "")
    return f"{scheme} is within {limit:.2f}x of the lower bound, no scheme gains more"
