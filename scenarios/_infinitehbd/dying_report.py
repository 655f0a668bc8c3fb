"""What the report says of rings whose nodes die: bandwidth before and after, and how long each fault took."""

import math
from collections.abc import Sequence
from functools import partial

import pandas as pd

from scenarios._infinitehbd.dying_plots import drawn_rings
from scenarios._infinitehbd.dying_ring import DEVICE, Stage, again, foreseen_of, stages_of, steady
from testbed.report.claims import Claim, worst_claim
from testbed.report.page import Block, Findings, Line, Plot, Sheet, slug
from testbed.report.table import significant
from testbed.run.experiment import Experiment
from testbed.run.outcome import LEFT_OUT, Outcome
from testbed.run.run import Run
from topologies.fabric import Fabric
from traffic.metrics import GB, bus_bytes

LEAST_SHARE, ALIKE = 0.95, 0.03
"""Of a GPU's rate, an AllReduce's busbw at least; and how far before and after a fault may be apart."""
US = 1e6


def dying_findings(outcomes: Sequence[Outcome]) -> Findings:
    """Return tables, plots and claims of outcomes of `dying_ring`."""
    return Findings(
        [_rings_sheet(outcomes), _faults_sheet(outcomes)],
        _plots(outcomes),
        _claims(outcomes),
    )


def ring_table(experiment: Experiment, run: Run) -> pd.DataFrame:
    """Return a row per AllReduce that nothing disturbs.

    Returns
    -------
    DataFrame
        faults, how many came before; nodes and gpus, how many; took_s; busbw [1e9 bytes/s], and share, of a
        GPU's rate.
    """
    took_s = run.tasks.set_index("node")["end_s"] - run.tasks.set_index("node")["start_s"]
    patterns = {node.name: node.pattern for node in experiment.whole_job.collectives}
    rows = []
    for number_of, stage in enumerate(stages_of(experiment)):
        name = steady(number_of)
        busbw = bus_bytes(patterns[name]) / GB / took_s[name]
        rows.append(
            {
                "faults": number_of,
                "nodes": len(stage.group),
                "gpus": len(stage.gpus),
                "took_s": took_s[name],
                "busbw": busbw,
                "share": busbw * GB * 8 / _gpu_bps(experiment.fabric),
            }
        )
    return pd.DataFrame(rows)


def dying_table(experiment: Experiment, run: Run) -> pd.DataFrame:
    """Return a row per fault; times are real seconds since it came.

    Returns
    -------
    DataFrame
        fault; failed_s, since the start; known_s; switched_s, when the last OCS that it changed was lit;
        first_byte_s, when bytes went over all edges that are new; whole_s, when the AllReduce
        that was begun again ended; nodes, how many had OCSes that changed, and ocses, which.
    """
    events, rows = run.events, []
    stages = stages_of(experiment)
    for index, (fault, before, after) in enumerate(
        zip(experiment.faults, stages, stages[1:], strict=False), start=1
    ):
        mine = events[events["which"] == fault.name].groupby("what")["at_s"].first()
        failed_s = mine["failed"]
        lit = events[(events["what"] == "lit") & (events["at_s"] > mine["detected"])]
        is_changed = lit["which"].str.partition(" ")[0].isin(after.changed)
        lit_s = lit[is_changed].groupby(lit["which"].str.partition(" ")[0])["at_s"].first()
        whole_s = run.tasks.loc[run.tasks["node"] == again(index), "end_s"].max()
        rows.append(
            {
                "fault": fault.name,
                "failed_s": failed_s,
                "known_s": mine["detected"] - failed_s,
                "switched_s": lit_s.max() - failed_s,
                "first_byte_s": _first_byte_s(experiment, run, index, before, after) - failed_s,
                "whole_s": whole_s - failed_s,
                "nodes": len({ocs.partition("b")[0] for ocs in after.changed}),
                "ocses": " ".join(after.changed),
            }
        )
    return pd.DataFrame(rows)


def _first_byte_s(experiment: Experiment, run: Run, index: int, before: Stage, after: Stage) -> float:
    """Return when a first byte had gone between any two GPUs that follow each other anew, at the latest [s].

    Of a message it is sent no later than the message would last at a NIC's rate before its end.
    """
    messages = run.messages[(run.messages["node"] == again(index)) & run.messages["end_s"].notna()]
    sent_s = messages["end_s"] - messages["bytes"] * 8 / (_gpu_bps(experiment.fabric) / 2)
    first_s = dict.fromkeys(after.edges - before.edges, math.inf)
    for source, destination, at_s in zip(messages["source"], messages["destination"], sent_s, strict=True):
        edge = frozenset((source, destination))
        if edge in first_s:
            first_s[edge] = min(first_s[edge], at_s)
    return max(first_s.values(), default=math.nan)


def _gpu_bps(fabric: Fabric) -> float:
    """Return a GPU's rate: of its two half-bundles."""
    return sum(fabric.nic_rate_bps(nic) for nic in fabric.nics if nic.server == 0)


def _title(outcome: Outcome) -> str:
    experiment = outcome.experiment
    return f"{experiment.job.name}, {experiment.name}"


def _rings_sheet(outcomes: Sequence[Outcome]) -> Sheet:
    """Return the AllReduces that nothing disturbs, before and after each fault."""
    blocks = []
    for outcome in outcomes:
        found, predicted = (ring_table(outcome.experiment, run) for run in (outcome.run, outcome.predicted))
        lines = []
        for (_, row), stage, model in zip(
            found.iterrows(), stages_of(outcome.experiment), predicted["took_s"], strict=True
        ):
            cells = [
                f"{row['faults']:.0f}",
                f"{row['gpus']:.0f}",
                " ".join(map(str, stage.group)),
                significant(US * row["took_s"]),
                significant(row["busbw"]),
                f"{row['share']:.3f}",
                f"{row['share'] / found['share'][0]:.3f}",
                f"{row['took_s'] / model:.3f}",
            ]
            lines.append(Line(cells))
        blocks.append(Block(lines, _title(outcome)))
    return Sheet(
        ("faults before",),
        ("GPUs", "nodes", "took [us]", "busbw", "/ GPU rate", "/ before", "/ model"),
        blocks,
        f"Ring AllReduces that nothing disturbs, {_how(outcomes)}, at real scale. busbw in 1e9 bytes/s as "
        "nccl-tests defines it, over what the two half-bundles of a GPU carry, headers included; / before: "
        "over that of the ring without faults. The paper's 77.11 % (section 5.2) are of another transport, "
        "and not comparable.",
    )


def _faults_sheet(outcomes: Sequence[Outcome]) -> Sheet:
    """Return how long each fault took, emulated above predicted."""
    blocks = []
    for outcome in outcomes:
        lines = []
        for name, run in outcome.runs.items():
            for _, row in dying_table(outcome.experiment, run).iterrows():
                shown = [US * row[f"{what}_s"] for what in STAGES]
                shown.append(US * (row["switched_s"] - row["known_s"]))
                cells = [
                    f"{row['fault']}, {name}",
                    *(f"{time_us:.0f}" for time_us in shown),
                    str(row["ocses"]) or "-",
                ]
                lines.append(Line(cells))
        blocks.append(Block(lines, _title(outcome)))
    delay = foreseen_of(outcomes[0].experiment).delay
    emulated_s = [delay.mean_s * o.experiment.dilation.time for o in outcomes if o.emulated]
    times = " to ".join(dict.fromkeys(f"{limit(emulated_s):.2g}" for limit in (min, max) if emulated_s))
    emulated = f"; {times} s in the emulation" if emulated_s else ""
    return Sheet(
        ("fault",),
        ("fails", "known", "switched", "first byte", "whole", "known to lit", "OCSes that changed"),
        blocks,
        "Microseconds at real scale; but for *fails*, which is since the start, since the fault. Switched: "
        "the last OCS is lit. First byte: over every edge of the ring that is new. Whole: the AllReduce that "
        "was begun again has ended. Known to lit stands beside the device's "
        f"{US * delay.mean_s:g} us ({DEVICE}{emulated}).",
    )


STAGES = ("failed", "known", "switched", "first_byte", "whole")


def _how(outcomes: Sequence[Outcome]) -> str:
    words = dict.fromkeys(outcome.verdict.word for outcome in outcomes)
    return "predicted" if list(words) == ["model"] else f"emulated ({', '.join(words)})"


def _plots(outcomes: Sequence[Outcome]) -> list[Plot]:
    """Return a drawing of each ring before and after its faults; sizes have the same."""
    shown = {(o.experiment.name, stages_of(o.experiment)[0].gpus): o.experiment for o in outcomes}
    return [
        Plot(f"rings_{slug(name)}", partial(drawn_rings, experiment), f"{name}. {RINGS}")
        for (name, _), experiment in shown.items()
    ]


RINGS = (
    "The TP group's ring before and after each fault: a dot is a GPU, a cluster a node, a line light that "
    "joins two GPUs; orange what was lit after the fault, grey the loopbacks of spare nodes, a cross a dead "
    "node."
)


def _claims(outcomes: Sequence[Outcome]) -> list[Claim]:
    """Return what the paper says of bandwidth and of faults, held against emulations alone."""
    sound = [outcome for outcome in outcomes if outcome.emulated and outcome.verdict.word not in LEFT_OUT]
    rings = [ring_table(outcome.experiment, outcome.run) for outcome in sound]
    faults = [
        dying_table(outcome.experiment, outcome.run)
        for outcome in sound
        if outcome.experiment.label.endswith("shrink")
    ]
    shares = [float(share) for table in rings for share in table["share"]]
    alike = [float(share / table["share"][0]) for table in rings for share in table["share"][1:]]
    nodes = [float(count) for table in faults for count in table["nodes"]]
    lit_us = [
        US * float(row["switched_s"] - row["known_s"])
        for outcome in sound
        for _, row in dying_table(outcome.experiment, outcome.run).iterrows()
    ]
    return [
        worst_claim("healthy GPUs have their full bandwidth", ABSTRACT, (LEAST_SHARE, math.inf), shares, min),
        worst_claim(
            "a bypassed fault costs no bandwidth", RING, (1 - ALIKE, 1 + ALIKE), alike, _farthest_from_1
        ),
        worst_claim(
            "a bypass changes no node but the two neighbours", RING, (0, 2), nodes, max, "{:.0f} nodes"
        ),
        Claim(
            "light is switched in 60 to 80 us", "InfiniteHBD, 5.1", (60, 80), max(lit_us, default=math.nan),
            "not comparable", "the device's 70 us are what is emulated", "{:.1f} us",
        ),
        Claim(
            "16 GPUs use 77.11 % of the ring's bandwidth", "InfiniteHBD, 5.2", (0.694, 0.848),
            min(shares, default=math.nan), "not comparable", "another transport, on other machines", "{:.3f}",
        ),
    ]  # fmt: skip


ABSTRACT, RING = "InfiniteHBD, abstract", "InfiniteHBD, 4.2"


def _farthest_from_1(values: Sequence[float]) -> float:
    return max(values, key=lambda value: abs(value - 1))
