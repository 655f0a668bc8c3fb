"""What RailS claims of skewed load, as sentences that a summary is held against.

References
----------
RailS, sections VI-D and VI-E, figures 10 and 11.
"""

from dataclasses import replace

import pandas as pd

from testbed.report.claims import MORE, SHARE, Range, Sentence, around, mean, ratio, ratio_sentence

SENT, RECEIVED = "sender skew", "receiver skew"
SOURCE = {SENT: "RailS, VI-D", RECEIVED: "RailS, VI-E"}
LOAD_MSE = {SENT: "mse_sent", RECEIVED: "mse_received"}
"""Where the paper speaks of a workload, and the column that says how uneven its hot side is."""
RIVALS = ("ecmp", "plb", "minrtt", "reps")
BY_CONSTRUCTION = "{}, by construction (SKEW_ZIPF)"
"""The source of what holds under any transport: `SKEW_ZIPF` gives a load MSE of 0.15 wherever a scheme leaves
a GPU's bytes on its one NIC."""
EVEN: Range = (0.0, 0.01)
"""A normalised load MSE that the paper calls balanced."""
HALF: Range = (0.0, 0.5)


def skew_sentences(table: pd.DataFrame) -> list[Sentence]:
    """Return what RailS claims of the skewed workloads that a summary holds."""
    workloads = set(table["workload"])
    return [
        *(sender_sentences(table) if SENT in workloads else []),
        *(receiver_sentences(table) if RECEIVED in workloads else []),
    ]


def sender_sentences(table: pd.DataFrame) -> list[Sentence]:
    """Return what RailS claims of sender skew (section VI-D)."""
    everyone = [*rivals_of(table, SENT), "rails"]
    return [
        _busbw(SENT, "RailS has 2.7x the busbw of PLB", "rails", "plb", 2.7),
        _busbw(SENT, "REPS has 2.75x the busbw of PLB", "reps", "plb", 2.75),
        _busbw(SENT, "RailS has 126 % more busbw than ECMP", "rails", "ecmp", 2.26),
        _busbw(SENT, "RailS has 58 % more busbw than MinRTT", "rails", "minrtt", 1.58),
        _mse(SENT, "RailS' sending load MSE is under 0.01", "rails", EVEN),
        _mse(SENT, "REPS' sending load MSE is under 0.01", "reps", EVEN),
        _mse(SENT, "MinRTT's sending load MSE is about 0.03", "minrtt", around(0.03)),
        _constructed(SENT, "PLB's sending load MSE is about 0.15", "plb"),
        _constructed(SENT, "ECMP's sending load MSE is about 0.15", "ecmp"),
        Sentence(
            "Every scheme balances what is received",
            SOURCE[SENT],
            EVEN,
            [(SENT, name) for name in everyone],
            lambda table: max(mean(table, SENT, name, "mse_received") for name in everyone),
            pattern=SHARE,
        ),
        _time(SENT, "RailS cuts ECMP's CCT by 55.9 to 62.9 %", "ecmp", (0.371, 0.441)),
        _time(SENT, "RailS cuts PLB's CCT by 55.9 to 62.9 %", "plb", (0.371, 0.441)),
        _time(SENT, "RailS cuts MinRTT's CCT by 34.6 %", "minrtt", around(0.654)),
    ]


def receiver_sentences(table: pd.DataFrame) -> list[Sentence]:
    """Return what RailS claims of receiver skew (section VI-E)."""
    rivals = rivals_of(table, RECEIVED)
    everyone = [(RECEIVED, name) for name in (*rivals, "rails")]
    return [
        _busbw(RECEIVED, "RailS has 2x the busbw of ECMP", "rails", "ecmp", 2.0),
        _busbw(RECEIVED, "RailS has 2x the busbw of MinRTT", "rails", "minrtt", 2.0),
        _busbw(RECEIVED, "RailS has 3.08x the busbw of PLB", "rails", "plb", 3.08),
        _busbw(RECEIVED, "REPS has 1.44x the busbw of PLB", "reps", "plb", 1.44),
        _mse(RECEIVED, "RailS' receiving load MSE is under 0.01", "rails", EVEN),
        *(_constructed(RECEIVED, f"{name}: receiving load MSE about 0.15", name) for name in rivals),
        Sentence(
            "RailS cuts others' CCT by more than 50 %",
            SOURCE[RECEIVED],
            HALF,
            everyone,
            lambda table: max(ratio(table, RECEIVED, "rails", name, "cct_s") for name in rivals),
            gain_over=(RECEIVED, "ecmp"),
        ),
        Sentence(
            "PLB and MinRTT end later than ECMP",
            SOURCE[RECEIVED],
            MORE,
            [(RECEIVED, name) for name in ("plb", "minrtt", "ecmp")],
            lambda table: min(ratio(table, RECEIVED, name, "ecmp", "cct_s") for name in ("plb", "minrtt")),
        ),
    ]


def rivals_of(table: pd.DataFrame, workload: str) -> list[str]:
    """Return the paper's baselines that a workload was run under, ECMP in any case."""
    run = {*table.loc[table["workload"] == workload, "name"], "ecmp"}
    return [name for name in RIVALS if name in run]


def _busbw(workload: str, text: str, scheme: str, other: str, value: float) -> Sentence:
    return ratio_sentence(
        text, SOURCE[workload], around(value), workload, (scheme, other), "busbw_gbytes_s", gain=True
    )


def _time(workload: str, text: str, other: str, expected: Range) -> Sentence:
    return ratio_sentence(text, SOURCE[workload], expected, workload, ("rails", other), "cct_s", gain=True)


def _constructed(workload: str, text: str, scheme: str) -> Sentence:
    """Return a sentence about a load MSE for which the workload was made."""
    sentence = _mse(workload, text, scheme, around(0.15))
    return replace(sentence, source=BY_CONSTRUCTION.format(sentence.source), is_made=True)


def _mse(workload: str, text: str, scheme: str, expected: Range) -> Sentence:
    return Sentence(
        text,
        SOURCE[workload],
        expected,
        [(workload, scheme)],
        lambda table: mean(table, workload, scheme, LOAD_MSE[workload]),
        pattern=SHARE,
    )
