"""Report of rings whose nodes die: bandwidth before and after, and how long each fault took."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress

import pandas as pd

from scenarios._infinitehbd.ring.dying import DEVICE, RingStage, again, foreseen_of, stages_of, steadies_of
from scenarios._infinitehbd.ring.plots import drawn_rings
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.report.claims import Claim, ruling, worst_claim
from testbed.report.page import Block, Findings, Line, Plot, Sheet, slug
from testbed.report.table import significant
from testbed.trust.agreement import AGREES_FROM, AGREES_TO, agrees
from testbed.trust.outcome import LEFT_OUT, Outcome
from topologies.fabric import Fabric, Port
from traffic.bounds import NOTHING_LENT
from traffic.metrics import GB, bus_bytes
from traffic.tables import in_seconds

LEAST_SHARE, LEAST_AFTER = 0.95, 0.97
"""The least busbw: of a GPU's rate, and of that before a fault or in a smaller ring. Faster is no break."""
US = 1e6


def dying_findings(outcomes: Sequence[Outcome]) -> Findings:
    """Return tables, plots and claims of outcomes of `dying_ring`."""
    return Findings(
        [_rings_sheet(outcomes), _faults_sheet(outcomes)],
        _plots(outcomes),
        _claims(outcomes),
    )


def ring_table(experiment: Experiment, run: Run) -> pd.DataFrame:
    """Return a row for the AllReduces that nothing disturbs before, between and after faults.

    Returns
    -------
    DataFrame
        faults, how many came before; nodes and gpus, how many; took_s, the median; busbw [1e9 bytes/s], and
        share, of a GPU's rate, both of the median; least and most, the shares of the slowest and the fastest.
    """
    took_s = run.tasks.set_index("node")["end_s"] - run.tasks.set_index("node")["start_s"]
    patterns = {node.name: node.pattern for node in experiment.whole_job.collectives}
    rows = []
    for number, stage in enumerate(stages_of(experiment)):
        names = steadies_of(experiment, number)
        busbw = (bus_bytes(patterns[names[0]]) / GB / took_s[names]).sort_values()
        shares = busbw * GB * 8 / _gpu_bps(experiment.fabric)
        rows.append(
            {
                "faults": number,
                "nodes": len(stage.group),
                "gpus": len(stage.gpus),
                "took_s": took_s[names].median(),
                "busbw": busbw.median(),
                "share": shares.median(),
                "least": shares.iloc[0],
                "most": shares.iloc[-1],
            }
        )
    return pd.DataFrame(rows)


def dying_table(
    experiment: Experiment, run: Run, lent_bytes: Mapping[Port, float] = NOTHING_LENT
) -> pd.DataFrame:
    """Return a row per fault; times are real seconds since it came.

    Parameters
    ----------
    experiment, run
        Whose faults.
    lent_bytes
        What ports' shapers may have lent after a pause [real bytes].

    Returns
    -------
    DataFrame
        fault; failed_s, since the start; known_s; switched_s, when the last OCS that changed was lit;
        first_byte_s, when bytes went over all edges that are new; whole_s, when the AllReduce
        that was begun again ended; ocses, which changed by the run's own log until the next fault; nodes,
        whose they are; and neighbours, the nodes that light joined to the dead one before.
    """
    rows, stages, light = [], stages_of(experiment), _light(run)
    failed = run.events[run.events["what"] == "failed"].groupby("which")["at_s"].first()
    ends_s = [*(failed[fault.name] for fault in experiment.faults[1:]), math.inf]
    for index, (fault, until_s) in enumerate(zip(experiment.faults, ends_s, strict=True), start=1):
        mine = run.events[run.events["which"] == fault.name].groupby("what")["at_s"].first()
        failed_s, before, after = mine["failed"], stages[index - 1], stages[index]
        changes = light[light["at_s"].between(failed_s, until_s, inclusive="left")]
        whole_s = run.tasks.loc[run.tasks["node"] == again(index), "end_s"].max()
        gpu_bps, most_lent = _gpu_bps(experiment.fabric), max(lent_bytes.values(), default=0.0)
        messages = run.messages[(run.messages["node"] == again(index)) & run.messages["end_s"].notna()]
        first_byte_s = _first_byte_s(messages, after.edges - before.edges, gpu_bps / 2, most_lent)
        rows.append(
            {
                "fault": fault.name,
                "failed_s": failed_s,
                "known_s": mine["detected"] - failed_s,
                "switched_s": changes["at_s"].max() - failed_s,
                "first_byte_s": first_byte_s - failed_s,
                "whole_s": whole_s - failed_s,
                "ocses": sorted(set(changes["ocs"])),
                "nodes": sorted(set(changes["ocs"].map(_node))),
                "neighbours": _neighbours(before, fault.gpus),
            }
        )
    return pd.DataFrame(rows)


def _light(run: Run) -> pd.DataFrame:
    """Return the log of a run's OCSes, dark and lit: ocs, its name, and at_s."""
    light = in_seconds(run.tables.light)
    return light.assign(ocs=[run.tables.ocses[number] for number in light["ocs"]])


def _node(ocs: str) -> int:
    """Return the node of a bundle by the name of its OCS."""
    return int(ocs[1:].partition("b")[0])


def _neighbours(stage: RingStage, dead: Sequence[int]) -> list[int]:
    """Return the nodes whose GPUs follow some that die, or are followed by them, in a ring."""
    joined = {gpu for edge in stage.edges if edge & {*dead} for gpu in edge - {*dead}}
    return sorted({gpu // len(dead) for gpu in joined})


def _first_byte_s(
    messages: pd.DataFrame, edges: Collection[frozenset[int]], nic_bps: float, lent_bytes: float
) -> float:
    """Return when a first byte had gone over all of some edges, at the latest [s].

    Of a message it is sent no later than the message would last at a NIC's rate before its end, less what the
    NIC's shaper lent: that went at once.
    """
    sent_s = messages["end_s"] - (messages["bytes"] - lent_bytes).clip(lower=0) * 8 / nic_bps
    first_s = dict.fromkeys(edges, math.inf)
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
                f"{row['least']:.3f} .. {row['most']:.3f}",
                f"{row['share'] / found['share'][0]:.3f}",
                f"{row['took_s'] / model:.3f}",
            ]
            lines.append(Line(cells))
        blocks.append(Block(lines, _title(outcome)))
    return Sheet(
        ("faults before",),
        ("GPUs", "nodes", "took [us]", "busbw", "/ GPU rate", "of all", "/ before", "/ model"),
        blocks,
        f"Ring AllReduces that nothing disturbs, {_how(outcomes)}, at real scale: the median of "
        f"{_steadies(outcomes)} each. busbw in 1e9 bytes/s as nccl-tests defines it, over what the two "
        "half-bundles of a GPU carry, headers included; of all: of the slowest and the fastest; / before: "
        "over that of the ring without faults. The paper's 77.11 % (section 5.2) are of another transport, "
        "and not comparable.",
    )


def _faults_sheet(outcomes: Sequence[Outcome]) -> Sheet:
    """Return how long each fault took, emulated above predicted."""
    blocks = []
    for outcome in outcomes:
        lines = []
        for name, run in outcome.runs.items():
            for _, row in dying_table(outcome.experiment, run, outcome.lent_bytes).iterrows():
                shown = [US * row[f"{what}_s"] for what in STAGES]
                shown.append(US * (row["switched_s"] - row["known_s"]))
                cells = [
                    f"{row['fault']}, {name}",
                    *(f"{time_us:.0f}" for time_us in shown),
                    " ".join(row["ocses"]) or "-",
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
        "the last OCS is lit, by the log of the OCSes. First byte: over every edge of the ring that is new. "
        "Whole: the AllReduce that was begun again has ended. Known to lit stands beside the device's "
        f"{US * delay.mean_s:g} us ({DEVICE}{emulated}).",
    )


STAGES = ("failed", "known", "switched", "first_byte", "whole")


def _how(outcomes: Sequence[Outcome]) -> str:
    words = dict.fromkeys(outcome.verdict.word for outcome in outcomes)
    emulated = any(outcome.emulated for outcome in outcomes)
    return f"{'emulated' if emulated else 'predicted'} ({', '.join(words)})"


def _steadies(outcomes: Sequence[Outcome]) -> int:
    return len(steadies_of(outcomes[0].experiment, 0))


def _plots(outcomes: Sequence[Outcome]) -> list[Plot]:
    """Return a drawing of each ring before and after its faults; sizes have the same."""
    shown = {(o.experiment.name, stages_of(o.experiment)[0].gpus): o.experiment for o in outcomes}
    return [
        Plot(f"rings_{slug(name)}", partial(drawn_rings, experiment), f"{name}. {RINGS}")
        for (name, _), experiment in shown.items()
    ]


RINGS = (
    "The TP group's ring before and after each fault, nodes in a line as in the paper's figure 2: a dot is a "
    "GPU, a line light that joins two; orange what was lit after the fault, grey the loopbacks of spare "
    "nodes, a cross a dead node."
)


def _claims(outcomes: Sequence[Outcome]) -> list[Claim]:
    """Return the claims about bandwidth and faults, held against emulations alone."""
    sound = [outcome for outcome in outcomes if outcome.emulated and outcome.verdict.word not in LEFT_OUT]
    rings = [ring_table(each.experiment, each.run) for each in sound if agrees(each.over_predicted)]
    faults = [dying_table(each.experiment, each.run, each.lent_bytes) for each in sound]
    shrunk = [each.experiment.label.endswith("shrink") for each in sound]
    shares = [float(share) for table in rings for share in table["share"]]
    after = [float(share / table["share"][0]) for table in rings for share in table["share"][1:]]
    lit_us = [US * float(lit_s) for table in faults for lit_s in table["switched_s"] - table["known_s"]]
    off = [each for each in sound if not agrees(each.over_predicted)]
    return [
        _rate_claim("healthy GPUs have their full bandwidth", ABSTRACT, LEAST_SHARE, shares, off),
        _rate_claim("a bypassed fault costs no bandwidth", RING, LEAST_AFTER, after, off),
        _bypass_claim(list(compress(faults, shrunk))),
        _scaling_claim(rings),
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


def _rate_claim(
    text: str, source: str, least: float, values: Sequence[float], off: Sequence[Outcome]
) -> Claim:
    """Return a claim about medians of rates; points whose CCT / model is off are left out, and named.

    Where a whole run does not take the time of its model, by the limits that mark it in every table, a share
    of a GPU's rate says as much of the machine as of the ring.
    """
    claim = worst_claim(text, source, (least, math.inf), values, min)
    if not off:
        return claim
    ratios = ", ".join(f"{_title(each)} {each.over_predicted:.2f}" for each in off)
    out = f"CCT / model outside {AGREES_FROM:.2f} .. {AGREES_TO:.2f}: {ratios}"
    return replace(claim, reason=f"{claim.reason}; left out, {out}" if values else out)


def _scaling_claim(rings: Sequence[pd.DataFrame]) -> Claim:
    """Return the claim that a larger ring loses no bandwidth: 77.26 % with 32 GPUs, 77.11 % with 16 (5.2)."""
    text, shares = "no bandwidth is lost from 16 to 32 GPUs", dict[int, list[float]]()
    for table in rings:
        shares.setdefault(int(table["gpus"][0]), []).append(float(table["share"][0]))
    values = [min(shares[32]) / max(shares[16])] if shares.keys() >= {16, 32} else []
    claim = worst_claim(text, "InfiniteHBD, 5.2", (LEAST_AFTER, math.inf), values, min)
    return replace(claim, reason="before any fault" if values else "needs rings of both (--tp 16,32)")


def _bypass_claim(faults: Sequence[pd.DataFrame]) -> Claim:
    """Return a claim about which nodes changed, by the log of their OCSes: a dead one's neighbours alone."""
    text, expected = "a bypass changes no node but the two neighbours", (0.0, 0.0)
    rows = [row for table in faults for row in table.to_dict("records")]
    if not rows:
        return Claim(text, RING, expected, reason="nothing sound was emulated", pattern=OTHERS)
    wrong = {
        f"{row['fault']}: {row['nodes']} changed, its neighbours are {row['neighbours']}": other
        for row in rows
        if (other := len({*row["nodes"]} ^ {*row["neighbours"]}))
    }
    measured = float(max(wrong.values(), default=0))
    reason = "; ".join(wrong) or f"the neighbours alone after each of {len(rows)} faults"
    return Claim(text, RING, expected, measured, ruling(measured, expected), reason, OTHERS)


OTHERS = "{:.0f} others"
"""Nodes that changed and are no neighbours, or are and did not."""
