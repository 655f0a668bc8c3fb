"""The circuits of training steps: planned, logged and seen on the wire, and what they make of a transfer."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from controller.schedulers.demand import Matrix
from controller.schedulers.mfabric import circuit_counts, circuit_order, transfer_bound_s, transfer_s
from controller.schedulers.mfabric_exact import MOST_SERVERS, best_circuits
from scenarios._mfabric.region_plan import regions_of
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.report.claims import LIGHTRAIL, Claim, worst_claim
from testbed.report.page import Block, Line, Sheet
from testbed.report.table import lines_of
from testbed.trust.carried import carrying, logged, packets_in_the_dark
from testbed.trust.outcome import LEFT_OUT, Outcome
from topologies.mfabric import Region, regions

MS = 1e3
FEW_PAIRS = 6
"""So many numbers of circuits are easily read."""
Shown = dict[str, list[frozenset[str]]]
"""The circuits that each OCS showed, one set after the other."""


def shown(run: Run) -> Shown:
    """Return the circuits that each OCS showed, by the events of a run."""
    found: Shown = {}
    for which in run.events.loc[run.events["what"] == "lit", "which"]:
        ocs, *circuits = which.split(" ")
        found.setdefault(ocs, []).append(frozenset(circuits))
    return found


def changed_between(experiment: Experiment, run: Run) -> int:
    """Return how often a region went dark between an all-to-all and its transpose, next after it.

    Those two need the same circuits, so this is 0 unless another micro-batch comes between them.
    """
    place = {turn.node: ocs for ocs, turns in regions_of(experiment.rule).turns.items() for turn in turns}
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


def changes_sheet(outcomes: Sequence[Outcome]) -> Sheet:
    """Return how often circuits changed: as planned, as logged by OCSes, as seen on the wire."""
    steps = dict.fromkeys(outcome.experiment.job.name for outcome in outcomes)
    blocks = [
        Block([line for o in outcomes if o.experiment.job.name == step for line in _change_lines(o)], step)
        for step in steps
    ]
    return Sheet(
        ("fabric", "transport", "OCS", "alpha"),
        ("planned", "logged", "seen", "equal", "changed", "unlit", "A2A1 to A2A2", "dark NICs"),
        blocks,
        "Reconfigurations of an iteration, at whose start those of the one before are lit. Planned: by "
        "the prediction. Logged: by the OCS. Seen: those after which packets crossed all circuits that were "
        "lit, and no others, as every packet that left the OCS tells by its source, the port and the time. "
        "Equal: if the circuits are the same in all three. Changed: one-way circuits taken away or added, by "
        "the log. Unlit: packets that crossed where the log has no circuit lit. A2A1 to A2A2: "
        "reconfigurations between an all-to-all and its transpose, where no other micro-batch comes between. "
        "Dark NICs: circuit NICs without a circuit, in the plan that leaves most. wire.csv has what each "
        "circuit carried, and when.",
    )


def _change_lines(outcome: Outcome) -> Iterator[Line]:
    """Yield a line per OCS: what it was to show, what it reported, and what packets took."""
    experiment, wire = outcome.experiment, outcome.wire
    between = changed_between(experiment, outcome.run)
    alpha = {region.ocs: len(region.nics[0]) for region in regions(experiment.fabric)}
    for ocs, planned in shown(outcome.predicted).items():
        own = shown(outcome.run).get(ocs, []) if wire is None else logged(wire, ocs)
        changed, seen, dark = "-", "-", "-"
        if wire is not None:
            changed = f"{sum(len(after ^ before) for before, after in pairwise(own))}"
            seen, dark = f"{_seen(wire, ocs)}", f"{packets_in_the_dark(wire, ocs)}"
        count = [f"{len(planned) - 1}", f"{len(own) - 1}" if outcome.emulated else "-", seen]
        same = ("yes" if _as_planned(outcome, ocs) else "no") if outcome.emulated else "-"
        words = [experiment.label, experiment.transport_name, ocs, f"{alpha[ocs]}"]
        left_dark = len(list(experiment.fabric.used_ports(ocs))) - min(map(len, planned))
        yield Line([*words, *count, same, changed, dark, f"{between}", f"{left_dark}"])


def _seen(wire: pd.DataFrame, ocs: str) -> int:
    """Return after how many reconfigurations the circuits that were lit, and no others, carried packets."""
    own = logged(wire, ocs)
    return sum(one == other for one, other in list(zip(own, carrying(wire, ocs), strict=True))[1:])


def _as_planned(outcome: Outcome, ocs: str) -> bool:
    """Return whether an OCS of an emulation showed what was planned, and packets took just that."""
    found = [shown(outcome.predicted)[ocs], shown(outcome.run).get(ocs, [])]
    if outcome.wire is not None:
        found += [logged(outcome.wire, ocs), carrying(outcome.wire, ocs)]
    needed = [_needed(sets) for sets in found]
    return all(each == needed[0] for each in needed)


def _needed(sets: Sequence[frozenset[str]]) -> Sequence[frozenset[str]]:
    """Return the circuits that a job needs: what is lit first may be replaced before it is used."""
    return sets[1:] or sets


def changes_claims(outcomes: Sequence[Outcome]) -> list[Claim]:
    """Return whether circuits changed as planned, and not between an all-to-all and its transpose.

    Void and unsound emulations count for nothing. Where packets went is not comparable if of any of the
    others the tap missed some.
    """
    emulated = [each for each in outcomes if each.emulated and each.verdict.word not in LEFT_OUT]
    missed = sum(outcome.wire is None for outcome in emulated)
    tapped = [
        (outcome, outcome.wire, ocs)
        for outcome in emulated
        if outcome.wire is not None and not missed
        for ocs in shown(outcome.predicted)
    ]
    other = [float(not _as_planned(outcome, ocs)) for outcome, _, ocs in tapped]
    dark = [float(packets_in_the_dark(wire, ocs)) for _, wire, ocs in tapped]
    # Those that do not block change to what is known exactly once the dispatch is under way.
    between = [
        float(changed_between(outcome.experiment, outcome.run))
        for outcome in emulated
        if regions_of(outcome.experiment.rule).setup.first == "block"
    ]
    on_the_wire = [
        worst_claim(
            "circuits change as planned, in OCS logs and on the wire", LIGHTRAIL, (0, 0), other, sum,
            "{:.0f} otherwise",
        ),
        worst_claim(
            "nothing crosses a circuit that is dark", LIGHTRAIL, (0, 0), dark, sum, "{:.0f} packets"
        ),
    ]  # fmt: skip
    if missed:
        why = f"packets came faster than they were noted in {missed} of {len(emulated)} emulations"
        on_the_wire = [replace(claim, reason=why) for claim in on_the_wire]
    return [
        *on_the_wire,
        worst_claim(
            "nothing changes from A2A1 to A2A2", "mFabric, B.2", (0, 0), between, max, "{:.0f} changes"
        ),
    ]


def circuits_sheet(outcomes: Sequence[Outcome]) -> Sheet | None:
    """Return Algorithm 1 beside the best circuits, for each demand of a step; None of large regions alone.

    The first outcome of a step stands for all: their demands are the same.
    """
    first = list({outcome.experiment.job.name: outcome for outcome in reversed(outcomes)}.values())[::-1]
    tables = [table for outcome in first if len(table := _circuits_table(outcome.experiment))]
    if not tables:
        return None
    blocks = []
    for step, own in pd.concat(tables).groupby("step", sort=False):
        times_s = ["greedy_s", "best_s", "packets_s"]
        ratios = {"over": own["greedy_s"] / own["best_s"], "cost": own["best_s"] / own["packets_s"]}
        cells = (*(f"{{{name}:.1f}}" for name in times_s), "{over:.2f}", "{cost:.2f}", "{without}")
        lines = lines_of(own.assign(**ratios, **(MS * own[times_s])), "{node}", "{circuits}", *cells)
        blocks.append(Block(lines, str(step)))
    return Sheet(
        ("all-to-all", "circuits"),
        ("Algorithm 1", "best", "packets", "/ best", "best / packets", "without"),
        blocks,
        "What limits a transfer, in milliseconds: over Algorithm 1's circuits, over the best ones, by an "
        "integer program, and over as many NICs on packets, at best. Circuits: Algorithm 1's, of the pairs "
        "01, 02, ... in order, or how many pairs have how many. / best: what the greedy choice costs. best / "
        "packets: what circuits cost, whichever are lit: a pair has its own only, while NICs of others are "
        "idle. Without: pairs with demand that have no circuit, and share the packet NICs.",
    )


def _counted(counts: Sequence[int]) -> str:
    """Return the circuits of few pairs one by one, and else how many pairs have so many."""
    if len(counts) <= FEW_PAIRS:
        return "-".join(map(str, counts))
    return ", ".join(f"{pairs} pairs of {each}" for each, pairs in sorted(Counter(counts).items()))


def _circuits_table(experiment: Experiment) -> pd.DataFrame:
    """Return a row per region and demand; none of large regions."""
    rows: list[dict[str, object]] = []
    by_ocs = {region.ocs: region for region in regions(experiment.fabric)}
    for ocs, turns in regions_of(experiment.rule).turns.items():
        region = by_ocs[ocs]
        if len(region.servers) > MOST_SERVERS:
            continue
        seen: list[Matrix] = []
        for turn in turns:
            if any(np.array_equal(turn.demand, other) for known in seen for other in (known, known.T)):
                continue
            seen.append(turn.demand)
            rows.append(
                {"step": experiment.job.name, "node": turn.node} | _row(experiment, region, turn.demand)
            )
    return pd.DataFrame(rows)


def _row(experiment: Experiment, region: Region, demand: Matrix) -> dict[str, object]:
    """Return the time of a demand over the circuits of Algorithm 1, the best, and packet NICs alone [s]."""
    server = experiment.fabric.servers[region.servers[0]]
    alpha, rate_bps = len(region.nics[0]), max(map(experiment.fabric.nic_rate_bps, experiment.fabric.nics))
    packets, pairs = server.nics - alpha, np.triu_indices(len(demand), 1)
    greedy = circuit_counts(circuit_order(demand, alpha, packets), len(demand))
    best_s = 8 * best_circuits(demand, alpha, packets).lane_bytes / rate_bps if packets else math.nan
    return {
        "circuits": _counted(greedy[pairs].tolist()),
        "greedy_s": transfer_s(demand, greedy, packets, rate_bps),
        "best_s": best_s,
        "packets_s": transfer_bound_s(demand, server.nics, rate_bps),
        "without": int(((greedy == 0) & (demand + demand.T > 0))[pairs].sum()),
    }
