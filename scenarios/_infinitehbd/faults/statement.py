"""A sentence of InfiniteHBD's paper about faults, ruled over all that the paper leaves open.

What the paper leaves open was chosen: how nodes of 4 GPUs are drawn from the trace, how large the jobs are
that wait, what the largest job is. A statement is measured for every choice, and ruled where all agree; else
it is not comparable. The paper's numbers are of its own cluster and trace, and are not held against others.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from scenarios._infinitehbd.faults.cluster import MAIN_TP
from scenarios._infinitehbd.faults.study import FaultStudy
from scenarios._infinitehbd.percentages import PERCENT
from testbed.report.claims import Claim, Range, Ruling, ruling

Values = Mapping[str, Sequence[float]]
"""Measured values, by what the paper leaves open: one value, or one for each reading of the trace."""

EDGE = 0.002
"""How near to an edge of its range a value is that seeds decide: NVL-36's 12.09 % of 20 seeds are below
12.1 %, the 12.11 % of 60 above."""


@dataclass(frozen=True)
class Statement:
    """A sentence of the paper before it is held against a study."""

    text: str
    source: str
    expected: Range
    values: Callable[[FaultStudy], Values]
    """Returns the measured values; the first is the one that is shown."""
    pattern: str = PERCENT
    tp_gpus: tuple[int, ...] = (MAIN_TP,)
    """The TP sizes that it is about."""
    note: Callable[[FaultStudy], str] = lambda _study: ""
    """Returns the note beside the values."""
    fitted: str = ""
    """Why agreement with it would confirm nothing; empty where it would."""


def of_trace(study: FaultStudy, statement: Statement) -> Claim:
    """Return a claim about the trace; one about another trace than the paper's is not comparable."""
    claim = ruled(study, statement)
    if study.of_the_papers_trace or not study.cluster.is_the_papers or not claim.ran:
        return claim
    why = "the trace is a synthetic stand-in" if study.trace.synthetic else "another trace than the paper's"
    return replace(claim, verdict="not comparable", reason=why)


def ruled(study: FaultStudy, statement: Statement) -> Claim:
    """Return a claim that is ruled where all that the paper leaves open gives the same."""
    about = statement.text, statement.source, statement.expected
    if not study.cluster.is_the_papers:
        return Claim(*about, reason="another cluster than the paper's", pattern=statement.pattern)
    if missing := [size for size in statement.tp_gpus if size not in study.cluster.tp_gpus]:
        sizes = ", ".join(f"TP-{size}" for size in missing)
        return Claim(*about, reason=f"not run: {sizes}", pattern=statement.pattern, ran=False)
    return Claim(*about, *_judged(study, statement), statement.pattern)


def _judged(study: FaultStudy, statement: Statement) -> tuple[float, Ruling, str]:
    """Return the value that is shown of a statement, the ruling over all of them, and the reason."""
    values = statement.values(study)
    measured = [value for of_case in values.values() for value in of_case]
    rulings = {ruling(value, statement.expected) for value in measured}
    if any(_at_an_edge(value, statement.expected) for value in measured):
        rulings.add("not comparable")
    reason = "; ".join(filter(None, [_values_text(values, statement.pattern), statement.note(study)]))
    verdict: Ruling = rulings.pop() if len(rulings) == 1 else "not comparable"
    if verdict == "not comparable" and measured and not statement.fitted:
        reason = f"it depends on what the paper leaves open: {reason}"
    if statement.fitted:
        verdict, reason = "not comparable", "; ".join(filter(None, [statement.fitted, reason]))
    return measured[0] if measured else math.nan, verdict, reason


def _at_an_edge(value: float, expected: Range) -> bool:
    """Return whether another draw of seeds may put a value on the other side of a range's edge."""
    edges = [edge for edge in expected if math.isfinite(edge)] if expected[0] < expected[1] else []
    return any(abs(value - edge) < EDGE * abs(edge) for edge in edges)


def _values_text(values: Values, pattern: str) -> str:
    """Return the values of each case, the least and the largest where there are several."""
    said = []
    for case, measured in values.items():
        ends = dict.fromkeys(pattern.format(end) for end in (min(measured), max(measured)))
        said.append(f"{case} {' to '.join(ends)}")
    return ", ".join(said) if len(said) > 1 or len(next(iter(values.values()), ())) > 1 else ""
