"""What emulated training steps over circuits say: iteration times, changes of circuits, what limits them."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from controller.schedulers.mfabric import circuit_counts, circuit_order, transfer_bound_s, transfer_s
from controller.schedulers.mfabric_exact import MOST_SERVERS, best_circuits
from testbed.report.claims import Claim, Range, worst_claim
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import BOUND, COLOURS, canvas, horizontal_grid, styled
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome
from testbed.run.runner import Run
from topologies.mfabric import Region, regions

MS = 1e3
AGREES: Range = (0.90, 1.15)
"""An iteration as emulated over the same as predicted, where the transport is credit."""


def training_findings(outcomes: Sequence[Outcome], baseline: str) -> Findings:
    """Return tables, plots and claims of outcomes of one or several steps.

    Parameters
    ----------
    outcomes
        Of the same steps over several fabrics.
    baseline
        The label of the fabric that iteration times are relative to.
    """
    iterations = iteration_table(outcomes, baseline)
    sheets = [_iterations_sheet(iterations, outcomes, baseline)]
    followed = [outcome for outcome in outcomes if outcome.experiment.regional]
    if followed:
        sheets.append(_changes_sheet(followed))
    if demands := [table for outcome in _each_step(followed) if len(table := _circuits_table(outcome))]:
        sheets.append(_circuits_sheet(pd.concat(demands)))
    plot = Plot("iterations", partial(_drawn_iterations, iterations, baseline), ITERATIONS)
    return Findings(sheets, [plot], [*_agreement(outcomes), *_changes(followed)])


def iteration_table(outcomes: Sequence[Outcome], baseline: str) -> pd.DataFrame:
    """Return a row per outcome.

    Returns
    -------
    DataFrame
        step, fabric (its label), transport; emulated_s (NaN where nothing was) and predicted_s, of an
        iteration; all_to_all_s, held_s: how long dispatches waited for light; over_baseline, of iterations
        of the same step and transport, each the emulated where there is one.
    """
    rows = []
    for outcome in outcomes:
        experiment, run = outcome.experiment, outcome.run
        rows.append(
            {
                "step": experiment.job.name,
                "fabric": experiment.label,
                "transport": experiment.transport_name,
                "emulated_s": outcome.emulated.iteration_s if outcome.emulated else math.nan,
                "predicted_s": outcome.predicted.iteration_s,
                "all_to_all_s": _all_to_all_s(run),
                "held_s": held_s(run),
                "verdict": outcome.verdict.word,
            }
        )
    table = pd.DataFrame(rows)
    took_s = table["emulated_s"].fillna(table["predicted_s"])
    keys = list(zip(table["step"], table["transport"], strict=True))
    of_baseline = {
        key: time_s
        for key, fabric, time_s in zip(keys, table["fabric"], took_s, strict=True)
        if fabric == baseline
    }
    table["over_baseline"] = took_s / [of_baseline.get(key, math.nan) for key in keys]
    return table


def held_s(run: Run) -> float:
    """Return how long all-to-alls waited for their circuits in all [s]."""
    times_s = {
        what: run.events.loc[run.events["what"] == what].set_index("which")["at_s"]
        for what in ("held", "released")
    }
    return float((times_s["released"] - times_s["held"]).sum())


def shown(run: Run) -> dict[str, list[frozenset[str]]]:
    """Return the circuits that each OCS showed, one set after the other."""
    found: dict[str, list[frozenset[str]]] = {}
    for which in run.events.loc[run.events["what"] == "lit", "which"]:
        ocs, *circuits = which.split(" ")
        found.setdefault(ocs, []).append(frozenset(circuits))
    return found


def changed_between(experiment: Experiment, run: Run) -> int:
    """Return how often a region went dark between an all-to-all and its transpose, next after it.

    Those two need the same circuits, so this is 0 unless another micro-batch comes between them.
    """
    place = {turn.node: ocs for ocs, turns in experiment.regions.turns.items() for turn in turns}
    tasks = run.tasks[run.tasks["node"].isin(place)].sort_values("start_s")
    dark = run.events[run.events["what"] == "drained"]
    count = 0
    for ocs, own in tasks.groupby(tasks["node"].map(place)):
        at_s = dark.loc[dark["which"] == ocs, "at_s"]
        rows = list(zip(own["node"], own["start_s"], own["end_s"], strict=True))
        for (one, _, ended_s), (other, began_s, _) in pairwise(rows):
            if _of_layer(one) == _of_layer(other):
                count += int(((at_s >= ended_s) & (at_s <= began_s)).sum())
    return count


def _of_layer(node: str) -> str:
    """Return the pass, micro-batch, replica, stage and layer of a node, by its name."""
    return node.rpartition(" ")[0]


def _all_to_all_s(run: Run) -> float:
    """Return how long all-to-alls take in all, with what they are held [s]."""
    tasks = run.tasks[run.tasks["node"].str.endswith((" dispatch", " combine"))]
    return float((tasks["end_s"] - tasks["start_s"]).sum())


def _each_step(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the first outcome of each step: transports have the same demands."""
    return list({outcome.experiment.job.name: outcome for outcome in reversed(outcomes)}.values())[::-1]


def _circuits_table(outcome: Outcome) -> pd.DataFrame:
    """Return Algorithm 1 beside the best circuits, a row per region and demand; none of large regions."""
    experiment, rows = outcome.experiment, []
    by_ocs = {region.ocs: region for region in regions(experiment.fabric)}
    for ocs, turns in experiment.regions.turns.items():
        region = by_ocs[ocs]
        if len(region.servers) > MOST_SERVERS:
            continue
        seen: list[np.ndarray] = []
        for turn in turns:
            if any(np.array_equal(turn.demand, other) for known in seen for other in (known, known.T)):
                continue
            seen.append(turn.demand)
            rows.append(
                {"step": experiment.job.name, "node": turn.node} | _row(experiment, region, turn.demand)
            )
    return pd.DataFrame(rows)


def _row(experiment: Experiment, region: Region, demand: np.ndarray) -> dict[str, object]:
    """Return what a demand takes over the circuits of Algorithm 1, the best, and packet NICs alone [s]."""
    server = experiment.fabric.servers[region.servers[0]]
    alpha, rate_bps = len(region.nics[0]), max(map(experiment.fabric.nic_rate_bps, experiment.fabric.nics))
    packets = server.nics - alpha
    greedy = circuit_counts(circuit_order(demand, alpha, packets), len(demand))
    return {
        "circuits": "-".join(str(count) for count in greedy[np.triu_indices(len(demand), 1)]),
        "greedy_s": transfer_s(demand, greedy, packets, rate_bps),
        "best_s": 8 * best_circuits(demand, alpha, packets).lane_bytes / rate_bps,
        "packets_s": transfer_bound_s(demand, server.nics, rate_bps),
    }


def _iterations_sheet(table: pd.DataFrame, outcomes: Sequence[Outcome], baseline: str) -> Sheet:
    blocks = []
    for step, own in table.groupby("step", sort=False):
        lines = [
            Line(
                [
                    str(row["fabric"]),
                    str(row["transport"]),
                    str(row["verdict"]),
                    "-" if math.isnan(row["emulated_s"]) else f"{MS * row['emulated_s']:.0f}",
                    f"{MS * row['predicted_s']:.0f}",
                    "-" if math.isnan(row["emulated_s"]) else f"{row['emulated_s'] / row['predicted_s']:.3f}",
                    f"{MS * row['all_to_all_s']:.0f}",
                    f"{MS * row['held_s']:.0f}",
                    f"{row['over_baseline']:.3f}",
                ],
                str(row["verdict"]),
            )
            for _, row in own.iterrows()
        ]
        note = next(o.experiment.job.note for o in outcomes if o.experiment.job.name == step)
        blocks.append(Block(lines, str(step), note))
    return Sheet(
        ("fabric", "by", "verdict"),
        ("emulated", "model", "/ model", "all-to-alls", "held", "relative"),
        blocks,
        "Milliseconds of one iteration at real scale, compute included. Layers and micro-batches are fewer "
        "than the model's, as its name and note say; all fabrics of a step share one dilation. all-to-alls: "
        "their sum, with held, what they waited for light; concurrent ones of replicas count each. Relative: "
        f"to {baseline}, by the same transport.",
    )


def _changes_sheet(outcomes: Sequence[Outcome]) -> Sheet:
    steps = dict.fromkeys(outcome.experiment.job.name for outcome in outcomes)
    blocks = [
        Block([line for o in outcomes if o.experiment.job.name == step for line in _change_lines(o)], step)
        for step in steps
    ]
    return Sheet(
        ("fabric", "transport", "OCS"),
        ("planned", "logged", "equal", "circuits", "A2A1 to A2A2"),
        blocks,
        "Reconfigurations of an iteration, after the first light, and how many one-way circuits they took "
        "away or added. Logged: what the OCS reported, equal if it showed the same circuits; without an "
        "emulation the prediction's own. A2A1 to A2A2: those between an all-to-all and its transpose, where "
        "no other micro-batch comes between.",
    )


def _change_lines(outcome: Outcome) -> list[Line]:
    """Return a line per OCS: what it was to show, and what it showed."""
    experiment, seen, lines = outcome.experiment, shown(outcome.run), []
    between = changed_between(experiment, outcome.run)
    for ocs, planned in shown(outcome.predicted).items():
        own = seen.get(ocs, [])
        changed = sum(len(after ^ before) for before, after in pairwise(own))
        cells = [experiment.label, experiment.transport_name, ocs, f"{len(planned) - 1}", f"{len(own) - 1}"]
        lines.append(Line([*cells, "yes" if own == planned else "no", f"{changed}", f"{between}"]))
    return lines


def _circuits_sheet(table: pd.DataFrame) -> Sheet:
    blocks = []
    for step, own in table.groupby("step", sort=False):
        lines = [
            Line(
                [
                    str(row["node"]),
                    str(row["circuits"]),
                    *(f"{MS * row[name]:.1f}" for name in ("greedy_s", "best_s", "packets_s")),
                    f"{row['greedy_s'] / row['best_s']:.2f}",
                    f"{row['best_s'] / row['packets_s']:.2f}",
                ]
            )
            for _, row in own.iterrows()
        ]
        blocks.append(Block(lines, str(step)))
    return Sheet(
        ("all-to-all", "circuits"),
        ("Algorithm 1", "best", "packets", "/ best", "best / packets"),
        blocks,
        "What limits a transfer, in milliseconds: over Algorithm 1's circuits (of the pairs 01, 02, ... in "
        "order), over the best ones, by an integer program, and over as many NICs on packets, at best. What "
        "the best circuits take longer than packets is the price of circuits: a pair has its own circuits "
        "only, and its packet NICs are idle.",
    )


ITERATIONS = "Iteration times relative to the fabric that is named; a tick is the prediction."


@styled
def _drawn_iterations(table: pd.DataFrame, baseline: str) -> Figure:
    """Return bars of iteration times over the baseline's, a group per step and transport."""
    groups = list(table.groupby(["step", "transport"], sort=False))
    fabrics = list(dict.fromkeys(table["fabric"]))
    figure = canvas(max(6.0, 1.6 * len(groups) + 2.0), 3.4, f"Iteration time over that of {baseline}")
    axes = figure.subplots()
    width = 0.8 / len(fabrics)
    for number, (fabric, colour) in enumerate(zip(fabrics, COLOURS.values(), strict=False)):
        for place, (_, own) in enumerate(groups):
            for _, row in own[own["fabric"] == fabric].iterrows():
                at = place + (number - (len(fabrics) - 1) / 2) * width
                axes.bar(
                    at, row["over_baseline"], 0.92 * width, color=colour, label=fabric if not place else ""
                )
                took_s = row["predicted_s"] if math.isnan(row["emulated_s"]) else row["emulated_s"]
                model = row["over_baseline"] * row["predicted_s"] / took_s
                axes.plot([at - width / 2, at + width / 2], [model, model], color=BOUND, linewidth=1.2)
    names = [f"{str(step).replace(', ', chr(10), 1)}\n{transport}" for (step, transport), _ in groups]
    axes.set_xticks(range(len(groups)), names)
    axes.set(ylabel="times as long")
    horizontal_grid(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _agreement(outcomes: Sequence[Outcome]) -> list[Claim]:
    """Return how far iterations as emulated are from predictions, under each transport."""
    claims = []
    transports = dict.fromkeys(outcome.experiment.transport_name for outcome in outcomes)
    for transport in transports:
        ratios = [
            outcome.emulated.iteration_s / outcome.predicted.iteration_s
            for outcome in outcomes
            if outcome.emulated and outcome.verdict.word != "void"
            if outcome.experiment.transport_name == transport
        ]
        expected = AGREES if transport == "credit" else (0.0, math.inf)
        claims.append(
            worst_claim("an iteration takes as long as predicted", "lightrail's model", expected, ratios,
                    lambda values: max(values, key=lambda value: abs(value - 1)), transport=transport)
        )  # fmt: skip
    return claims


def _changes(outcomes: Sequence[Outcome]) -> list[Claim]:
    """Return whether circuits changed as planned, and not between an all-to-all and its transpose."""
    emulated = [outcome for outcome in outcomes if outcome.emulated]
    other = [float(shown(outcome.run) != shown(outcome.predicted)) for outcome in emulated]
    # Those that do not block change to what is known exactly once the dispatch is under way.
    between = [
        float(changed_between(outcome.experiment, outcome.run))
        for outcome in emulated
        if outcome.experiment.regional and outcome.experiment.regional.first == "block"
    ]
    return [
        worst_claim(
            "circuits change as planned", "mFabric, 5.2", (0, 0), other, sum, "{:.0f} runs otherwise"
        ),
        worst_claim(
            "nothing changes from A2A1 to A2A2", "mFabric, B.2", (0, 0), between, max, "{:.0f} changes"
        ),
    ]
