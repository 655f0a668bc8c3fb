"""What a section of mFabric's study is, and the results directory that any number of them share.

A section is one question with its figures: tables for the report, claims, plots, and its numbers as files.
`scenarios/mfabric_scale.py` lists the sections; one more is one more function there, and no other changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from testbed.report.claims import TIMES, Claim, Range, ruling
from testbed.report.page import Findings, Page
from testbed.report.results import RESULTS, RunDirectory
from testbed.report.run_json import Run
from topologies.errors import ScenarioError

PREDICTED = "predicted, nothing was emulated"
NO_DECIMALS_BEYOND = 0.05
"""How far a number with one decimal may be from what was rounded."""
FIGURE_ONLY = "the paper shows this in a figure, without numbers"


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the study: what was computed, and how a report shows it."""

    name: str
    """Of its row of ``summary.csv``."""
    about: str
    """What it answers, and which figures of the paper it has."""
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
    """What it was computed with, for ``run.json``."""


class ScaleResults(RunDirectory):
    """The directory of a study: a row of ``summary.csv`` per section and seed, a file per table."""

    def __init__(self, run: Run, *, out: Path | None = None, root: Path = RESULTS) -> None:
        super().__init__(run, out=out, root=root)
        self.sections: list[Section] = []
        """What was added."""

    def add(self, section: Section) -> None:
        """Write a section."""
        self.sections.append(section)
        about = {"section": section.name, "basis": section.basis, "files": " ".join(section.tables)}
        seeds: Sequence[object] = section.seeds or [pd.NA]
        self.describe(settings={**self.run.settings, section.name: section.settings})
        self.write([about | {"seed": seed, "verdict": "model"} for seed in seeds], tables=section.tables)

    def page(self) -> Page:
        """Return the report of all sections, in the order in which they were added."""
        sheets = [sheet for section in self.sections for sheet in section.findings.sheets]
        if not sheets:
            raise ScenarioError("a report without a table", "add a section")
        about = "; ".join(f"{section.about} ({section.basis})" for section in self.sections)
        return Page(
            run=self.run,
            sentence=f"{about[0].upper()}{about[1:]}. Nothing was sent.",
            table=self.table,
            results=sheets[0],
            claims=self.claims,
            plots=[plot for section in self.sections for plot in section.findings.plots],
            definitions=list(dict.fromkeys(pair for each in self.sections for pair in each.definitions)),
            files="summary.csv lists the sections and the files that hold their numbers, beside this one.",
            more=sheets[1:],
        )

    @property
    def claims(self) -> list[Claim]:
        """The claims of all sections, those of one source together."""
        claims = [claim for section in self.sections for claim in section.findings.claims]
        sources = list(dict.fromkeys(claim.source for claim in claims))
        return sorted(claims, key=lambda claim: sources.index(claim.source))


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


def judged(
    text: str, source: str, expected: Range, measured: float, reason: str = "", pattern: str = TIMES
) -> Claim:
    """Return a claim and its ruling; NaN is not comparable."""
    return Claim(text, source, expected, measured, ruling(measured, expected), reason, pattern)


def predicted(
    text: str, source: str, expected: Range, measured: float, reason: str = "", pattern: str = TIMES
) -> Claim:
    """Return a claim beside what the fluid model alone gives: it is ruled by nothing, whatever comes out."""
    found = {"holds": "in the range", "does not hold": "not in the range"}.get(ruling(measured, expected), "")
    because = "; ".join(filter(None, (PREDICTED * bool(found), found, reason)))
    return Claim(text, source, expected, measured, "not comparable", because, pattern)
