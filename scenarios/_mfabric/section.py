"""The sections of mFabric's study, and the report that any number of them make.

A section is one question with its figures: tables for the report, claims, plots, and its numbers as files.
`scenarios/mfabric_scale.py` lists the sections; one more is one more there, and no other changes.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from testbed.report.claims import Range
from testbed.report.page import Findings
from testbed.study.computed import Call, ComputedReport, Found

NO_DECIMALS_BEYOND = 0.05
"""How far a number with one decimal may be from what was rounded."""
FIGURE_ONLY = "the paper shows this in a figure, without numbers"


@dataclass(frozen=True, eq=False)
class Section:
    """One question of the study with its numbers, and how a report shows them."""

    name: str
    """Of its row of ``summary.csv``."""
    about: str
    """The question that it answers, and the figures of the paper that it has."""
    basis: str
    """Where its numbers come from: computed, public, synthetic."""
    findings: Findings
    """Its tables, plots and claims."""
    tables: Mapping[str, pd.DataFrame]
    """Its numbers, by the name of their file without the ending."""
    seeds: Sequence[int] = ()
    """The seeds that it draws from; none where nothing is random."""
    definitions: Sequence[tuple[str, str]] = ()
    """Words of its tables, explained."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The settings that it was computed with, for ``run.json``."""


@dataclass(frozen=True)
class PlannedSection:
    """A section before its points are carried out."""

    section: Callable[[Found], Section]
    """Return the section, from the results of its points."""
    points: Sequence[Call] = ()
    """The calls that are carried out for it."""


def scale_report(planned: Sequence[PlannedSection], found: Found) -> ComputedReport:
    """Return the sections of a study in their order, a row of the summary for each of their seeds."""
    each = iter(found)
    sections = [plan.section([next(each) for _ in plan.points]) for plan in planned]
    about = "; ".join(f"{section.about} ({section.basis})" for section in sections)
    claims = [claim for section in sections for claim in section.findings.claims]
    sources = list(dict.fromkeys(claim.source for claim in claims))
    return ComputedReport(
        f"{about[0].upper()}{about[1:]}. Nothing was sent.",
        Findings(
            [sheet for section in sections for sheet in section.findings.sheets],
            [plot for section in sections for plot in section.findings.plots],
            sorted(claims, key=lambda claim: sources.index(claim.source)),
        ),
        [row for section in sections for row in _rows(section)],
        "summary.csv lists the sections and the files that hold their numbers, beside this one.",
        {name: table for section in sections for name, table in section.tables.items()},
        list(dict.fromkeys(pair for section in sections for pair in section.definitions)),
        {section.name: section.settings for section in sections},
    )


def _rows(section: Section) -> list[dict[str, object]]:
    about = {"section": section.name, "basis": section.basis, "files": " ".join(section.tables)}
    seeds: Sequence[object] = section.seeds or [pd.NA]
    return [about | {"seed": seed, "verdict": "model"} for seed in seeds]


def printed(low: float, high: float | None = None) -> Range:
    """Return the range of what a paper prints as a number of one decimal, or as a range of such.

    What is held against it are the paper's own prices and times: there is no noise to allow for.

    Examples
    --------
    >>> printed(2.25), printed(1.5, 2.5)
    ((2.2, 2.3), (1.45, 2.55))
    """
    high = low if high is None else high
    return (round(low - NO_DECIMALS_BEYOND, 9), round(high + NO_DECIMALS_BEYOND, 9))


def farthest(ratios: Iterable[float], expected: Range) -> float:
    """Return the ratio that is farthest from the middle of a range; NaN if there is none."""
    middle = sum(expected) / 2
    return float(max(ratios, key=lambda ratio: abs(ratio - middle), default=math.nan))
