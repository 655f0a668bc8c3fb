"""The findings of a run on TopoOpt's testbed: throughput, cost of relaying, claims, drawings (section 6)."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from scenarios._topoopt.fabrics import TOPOOPT
from scenarios._topoopt.relaying import (
    Relaying,
    circuit_hops,
    circuit_loads,
    circuits_between,
    relaying,
    sent_between,
)
from scenarios._topoopt.testbed.drawings import circuit_drawings, demand_maps, distributions
from scenarios._topoopt.testbed.points import DIRECT, RELAYED, SERVERS, SUMMED, Prototype
from testbed.report.claims import (
    LIGHTRAIL,
    MORE,
    Claim,
    Range,
    around,
    farthest_from_1,
    judged,
    ratio_sentence,
    worst_claim,
)
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.table import number
from testbed.trust.outcome import LEFT_OUT, Outcome
from traffic.metrics import busbw_gbytes_s, collective_times_s
from traffic.models.layered import LayeredModel

MS = 1e3
SIMILAR: Range = (0.95, 1.10)
"""An iteration over that of the switch of all bandwidth, which is taken for similar."""
AGREES: Range = (0.90, 1.15)
TAXED: Range = (0.95, 1.05)
"""The tax as counted over the tax as computed."""
FULL_RATE: Range = (0.95, 1.02)
"""busbw of a ring on circuits of its own over their rate."""
SOURCE = "TopoOpt, section 6"
SHOWN = 3
"""Jobs that are drawn at most of those that relay."""
RELAYS = 1.005
"""The tax of a job that is said to relay."""


def testbed_claims(prototype: Prototype, table: pd.DataFrame) -> list[Claim]:
    """Return the claims of Figures 19 and 21 that a summary is about."""
    claims = []
    for workload in dict.fromkeys(table["workload"]):
        model = str(workload).partition(",")[0]
        full, single = (TOPOOPT, prototype.full_name), (prototype.single_name, TOPOOPT)
        if model in SUMMED:
            like = f"{model}: TopoOpt similar to {prototype.full_name}"
            faster = f"{model}: faster on TopoOpt than on {prototype.single_name}"
            sentences = [(like, "Figure 19", SIMILAR, full), (faster, "Figure 19", MORE, single)]
        elif str(workload).startswith("dlrm, batch 512"):
            faster = f"DLRM at batch 512: TopoOpt 1.6 times as fast as {prototype.single_name}"
            sentences = [(faster, "Figure 21", around(1.6), single)]
        else:
            continue
        for text, figure, expected, schemes in sentences:
            about = text, f"{SOURCE}, {figure}", expected
            claims.append(judged(ratio_sentence(*about, str(workload), schemes, "iteration_s"), table))
    return claims


def testbed_findings(
    prototype: Prototype, models: Mapping[str, LayeredModel], outcomes: Sequence[Outcome]
) -> Findings:
    """Return tables, plots and claims of a run on the testbed.

    Parameters
    ----------
    prototype, models
        What was run, models by the name of their job.
    outcomes
        What came of it.
    """
    iterations = [outcome for outcome in outcomes if outcome.experiment.job.name in models]
    panels = [outcome for outcome in outcomes if outcome.experiment.circuits]
    relayed = {outcome.experiment.key: relaying(outcome) for outcome in panels}
    sheets = [_iterations_sheet(prototype, models, iterations)] if iterations else []
    if panels:
        sheets.append(_relaying_sheet(panels, relayed))
    claims = [*_ring_claims(prototype, panels), *_relaying_claims(panels, relayed), *_agreement(outcomes)]
    return Findings(sheets, _plots(panels), claims)


def _iterations_sheet(
    prototype: Prototype, models: Mapping[str, LayeredModel], outcomes: Sequence[Outcome]
) -> Sheet:
    blocks = []
    for name, model in models.items():
        own = [outcome for outcome in outcomes if outcome.experiment.job.name == name]
        full_s = [each.run.iteration_s for each in own if each.experiment.label == prototype.full_name]
        lines = [
            Line(
                [
                    outcome.experiment.label,
                    outcome.experiment.transport_name,
                    outcome.verdict.word,
                    *_iteration_cells(outcome, model, full_s[0] if full_s else math.nan),
                ],
                outcome.verdict.word,
            )
            for outcome in own
        ]
        if lines:
            blocks.append(Block(lines, name))
    return Sheet(
        ("fabric", "by", "verdict"),
        ("emulated", "model", "/ model", "samples/s", f"/ {prototype.full_name}"),
        blocks,
        "Milliseconds of one iteration at real scale, compute included, and samples that are trained each "
        f"second. {prototype.full_name} has all of a server's bandwidth on one link. NCF is not among the "
        f"testbed's models in the paper: it is of its simulations, cut to 12 servers. {_sources(models)}",
    )


def _sources(models: Mapping[str, LayeredModel]) -> str:
    """Return where compute times come from, and of which models."""
    of: dict[str, list[str]] = {}
    for name, model in models.items():
        of.setdefault(model.source, []).append(name.partition(",")[0])
    said = (f"{', '.join(dict.fromkeys(names))}: {source}" for source, names in of.items())
    return f"Where compute comes from: {'; '.join(said)}."


def _iteration_cells(outcome: Outcome, model: LayeredModel, full_s: float) -> list[str]:
    if not outcome.is_sound:
        return ["-"] * 5
    took_s, predicted_s = outcome.run.iteration_s, outcome.predicted.iteration_s
    emulated_s = took_s if outcome.emulated else math.nan
    return [
        number(MS * emulated_s, "{:.1f}"),
        f"{MS * predicted_s:.1f}",
        number(emulated_s / predicted_s, "{:.3f}"),
        f"{model.samples / took_s:.0f}",
        number(took_s / full_s, "{:.3f}"),
    ]


def _relaying_sheet(outcomes: Sequence[Outcome], relayed: dict[str, Relaying]) -> Sheet:
    lines = []
    for outcome in outcomes:
        found = relayed[outcome.experiment.key]
        cells = [
            f"{found.computed_tax:.3f}",
            number(found.counted_tax, "{:.3f}"),
            number(found.relayed_packets, "{:.0f}"),
            number(found.cpu_s, "{:.2f}"),
            number(outcome.over_predicted if outcome.emulated else math.nan, "{:.3f}"),
        ]
        lines.append(Line([outcome.experiment.job.name, outcome.verdict.word, *cells], outcome.verdict.word))
    return Sheet(
        ("on TopoOpt", "verdict"),
        ("tax", "counted", "relayed packets", "CPU [s]", "/ model"),
        [Block(lines)],
        "What relaying cost. Tax: hops that a byte takes on average, by the shortest paths; counted: what "
        "all interfaces sent besides headers, over what servers had to send. Relayed packets: those of the "
        "emulation, by that share. CPU: of the switches' daemon and the engine; kernels forward in the "
        "daemon's time. / model: how long bytes were under way over the fluid model, in which relaying takes "
        "no time. " + _per_packet(outcomes, relayed),
    )


def _per_packet(outcomes: Sequence[Outcome], relayed: dict[str, Relaying]) -> str:
    """Return the cost of relaying a packet, by the two AllReduces; nothing without."""
    by_name = {outcome.experiment.job.name: relayed[outcome.experiment.key] for outcome in outcomes}
    if not {DIRECT, RELAYED} <= by_name.keys():
        return ""
    direct, relays = by_name[DIRECT], by_name[RELAYED]
    more_s = relays.cpu_s - direct.cpu_s * relays.sent_bytes / direct.sent_bytes
    if math.isnan(more_s) or not relays.relayed_packets:
        return ""
    cost_us = 1e6 * more_s / relays.relayed_packets
    return (
        f"A relayed packet of {RELAYED!r} took {cost_us:.0f} us more CPU than what servers sent themselves."
    )


def _ring_claims(prototype: Prototype, outcomes: Sequence[Outcome]) -> list[Claim]:
    claims = []
    for outcome in outcomes:
        experiment = outcome.experiment
        if experiment.job.name == DIRECT and outcome.emulated and outcome.verdict.word not in LEFT_OUT:
            interfaces = prototype.degree // 2 * 2  # a ring both ways takes two
            rate = interfaces * prototype.rate_bps / 8e9
            took_s = collective_times_s(outcome.run.tables)
            share = busbw_gbytes_s(experiment.job, took_s) / rate
            about = f"busbw of {DIRECT} over the rate of its circuits", f"{LIGHTRAIL}, link rate", FULL_RATE
            claims.append(worst_claim(*about, [share], min, transport=experiment.transport_name))
    return claims


def _relaying_claims(outcomes: Sequence[Outcome], relayed: dict[str, Relaying]) -> list[Claim]:
    """Return that what interfaces counted is the tax that was computed, by transport."""
    ratios = defaultdict[str, list[float]](list)
    for outcome in _counting(outcomes):
        found = relayed[outcome.experiment.key]
        ratios[outcome.experiment.transport_name].append(found.counted_tax / found.computed_tax)
    about = "bandwidth tax, counted over computed", LIGHTRAIL, TAXED
    return [worst_claim(*about, own, farthest_from_1, transport=name) for name, own in ratios.items()]


def _agreement(outcomes: Sequence[Outcome]) -> list[Claim]:
    """Return that iterations take as long as predicted, by transport."""
    ratios = defaultdict[str, list[float]](list)
    for outcome in _counting(outcomes):
        took_s, predicted_s = outcome.run.iteration_s, outcome.predicted.iteration_s
        ratios[outcome.experiment.transport_name].append(took_s / predicted_s)
    about = "iterations as emulated over the model", "lightrail's model", AGREES
    return [worst_claim(*about, own, farthest_from_1, transport=name) for name, own in ratios.items()]


def _counting(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.emulated and each.verdict.word not in LEFT_OUT]


def _plots(panels: Sequence[Outcome]) -> list[Plot]:
    """Return drawings of jobs on the panel, once for all transports."""
    shown = {outcome.experiment.job.name.removesuffix(" iteration"): outcome for outcome in reversed(panels)}
    names = list(reversed(shown))
    if not names:
        return []
    relays = [name for name in names if relaying(shown[name]).computed_tax > RELAYS] or names[:1]
    drawn = list(dict.fromkeys([names[0], *relays[-SHOWN:]]))
    demands = {name: sent_between(shown[name].experiment) for name in drawn}
    hops = {name: _path_lengths(shown[name]) for name in drawn}
    loads = {name: circuit_loads(shown[name]) for name in drawn}
    even = {name: load / load.mean() for name, load in loads.items()}
    return [
        Plot("demand", partial(demand_maps, demands), "Who sends to whom, all of a job together."),
        Plot("circuits", partial(circuit_drawings, _circuits(shown)), "Which servers circuits join."),
        Plot(
            "path_lengths",
            partial(distributions, hops, "Path lengths", "hops of a byte"),
            "How many hops bytes take, by the shortest paths.",
        ),
        Plot(
            "circuit_loads",
            partial(distributions, even, "Loads of circuits", "load of a circuit over the mean"),
            "How evenly circuits were loaded, each direction, relayed bytes included.",
        ),
    ]


def _circuits(shown: Mapping[str, Outcome]) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    """Return the different circuits of jobs, by the jobs that have them."""
    of: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for name, outcome in shown.items():
        of.setdefault(tuple(_undirected(circuits_between(outcome.experiment))), []).append(name)
    return {
        names[0] if len(names) == 1 else f"{len(names)} jobs": (SERVERS, list(pairs))
        for pairs, names in of.items()
    }


def _undirected(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in pairs if a < b]


def _path_lengths(outcome: Outcome) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return the hops of a job's bytes, a thousand values in proportion to bytes."""
    sent, hops = sent_between(outcome.experiment), circuit_hops(outcome.experiment)
    lengths = np.arange(1, hops.max() + 1)
    weights = np.array([sent[hops == length].sum() for length in lengths], dtype=float)
    counts = np.round(1000 * weights / weights.sum()).astype(int)
    return np.repeat(lengths, counts).astype(float)
