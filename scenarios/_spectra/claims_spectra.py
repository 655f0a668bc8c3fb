"""What Spectra's paper claims, beside the sweep of `scenarios._spectra.ocs_sweep`."""

import math
from dataclasses import replace

import pandas as pd

from scenarios._spectra.ocs_sweep import DELAYS, PLUS_SWITCHES, SWITCHES, ratios
from testbed.report.claims import LIGHTRAIL, Claim, Range, around, ruling

INF = math.inf
SOURCE = "Spectra, V"


def spectra_claims(table: pd.DataFrame) -> list[Claim]:
    """Return every claim with its measured value: ratios of makespans, the mean over all that was swept.

    Where it is that a scheme is within 8 % of the lower bound, the mean over seeds at the worst point; for
    Spectra on the benchmark, of every number of switches from 1 to 8.
    """
    plain = table[~((table["workload"] == "moe") & (table["noise"] > 0)) & (table["noise"] < 0.01)]
    paper = plain[(plain["flows"].isna() | plain["flows"].eq(16)) & plain["delay"].isin(DELAYS)]
    moe, gpt, every = (paper[paper["workload"] == name] for name in ("moe", "gpt", "benchmark"))
    bench = every[every["switches"].isin(SWITCHES)]
    many = [rows[rows["switches"] > 1] for rows in (gpt, moe, bench)]  # on one switch LESS is Decompose
    claims = [
        _claim("gpt: LESS' makespan 1.4x Spectra's", around(1.4), many[0], "less", "spectra"),
        _claim("moe: LESS' makespan 1.9x Spectra's", around(1.9), many[1], "less", "spectra"),
        _claim("benchmark: LESS' makespan 2.4x Spectra's", around(2.4), many[2], "less", "spectra"),
        _claim("gpt: Eclipse close to Spectra", (0.98, 1.10), gpt, "eclipse", "spectra"),
        _claim("moe: Eclipse clearly worse", (1.05, INF), moe, "eclipse", "spectra"),
        _claim("benchmark: Eclipse clearly worse", (1.05, INF), bench, "eclipse", "spectra"),
        _claim("moe: Spectra within a few percent of the lower bound", (1.0, 1.05), moe, "spectra", "bound"),
        _worst("benchmark: Spectra close to the lower bound", (1.0, 1.08), every, "spectra"),
        _claim("gpt: equalization matters", (1.05, INF), gpt, "not_equalized", "spectra"),
        _claim("moe: equalization does not matter", (0.98, 1.02), moe, "not_equalized", "spectra"),
    ]
    return [*claims, _largest_margin(gpt, moe, bench), *_ours(bench)]


def _claim(text: str, expected: Range, table: pd.DataFrame, scheme: str, other: str) -> Claim:
    found = ratios(table, scheme, other)
    if found.empty:
        return Claim(text, SOURCE, expected, reason="not run", ran=False)
    measured = float(found.mean())
    points = found.groupby(["switches", "delay"]).mean()
    where = f"means per point from {points.min():.3f} to {points.max():.3f}, {_seeds(table)}"
    return Claim(text, SOURCE, expected, measured, ruling(measured, expected), where)


def _worst(text: str, expected: Range, table: pd.DataFrame, scheme: str) -> Claim:
    """Return a claim about the bound at every point: a mean over easy ones would hide one far off."""
    found = ratios(table, scheme, "bound")
    if found.empty:
        return Claim(text, SOURCE, expected, reason="not run", ran=False)
    points = found.groupby(["switches", "delay"]).mean()
    measured = float(points.max())
    switches, delay = points.index[int(points.argmax())]
    where = f"worst at s = {switches}, delay {delay:g}; mean of all {found.mean():.3f}, {_seeds(table)}"
    return Claim(text, SOURCE, expected, measured, ruling(measured, expected), where)


def _largest_margin(gpt: pd.DataFrame, moe: pd.DataFrame, bench: pd.DataFrame) -> Claim:
    gpt_x, moe_x, bench_x = (float(ratios(t, "eclipse", "spectra").mean()) for t in (gpt, moe, bench))
    measured = moe_x / max(gpt_x, bench_x)
    text = "the margin over Eclipse is largest on moe"
    reason = f"Eclipse over Spectra: gpt {gpt_x:.3f}, moe {moe_x:.3f}, benchmark {bench_x:.3f}"
    return Claim(text, SOURCE, (1.0, INF), measured, ruling(measured, (1.0, INF)), reason)


def _ours(bench: pd.DataFrame) -> list[Claim]:
    """Return what this project adds, by the same table: wherever spectra+ ran, and once if nowhere."""
    ran = sorted(bench.loc[bench["scheme"] == "spectra_plus", "switches"].unique())
    claims = []
    for switches in ran or [PLUS_SWITCHES]:
        rows = bench[bench["switches"] == switches]
        text = f"spectra+ 1 % below Spectra or more at s = {switches}, benchmark"
        claims.append(_claim(text, (0.0, 0.99), rows, "spectra_plus", "spectra"))
        text = f"spectra+ close to the lower bound at s = {switches}, benchmark"
        claims.append(_worst(text, (1.0, 1.08), rows, "spectra_plus"))
    return [replace(claim, source=LIGHTRAIL) for claim in claims]


def _seeds(table: pd.DataFrame) -> str:
    seeds = table["seed"].nunique()
    return f"{seeds} seed{'s' if seeds > 1 else ''}"
