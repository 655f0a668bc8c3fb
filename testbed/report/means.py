"""Means over seeds: the numbers that the table, the plots, the claims and the report share.

A point is a workload under a scheme and a transport, over its seeds; no run has two experiments of one name
that are more than its seeds (`testbed.experiment.repetitions`). A void seed never hides in a mean: it is left
out where there are others, and where all are void the mean says that it is. An unsound one has no numbers.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.experiment.experiment import LIMIT
from testbed.trust.outcome import LEFT_OUT
from traffic.transports.registry import DATAGRAMS

BASELINE = "ecmp"
"""What busbw is relative to, unless said otherwise."""
BIG_SWITCH = "big switch"
"""What one packet switch is called that stands in the place of OCSes; their baseline."""
SCHEMES = ("ecmp", "plb", "minrtt", "reps", "spray", "pxn", "rails", "optimal")
"""The order in which schemes are shown; others come after them."""
WORDS = ("model", "faithful", "strained", "void", "unsound")
"""The words of a verdict, the worst last."""


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of something over seeds."""

    value: float
    """NaN if there is nothing to take the mean of."""
    spread: float = 0.0
    """Sample standard deviation over the seeds, 0 for one seed."""
    void: bool = False
    """Whether it was made of void points, because there are no others."""


@dataclass(frozen=True)
class Point:
    """A workload under a scheme and a transport, over its seeds."""

    workload: str
    name: str
    """Its scheme and its circuits, or its label: what tables know it by."""
    scheme: str
    circuits: str
    """Empty over packet switches."""
    transport: str
    note: str
    """Where the workload comes from."""
    words: dict[str, int]
    """How many seeds have which verdict, the best first."""
    is_limit: bool
    """Whether its prediction is a fluid limit (`testbed.trust.agreement.LIMIT`)."""
    means: dict[str, Mean]
    """By the summary's columns, and those that `with_ratios` adds."""
    likeness: str = ""
    """How like the emulation is to the real network (`testbed.trust.similitude`); the words of all seeds."""

    def __getitem__(self, column: str) -> Mean:
        """Return the mean of a column."""
        return self.means[column]

    @property
    def word(self) -> str:
        """The worst verdict of its seeds."""
        return list(self.words)[-1]

    @property
    def void(self) -> bool:
        """Whether all its seeds are void or unsound, so that its means are void."""
        return set(self.words) <= set(LEFT_OUT)

    @property
    def has_no_busbw(self) -> bool:
        """Whether no seed that has numbers has a busbw: its job has several kinds, or its GPUs were lost."""
        return math.isnan(self["busbw_gbytes_s"].value) and not math.isnan(self["cct_s"].value)

    @property
    def verdict(self) -> str:
        """The verdict in words, as `verdict_text` has them."""
        return verdict_text(self.words)

    @property
    def verdict_and_likeness(self) -> str:
        """The verdict, and how like the emulation is to the real network."""
        return ", ".join(filter(None, [self.verdict, self.likeness]))


def counted_words(verdicts: Sequence[str]) -> dict[str, int]:
    """Return how many seeds have which verdict, the best first."""
    return {word: verdicts.count(word) for word in WORDS if word in verdicts}


def verdict_text(words: Mapping[str, int]) -> str:
    """Return the verdict of seeds in words, where so many have each.

    Examples
    --------
    >>> verdict_text({"faithful": 3}), verdict_text({"faithful": 2, "void": 1})
    ('faithful', 'void 1/3')
    """
    if len(words) == 1:
        return next(iter(words))
    seeds = sum(words.values())
    return ", ".join(f"{word} {n}/{seeds}" for word, n in words.items() if word != "faithful")


def with_ratios(table: pd.DataFrame, baseline: str = BASELINE) -> pd.DataFrame:
    """Return the summary with what each point is relative to the baseline and to the bound.

    Parameters
    ----------
    table
        From `testbed.trust.outcome.summary`.
    baseline
        A scheme; points have NaN if it did not run their workload and seed under their transport. Bytes
        over circuits are compared with the baseline of the transport beside them, or the first there is.

    Returns
    -------
    DataFrame
        The table with four columns more: ``busbw_relative``, busbw over the baseline's with the same
        workload, seed and transport; ``busbw_limit``, what that would be if all times were as much
        shorter as CCT is at the lower bound; ``over_bound``, CCT over the lower bound; ``baseline_void``,
        whether the baseline is left out.
    """
    keys = ["workload", "seed", "against"]
    base = table[table["name"] == baseline].assign(against=lambda rows: rows["transport"])
    table = table.assign(against=_against(table, base))
    base_busbw = base.groupby(keys)["busbw_gbytes_s"].mean().rename("base_busbw")
    base_void = (
        base["verdict"].isin(LEFT_OUT).groupby([base[key] for key in keys]).any().rename("baseline_void")
    )
    ratios = table.join(base_busbw, on=keys).join(base_void, on=keys)
    ratios["over_bound"] = ratios["cct_s"] / ratios["bound_s"].where(ratios["bound_s"] > 0)
    ratios["busbw_relative"] = ratios["busbw_gbytes_s"] / ratios["base_busbw"]
    ratios["busbw_limit"] = ratios["busbw_relative"] * ratios["over_bound"]
    ratios["baseline_void"] = ratios["baseline_void"].eq(True)
    return ratios.drop(columns=["base_busbw", "against"])


def _against(table: pd.DataFrame, base: pd.DataFrame) -> list[str]:
    """Return the transport under which each row's baseline ran."""
    ran: dict[tuple[str, int], list[str]] = {}
    for workload, seed, transport in zip(base["workload"], base["seed"], base["transport"], strict=True):
        ran.setdefault((workload, seed), []).append(transport)
    found = []
    for workload, seed, transport in zip(table["workload"], table["seed"], table["transport"], strict=True):
        beside = beside_circuits(transport)
        there = ran.get((workload, seed), [])
        found.append(there[0] if beside != transport and there and beside not in there else beside)
    return found


def beside_circuits(transport: str) -> str:
    """Return what moves bytes over packet switches under a transport that tables name, "" if nothing does.

    Examples
    --------
    >>> beside_circuits("datagrams, tcp"), beside_circuits("datagrams"), beside_circuits("credit")
    ('tcp', '', 'credit')
    """
    return transport.removeprefix(DATAGRAMS).removeprefix(", ")


def transports_of(table: pd.DataFrame) -> list[str]:
    """Return the transports of a summary, each once, as they come."""
    return list(dict.fromkeys(map(str, table["transport"])))


def points(table: pd.DataFrame, baseline: str = BASELINE) -> list[Point]:
    """Return the points of a summary: schemes as in `SCHEMES`, workloads and transports as they come."""
    ratios = with_ratios(table, baseline)
    numbers = [str(column) for column in ratios.select_dtypes("number")]
    rows = {
        (str(workload), str(scheme), str(transport)): mine
        for (workload, scheme, transport), mine in ratios.groupby(["workload", "name", "transport"])
    }
    return [
        _point(workload, scheme, transport, rows[workload, scheme, transport], numbers)
        for workload in dict.fromkeys(map(str, table["workload"]))
        for scheme in in_order(scheme for name, scheme, _ in rows if name == workload)
        for transport in transports_of(table)
        if (workload, scheme, transport) in rows
    ]


def in_order(schemes: Iterable[str]) -> list[str]:
    """Return schemes, each once, in the order in which they are shown."""
    rank = {scheme: index for index, scheme in enumerate(SCHEMES)}
    # Of one that is not as usual, with faults or more entropies for instance, the name begins with that of
    # the usual one.
    return sorted(
        {str(scheme) for scheme in schemes},
        key=lambda name: (rank.get(name, rank.get(re.split(", |:", name)[0], len(rank))), name),
    )


def _point(workload: str, scheme: str, transport: str, rows: pd.DataFrame, numbers: Sequence[str]) -> Point:
    verdicts = rows["verdict"].tolist()
    void, baseline_void = np.array([word in LEFT_OUT for word in verdicts]), rows["baseline_void"].to_numpy()
    masks = {
        "bound_s": np.zeros_like(void),
        "busbw_relative": void | baseline_void,
        "busbw_limit": baseline_void,
    }
    values = rows[numbers].to_numpy(dtype=float)
    means = {
        column: over_seeds(values[:, index], masks.get(column, void)) for index, column in enumerate(numbers)
    }
    notes = list(dict.fromkeys(rows["note"]))
    is_limit = bool((rows["predicted_as"] == LIMIT).any())
    note = notes[0] if len(notes) == 1 else f"{notes[0]} (the other seeds alike)"
    likeness = ", ".join(word for word in dict.fromkeys(rows["likeness"]) if word)
    first = rows.iloc[0]
    words = str(first["scheme"]), str(first["circuits"])
    return Point(
        workload, scheme, *words, transport, note, counted_words(verdicts), is_limit, means, likeness
    )


def over_seeds(values: NDArray[np.float64], void: NDArray[np.bool_]) -> Mean:
    """Return the mean of what is known of some seeds: of void ones if there are no others.

    What is unsound has no numbers.
    """
    known = ~np.isnan(values)
    sound = values[known & ~void]
    taken = sound if len(sound) else values[known]
    if not len(taken):
        return Mean(math.nan)
    spread = float(taken.std(ddof=1)) if len(taken) > 1 else 0.0
    return Mean(float(taken.mean()), spread, void=not len(sound))


def scheme_labels(rows: Sequence[Point]) -> list[str]:
    """Return what each point of circuits is called: its scheme, and its transport where that has several."""
    under = Counter((point.workload, point.name) for point in rows)
    return [
        point.scheme
        if under[point.workload, point.name] == 1
        else f"{point.scheme}, {beside_circuits(point.transport) or point.transport}"
        for point in rows
    ]


def circuit_points(table: pd.DataFrame) -> list[Point]:
    """Return the points of a summary, all as they come, with busbw relative to the big switch."""
    order = list(dict.fromkeys(zip(table["workload"], table["name"], strict=True)))
    return sorted(points(table, BIG_SWITCH), key=lambda point: order.index((point.workload, point.name)))
