"""The report of emulated training steps over circuits: iteration times, their parts, and costs."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scenarios._mfabric.region_plan import RegionalSetup
from scenarios._mfabric.training.circuits import changes_claims, changes_sheet, circuits_sheet
from testbed.core.run import Run
from testbed.report.claims import Claim, Range, farthest_from_1, worst_claim
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import INK, Shades, canvas, colours, horizontal_grid, styled
from testbed.report.table import number
from testbed.trust.outcome import LEFT_OUT, Outcome
from topologies.errors import FabricError
from topologies.fabric import Fabric
from topologies.fabric_bill import CircuitPort, fabric_bill
from topologies.patch_panel import PATCH_PANEL
from traffic.transports.registry import congestion_control

MS = 1e3
AGREES: Range = (0.90, 1.15)
"""An iteration as emulated over the same as predicted, where the transport is credit."""
PARTS = ("all_to_all_s", "held_s", "dp_s", "compute_s")
"""The parts of an iteration."""


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
    if iterations["emulated_s"].notna().any():
        sheets.append(_agreement_sheet(iterations))
    sheets.append(_price_sheet(iterations, outcomes, baseline))
    followed = [outcome for outcome in outcomes if isinstance(outcome.experiment.circuits, RegionalSetup)]
    if followed:
        sheets.append(changes_sheet(followed))
    if found := circuits_sheet(followed):
        sheets.append(found)
    by_name = colours(each.experiment.name for each in outcomes)
    shades = {each.experiment.label: by_name[each.experiment.name] for each in reversed(outcomes)}
    plots = [
        Plot("iterations", partial(_drawn_iterations, iterations, shades, baseline), ITERATIONS),
        Plot("iteration_parts", partial(_drawn_parts, iterations), PARTS_CAPTION),
    ]
    return Findings(sheets, plots, [*_agreement(iterations), *changes_claims(followed)])


def iteration_table(outcomes: Sequence[Outcome], baseline: str) -> pd.DataFrame:
    """Return a row per outcome, those of a step together, and of these those of a fabric.

    Returns
    -------
    DataFrame
        step, fabric (its label), transport, verdict, circuits (whether it has some); emulated_s (NaN where
        nothing was) and predicted_s, of an iteration; what it consists of, on the replica that ends last:
        all_to_all_s without what they are held for light, held_s, dp_s (data parallelism, after the last
        backward) and compute_s (the rest); predicted_all_to_all_s and predicted_dp_s; over_baseline, of
        iterations of the same step and transport, each the emulated where there is one; resent and dropped,
        packets that TCP sent again and that full ports dropped, and packets, all of them.
    """
    rows = []
    for outcome in outcomes:
        experiment, run, measures = outcome.experiment, outcome.run, outcome.measures
        predicted = _parts(outcome.predicted)
        rows.append(
            {
                "step": experiment.job.name,
                "fabric": experiment.label,
                "transport": experiment.transport_name,
                "verdict": outcome.verdict.word,
                "circuits": bool(experiment.circuits),
                "forwards": experiment.fabric.servers_forward,
                "emulated_s": outcome.emulated.iteration_s if outcome.emulated else math.nan,
                "predicted_s": outcome.predicted.iteration_s,
                **_parts(run),
                "predicted_all_to_all_s": predicted["all_to_all_s"],
                "predicted_dp_s": predicted["dp_s"],
                "resent": measures.retransmits,
                "dropped": measures.queue_drops + measures.socket_drops,
                "packets": measures.packets,
            }
        )
    table = pd.DataFrame(rows)
    for name in ("transport", "fabric", "step"):  # as they were asked for, not as networks were booted
        table = table.sort_values(name, key=_as_first_seen, kind="stable", ignore_index=True)
    took_s = table["emulated_s"].fillna(table["predicted_s"])
    keys = list(zip(table["step"], table["transport"], strict=True))
    of_baseline = {
        key: time_s
        for key, fabric, time_s in zip(keys, table["fabric"], took_s, strict=True)
        if fabric == baseline
    }
    table["over_baseline"] = took_s / [of_baseline.get(key, math.nan) for key in keys]
    return table


def _as_first_seen(names: pd.Series) -> pd.Series:
    return pd.Series(pd.factorize(names)[0], index=names.index)


def _parts(run: Run) -> dict[str, float]:
    """Return the parts of an iteration (`PARTS`) [s].

    Replicas do the same beside each other: the one that ends last counts.
    """
    tasks = run.tasks[~run.tasks["node"].str.startswith("DP ")]
    replica = tasks["node"].str.split(" ").str[1].str.partition(".")[0]
    last = replica.iloc[int(tasks["end_s"].argmax())]
    own = tasks[(replica == last) & tasks["node"].str.endswith((" dispatch", " combine"))]
    held = held_times(run)
    held_s = float(held[held.index.isin(own["node"])].sum())
    all_s = float((own["end_s"] - own["start_s"]).sum())
    dp_s = run.iteration_s - float(tasks["end_s"].max())
    parts = all_s - held_s, held_s, dp_s, run.iteration_s - all_s - dp_s
    return dict(zip(PARTS, parts, strict=True))


def held_times(run: Run) -> pd.Series:
    """Return how long each all-to-all waited for its circuits, if it did, by its node [s]."""
    times_s = {
        what: run.events.loc[run.events["what"] == what].set_index("which")["at_s"]
        for what in ("held", "released")
    }
    return times_s["released"] - times_s["held"]


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
                    *(f"{MS * row[name]:.0f}" for name in PARTS),
                    number(row["over_baseline"], "{:.3f}"),
                ],
                str(row["verdict"]),
            )
            for _, row in own.iterrows()
        ]
        note = next(o.experiment.job.note for o in outcomes if o.experiment.job.name == step)
        blocks.append(Block(lines, str(step), note))
    return Sheet(
        ("fabric", "by", "verdict"),
        ("emulated", "model", "all-to-alls", "held", "DP", "compute", "relative"),
        blocks,
        "Milliseconds of one iteration at real scale. Layers and micro-batches are fewer than the model's, "
        "as its name and note say; all fabrics of a step share one dilation. The iteration consists of "
        "all-to-alls, what they are held for light, data parallelism after the last backward, and the rest, "
        "compute; where replicas run beside each other, of the one that ends last. Relative: to "
        f"{baseline}, by the same transport.",
    )


def _agreement_sheet(table: pd.DataFrame) -> Sheet:
    blocks = []
    for step, own in table[table["emulated_s"].notna()].groupby("step", sort=False):
        lines = [
            Line(
                [
                    str(row["fabric"]),
                    str(row["transport"]),
                    number(row["emulated_s"] / row["predicted_s"], "{:.3f}"),
                    number(row["all_to_all_s"] / row["predicted_all_to_all_s"], "{:.3f}"),
                    number(row["dp_s"] / row["predicted_dp_s"], "{:.3f}"),
                    number(row["packets"], "{:.0f}"),
                    number(row["resent"], "{:.0f}"),
                    number(row["dropped"], "{:.0f}"),
                ]
            )
            for _, row in own.iterrows()
        ]
        blocks.append(Block(lines, str(step)))
    return Sheet(
        ("fabric", "by"),
        ("iteration / model", "all-to-alls / model", "DP / model", "packets", "resent", "dropped"),
        blocks,
        "How far emulation and model are apart, and where: all-to-alls and data parallelism as emulated over "
        "the same as predicted, compute being the model's in both. Packets: payload in full packets; resent: "
        f"those that TCP sent again; dropped: by full ports and sockets. {_tcp_text(table)}",
    )


def _tcp_text(table: pd.DataFrame) -> str:
    """Return a text about the kernel's TCP beside the model, by the counters; empty without any."""
    # Over a panel queue pairs that servers forward share circuits.
    sound = table[table["emulated_s"].notna() & ~table["verdict"].isin(LEFT_OUT) & ~table["forwards"]]
    is_tcp = np.array([congestion_control(name) is not None for name in sound["transport"]], dtype=bool)
    if not sound.loc[is_tcp, "packets"].sum():
        return ""
    dropped, resent = (int(sound.loc[is_tcp, name].sum()) for name in ("dropped", "resent"))
    ratios = sound["all_to_all_s"] / sound["predicted_all_to_all_s"]
    said = []
    for where, mine in (("over circuits", sound["circuits"]), ("over packets alone", ~sound["circuits"])):
        spans = [
            f"{_span(ratios[of & mine])} {how}"
            for of, how in ((is_tcp, "under tcp"), (~is_tcp, "otherwise"))
            if (of & mine).any()
        ]
        said += [f"{where} {' and '.join(spans)}"] if spans else []
    return (
        f"Under tcp {dropped} packets were dropped and {resent} sent again. All-to-alls / model is "
        f"{', '.join(said)}. {TCP}"
    )


TCP = (
    "On a circuit a queue pair is alone; in the ports of packet switches several meet, which the model has "
    "share evenly. An all-to-all ends with its slowest message, so that uneven windows would make it longer; "
    "shares were not measured."
)


def _span(values: pd.Series) -> str:
    """Return the least and the greatest of some values."""
    return f"{values.min():.2f} .. {values.max():.2f}"


def _price_sheet(table: pd.DataFrame, outcomes: Sequence[Outcome], baseline: str) -> Sheet:
    """Return the ports that fabrics need, what they cost, and what iterations are worth."""
    fabrics = {(o.experiment.job.name, o.experiment.label): o.experiment.fabric for o in outcomes}
    blocks = []
    for step, own in table.groupby("step", sort=False):
        first = own[own["transport"] == own["transport"].iloc[0]]
        base = fabrics.get((str(step), baseline))
        lines = []
        for _, row in first.iterrows():
            fabric = fabrics[str(step), str(row["fabric"])]
            ports, usd = _nic_ports(fabric), _usd(fabric)
            base_usd = math.nan if base is None else _usd(base)
            over = float(row["over_baseline"])
            lines.append(
                Line(
                    [
                        str(row["fabric"]),
                        f"{ports['packet']}",
                        f"{ports['ocs']}",
                        number(usd, "{:,.0f}"),
                        number(usd / base_usd, "{:.2f}"),
                        number(over, "{:.3f}"),
                        number(base_usd / (usd * over), "{:.2f}"),
                    ]
                )
            )
        blocks.append(Block(lines, str(step)))
    return Sheet(
        ("fabric",),
        ("electrical ports", "optical ports", "cost [$]", "relative cost", "relative time", "per dollar"),
        blocks,
        "Ports of packet switches and of OCSes that NICs are on, and what NICs, transceivers, fibres and all "
        "used ports cost at mFabric's prices (its Table 4), where every link's rate has one. Per dollar: "
        f"iterations per dollar, over those of {baseline}, under {table['transport'].iloc[0]}.",
    )


def _nic_ports(fabric: Fabric) -> dict[str, int]:
    """Return how many NICs are on packet switches, and how many on OCSes."""
    kinds = {switch.name: switch.kind for switch in fabric.switches}
    on = [kinds[fabric.peer(fabric.nic_port(nic)).node] for nic in fabric.nics]
    return {kind: on.count(kind) for kind in ("packet", "ocs")}


def _usd(fabric: Fabric) -> float:
    """Return the cost of a fabric; NaN where a link has no price."""
    port: CircuitPort = "patch-panel port" if fabric.name == PATCH_PANEL else "OCS port"
    try:
        return fabric_bill(fabric, circuit_port=port).usd
    except FabricError:
        return math.nan


ITERATIONS = "Iteration times relative to the fabric that is named; a tick is the prediction."


@styled
def _drawn_iterations(table: pd.DataFrame, shades: Shades, baseline: str) -> Figure:
    """Return bars of iteration times over the baseline's, a group per step and transport."""
    groups = list(table.groupby(["step", "transport"], sort=False))
    fabrics = list(dict.fromkeys(table["fabric"]))
    figure = canvas(max(6.0, 1.6 * len(groups) + 2.0), 3.4, f"Iteration time over that of {baseline}")
    axes = figure.subplots()
    width = 0.8 / len(fabrics)
    for slot, fabric in enumerate(fabrics):
        for place, (_, own) in enumerate(groups):
            for _, row in own[own["fabric"] == fabric].iterrows():
                at = place + (slot - (len(fabrics) - 1) / 2) * width
                axes.bar(
                    at,
                    row["over_baseline"],
                    0.92 * width,
                    color=shades[fabric],
                    label="" if place else fabric,
                )
                took_s = row["predicted_s"] if math.isnan(row["emulated_s"]) else row["emulated_s"]
                model = row["over_baseline"] * row["predicted_s"] / took_s
                axes.plot([at - width / 2, at + width / 2], [model, model], color=INK, linewidth=1.2)
    names = [f"{str(step).replace(' (', chr(10) + '(', 1)}\n{transport}" for (step, transport), _ in groups]
    axes.set_xticks(range(len(groups)), names)
    axes.set(ylabel="times as long")
    horizontal_grid(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


PARTS_CAPTION = (
    "What an iteration consists of, as emulated where it was. Held: while all-to-alls wait for light; DP: "
    "data parallelism after the last backward."
)


@styled
def _drawn_parts(table: pd.DataFrame) -> Figure:
    """Return stacked bars of what iterations consist of, a panel per step."""
    steps = list(table.groupby("step", sort=False))
    tall = sum(0.9 + 0.22 * len(own) for _, own in steps)
    figure = canvas(8.0, tall, "What an iteration consists of")
    all_axes = figure.subplots(
        len(steps), 1, squeeze=False, gridspec_kw={"height_ratios": [len(own) for _, own in steps]}
    )
    for axes, (step, own) in zip(all_axes[:, 0], steps, strict=True):
        start_s = np.zeros(len(own))
        for part, (label, colour) in PART_COLOURS.items():
            axes.barh(range(len(own)), MS * own[part], 0.8, left=start_s, color=colour, label=label)
            start_s = start_s + MS * own[part].to_numpy()
        names = [f"{fabric}, {by}" for fabric, by in zip(own["fabric"], own["transport"], strict=True)]
        axes.set_yticks(range(len(own)), names)
        axes.invert_yaxis()
        axes.set_title(str(step))
    all_axes[-1, 0].set_xlabel("milliseconds at real scale")
    figure.legend(*all_axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(PARTS))
    return figure


PART_COLOURS = {
    "compute_s": ("compute", "#8c8c8c"),
    "all_to_all_s": ("all-to-alls", "#0072b2"),
    "held_s": ("held for light", "#111111"),
    "dp_s": ("DP", "#56b4e9"),
}


def _agreement(table: pd.DataFrame) -> list[Claim]:
    """Return how far iterations as emulated are from predictions, under each transport."""
    claims = []
    sound = table[table["emulated_s"].notna() & ~table["verdict"].isin(LEFT_OUT)]
    for transport in dict.fromkeys(table["transport"]):
        own = sound[sound["transport"] == transport]
        claim = worst_claim(
            "an iteration takes as long as predicted", "lightrail's model", AGREES,
            (own["emulated_s"] / own["predicted_s"]).tolist(), farthest_from_1, transport=transport,
        )  # fmt: skip
        if transport != "credit":
            claim = replace(claim, verdict="not comparable", reason="the model is of no other transport")
        claims.append(claim)
    return claims
