"""What RailS claims of uniform and sparse load, as sentences that a summary is held against.

What it claims of skew and of Mixtral is in the files beside this one.

References
----------
RailS, sections VI-B and VI-C, figures 7 to 9.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pandas as pd

from scenarios._rails.claims_mixtral import mixtral_sentences
from scenarios._rails.claims_skew import skew_sentences
from testbed.report.claims import (
    AT_LEAST_AS_GOOD,
    MORE,
    Claim,
    Range,
    Sentence,
    around,
    judged,
    ratio,
    ratio_sentence,
)
from traffic.workloads.synthetic import PER_GPU

SCHEMES = ("ecmp", "plb", "minrtt", "reps", "rails")
"""Those that the paper compares."""
SPARSITIES = (0.6, 0.4, 0.2, 0.0)
"""Those of the paper."""
GATINGS = {"top k per token": "", "top k per GPU": PER_GPU}
"""Whose gating a sparse workload has, the two readings of the paper, and what its name then ends in."""
TIMES = ("cct_mean_s", "cct_p80_s", "cct_p95_s", "cct_p99_s", "cct_s")
UNIFORM, SPARSE = "RailS, VI-B", "RailS, VI-C"
SPARSEST: tuple[Range, str, Range, str] = around(2.8), "2.8x", (0.0, 1 / 1.5), "more than 1.5x"
LESS_SPARSE: tuple[Range, str, Range, str] = (1.20, 1.78), "1.20x to 1.78x", (0.22, 0.83), "17 to 78 %"
"""Ranges of RailS' busbw and of its CCT over ECMP's, each with the paper's words."""


def rails_claims(table: pd.DataFrame) -> list[Claim]:
    """Return what a summary says of RailS' claims about the workloads that it holds."""
    workloads = set(table["workload"])
    uniform = uniform_sentences(table) if "uniform" in workloads else []
    sparse = sparse_sentences(table) if any(map(_is_sparse, workloads)) else []
    others = (*skew_sentences(table), *mixtral_sentences(table))
    return [judged(sentence, table) for sentence in (*uniform, *sparse, *others)]


def uniform_sentences(table: pd.DataFrame) -> list[Sentence]:
    """Return what RailS claims of uniform load (section VI-B)."""
    schemes = _schemes(table, "uniform", ("ecmp", "rails"))
    return [
        _busbw("RailS has 1.29x the busbw of ECMP", "rails", "ecmp", 1.29),
        _busbw("REPS has 1.34x the busbw of ECMP", "reps", "ecmp", 1.34),
        _busbw("MinRTT has 1.24x the busbw of ECMP", "minrtt", "ecmp", 1.24),
        _busbw("PLB has 20 % less busbw than RailS", "plb", "rails", 0.80),
        _later("MinRTT ends 4 % later than RailS", "minrtt", "rails", 1.04),
        _later("PLB ends 18 % later than RailS", "plb", "rails", 1.18),
        _later("PLB ends 11 % earlier than ECMP", "plb", "ecmp", 0.89),
        Sentence(
            "ECMP ends last",
            UNIFORM,
            MORE,
            [("uniform", name) for name in schemes],
            lambda table: min(
                ratio(table, "uniform", "ecmp", name, "cct_s") for name in schemes if name != "ecmp"
            ),
        ),
        Sentence(
            "MinRTT has the lowest mean CCT",
            UNIFORM,
            AT_LEAST_AS_GOOD,
            [("uniform", name) for name in (*schemes, "minrtt")],
            lambda table: min(
                ratio(table, "uniform", name, "minrtt", "cct_mean_s") for name in schemes if name != "minrtt"
            ),
        ),
    ]


def sparse_sentences(table: pd.DataFrame) -> list[Sentence]:
    """Return what RailS claims of sparse load (section VI-C), for each gating that was run."""
    run = sorted(filter(_is_sparse, set(table["workload"])), key=_sparsity)
    return [
        sentence
        for whose in GATINGS
        if (mine := [name for name in run if _gating(name) == whose])
        for sentence in _under_gating(whose, mine, table)
    ]


def _under_gating(whose: str, run: Sequence[str], table: pd.DataFrame) -> list[Sentence]:
    names = [f"sparse {sparsity:g}{GATINGS[whose]}" for sparsity in SPARSITIES]
    trend = run if len(run) > 1 else names
    return [
        *(sentence for name in names if name in run for sentence in _at_sparsity(name, table)),
        Sentence(
            "RailS' gain on ECMP grows with sparsity",
            f"{SPARSE}, {whose}",
            MORE,
            [(name, scheme) for name in trend for scheme in ("rails", "ecmp")],
            lambda table: min(_gain(table, more) / _gain(table, less) for less, more in pairwise(run)),
        ),
    ]


def _at_sparsity(workload: str, table: pd.DataFrame) -> list[Sentence]:
    """Return what is claimed at one sparsity: the best busbw and times, and by how much."""
    rivals = [name for name in _schemes(table, workload, ("ecmp",)) if name != "rails"]
    everyone = [(workload, name) for name in (*rivals, "rails")]
    source = f"{SPARSE}, {_gating(workload)}, sparse {_sparsity(workload):g}"
    gain, times_more, cut, less = SPARSEST if _sparsity(workload) == 0.6 else LESS_SPARSE
    return [
        Sentence(
            "RailS has the highest busbw",
            source,
            AT_LEAST_AS_GOOD,
            everyone,
            lambda table: min(ratio(table, workload, "rails", name, "busbw_gbytes_s") for name in rivals),
        ),
        ratio_sentence(
            f"RailS has {times_more} ECMP's busbw",
            source,
            gain,
            workload,
            ("rails", "ecmp"),
            "busbw_gbytes_s",
            gain=True,
        ),
        ratio_sentence(
            f"RailS cuts ECMP's CCT by {less}",
            source,
            cut,
            workload,
            ("rails", "ecmp"),
            "cct_s",
        ),
        Sentence(
            "RailS has the best mean and percentiles",
            source,
            AT_LEAST_AS_GOOD,
            everyone,
            lambda table: min(
                ratio(table, workload, name, "rails", column) for name in rivals for column in TIMES
            ),
        ),
    ]


def _busbw(text: str, scheme: str, other: str, value: float) -> Sentence:
    return ratio_sentence(
        text, UNIFORM, around(value), "uniform", (scheme, other), "busbw_gbytes_s", gain=value > 1
    )


def _later(text: str, scheme: str, other: str, value: float) -> Sentence:
    return ratio_sentence(text, UNIFORM, around(value), "uniform", (scheme, other), "cct_s")


def _gain(table: pd.DataFrame, workload: str) -> float:
    return ratio(table, workload, "rails", "ecmp", "busbw_gbytes_s")


def _schemes(table: pd.DataFrame, workload: str, at_least: Iterable[str]) -> list[str]:
    """Return the paper's schemes that a workload was run under, and those that a claim cannot do without."""
    run = {*table.loc[table["workload"] == workload, "name"], *at_least}
    return [name for name in SCHEMES if name in run]


def _is_sparse(workload: str) -> bool:
    return re.fullmatch(rf"sparse \d+(\.\d+)?({PER_GPU})?", workload) is not None


def _sparsity(workload: str) -> float:
    return float(workload.removeprefix("sparse ").removesuffix(PER_GPU))


def _gating(workload: str) -> str:
    return "top k per GPU" if workload.endswith(PER_GPU) else "top k per token"
