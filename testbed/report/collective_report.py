"""The report of collectives under schemes: rails, spines, and what sprays over them."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

import pandas as pd

from testbed.experiment.experiment import LIMIT
from testbed.report.claims import Claim
from testbed.report.figures import figures
from testbed.report.means import in_order, points, transports_of
from testbed.report.page import TRACES, Block, Line, Page, Sheet, counted
from testbed.report.run_json import RunRecord
from testbed.report.table import block_rows, caption, more_words, significant, time_unit
from testbed.report.transports import shares_text, transports_text
from testbed.trust.agreement import AGREES_FROM, AGREES_TO, LIMIT_MARK, MARK
from testbed.trust.outcome import LEFT_OUT, Outcome
from topologies.fabric import Fabric
from traffic.metrics import collective_times_s, kinds_busbw_gbytes_s


def collective_page(
    run: RunRecord, outcomes: Sequence[Outcome], table: pd.DataFrame, claims: Sequence[Claim]
) -> Page:
    """Return the report of a run.

    Parameters
    ----------
    run
        What was run.
    outcomes, table
        What came of it, at least one, and its summary.
    claims
        What papers say, held against the summary.
    """
    return Page(
        run=run,
        sentence=sentence(outcomes),
        table=table,
        results=_results(table, run.baseline),
        claims=claims,
        plots=figures(outcomes, table, run.baseline),
        definitions=definitions(transports_of(table)),
        files="The experiments themselves, demand matrices included, are in run.json beside this file; all "
        f"messages are in records.csv, all points in summary.csv. {TRACES}",
        more=_kinds(outcomes),
    )


def sentence(outcomes: Sequence[Outcome]) -> str:
    """Return what was run, in one sentence or two."""
    experiments = [outcome.experiment for outcome in outcomes]
    schemes = in_order(experiment.name_without_faults for experiment in experiments)
    workloads = dict.fromkeys(experiment.job.name for experiment in experiments)
    seeds = len({experiment.seed for experiment in experiments})
    fabrics = dict.fromkeys(experiment.fabric for experiment in experiments)
    links = " ".join(filter(None, map(links_text, fabrics)))
    text = (
        f"{counted(len(workloads), 'workload')} ({', '.join(workloads)}) under "
        f"{counted(len(schemes), 'scheme')} ({', '.join(schemes)}), {counted(seeds, 'seed')}, over "
        f"{' and '.join(map(fabric_text, fabrics))}." + (f" {links}" if links else "")
    )
    failing = dict.fromkeys(fault.name for experiment in experiments for fault in experiment.faults)
    fails = f" Each also with what fails: {', '.join(failing)}." if failing else ""
    return f"{text}{fails} {scale_text(outcomes)}"


def fabric_text(fabric: Fabric) -> str:
    """Return a fabric in words: ``a rail fabric of 8 servers with 4 NICs of 100 Gbit/s each``."""
    nics = sorted({server.nics for server in fabric.servers})
    rates = sorted({fabric.nic_rate_bps(nic) for nic in fabric.nics})
    spines = sum(switch.tier == 1 for switch in fabric.switches)
    name = "an mFabric" if fabric.name == "mfabric" else f"a {fabric.name.replace('_', '-')} fabric"
    return (
        f"{name} of {counted(len(fabric.servers), 'server')} with "
        f"{_span(nics)} NICs of {_span([rate / 1e9 for rate in rates])} Gbit/s each"
        + (f" and {counted(spines, 'spine')}" if spines else "")
    )


def links_text(fabric: Fabric) -> str:
    """Return the delay and the loss of a fabric's links in a sentence, nothing where there is neither."""
    delays_us = sorted({link.delay_s * 1e6 for link in fabric.links})
    losses = sorted({100 * link.loss for link in fabric.links})
    said = [f"a delay of {_span(delays_us)} µs one way"] if any(delays_us) else []
    said += (
        [f"a loss of {_span(losses)} % of the emulation's packets in each direction"] if any(losses) else []
    )
    return f"Each link has {' and '.join(said)}." if said else ""


def scale_text(outcomes: Sequence[Outcome]) -> str:
    """Return at which scale experiments were emulated, and over which transports."""
    said = transports_text(outcome.experiment.transport_name for outcome in outcomes)
    scales = {outcome.experiment.dilation for outcome in outcomes if outcome.emulated}
    if not scales:
        return f"Nothing was emulated: all numbers are the fluid model's. {said}"
    rates, volumes, times = (
        _span(sorted({float(f"{getattr(scale, name):.3g}") for scale in scales}))
        for name in ("rate", "volume", "time")
    )
    routed = any(outcome.experiment.hashing == "kernel" for outcome in outcomes if outcome.emulated)
    over = " over switches that route (--datapath route)" * routed
    return (
        f"Emulated with real packets{over}: rates × {rates}, bytes × {volumes}, so times × {times}. "
        f"All numbers below are at real scale. {said}"
    )


def _span(numbers: Sequence[float]) -> str:
    return f"{numbers[0]:g}" if len(numbers) == 1 else f"{numbers[0]:g} to {numbers[-1]:g}"


def _results(table: pd.DataFrame, baseline: str) -> Sheet:
    unit, scale = time_unit(table)
    rows = points(table, baseline)
    more = more_words(rows)
    blocks = []
    for workload, group in groupby(rows, lambda point: point.workload):
        mine = list(group)
        lines = [
            Line(cells, look="bound") if p is None else Line(cells, p.word, "void" if p.void else "")
            for cells, p in block_rows(mine, scale, more)
        ]
        blocks.append(Block(lines, workload, mine[0].note))
    numbers = [
        "CCT mean", "CCT p99", "CCT last", f"busbw / {baseline}", "MSE sent", "MSE received",
        "CCT / predicted", "CCT / free", "CCT / bound", "predicted CCT",
    ]  # fmt: skip
    return Sheet(["scheme", *more, "verdict"], numbers, blocks, f"{caption(rows, baseline)} CCT in {unit}.")


def _kinds(outcomes: Sequence[Outcome]) -> list[Sheet]:
    """Return the busbw of each kind of collective of jobs that have several, a mean over seeds."""
    found: defaultdict[str, defaultdict[tuple[str, str, str], list[float]]]
    found = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        experiment, job = outcome.experiment, outcome.experiment.job
        several = len({node.pattern.name for node in job.collectives}) > 1
        if several and outcome.verdict.word not in LEFT_OUT and not experiment.gone:
            took_s = collective_times_s(outcome.run.tables)
            for kind, busbw in kinds_busbw_gbytes_s(job, took_s).items():
                found[job.name][kind, experiment.name, experiment.transport_name].append(busbw)
    blocks = [
        Block(
            [Line([*words, significant(sum(each) / len(each))]) for words, each in sorted(of_job.items())],
            name,
        )
        for name, of_job in found.items()
    ]
    return [Sheet(("collective", "scheme", "transport"), ("busbw",), blocks, KINDS)] if blocks else []


KINDS = (
    "1e9 bytes/s, of jobs with several kinds of collective: the bytes of all of a kind over the times of all."
)

VERDICTS = (
    ("faithful", "The machine carried the emulation without leaving a trace in the numbers."),
    ("strained", "It may have left one; the reason says where."),
    (
        "void",
        "The machine could not keep up: the number says more of the machine than of the scheme.",
    ),
    (
        "unsound",
        "What its tables say cannot be (the reason has the row that proves it): it has no numbers.",
    ),
    ("model", "Nothing was emulated, or no byte crossed the network; the number is the model's."),
    (
        "alike, partly, unlike",
        "Which of the real network's dimensionless numbers below the emulation keeps. Alike: all of them. "
        "Partly: the bandwidth-delay product (BDP), port buffer / BDP and reconfiguration delay / CCT, as "
        "far as the run has them, and not all others. Unlike: one of these three is not kept.",
    ),
    (
        "CCT / predicted",
        "How far the emulation and the model agree. It decides no verdict: outside "
        f"{AGREES_FROM:.2f} .. {AGREES_TO:.2f} it is marked {MARK}, and the report says where the time went.",
    ),
    (
        "CCT / free",
        "The same over the free prediction: by the model's own hash, path choice and mean delays, not those "
        "that were seen. Compare choices of policies by it, and behaviour of transports by CCT / predicted. "
        "Both are the same number where paths and delays were the model's own.",
    ),
)
"""What the words of a verdict mean, in every report."""
DEFINITIONS = (
    (
        "CCT",
        "Collective completion time: from the start of an all-to-all to its last byte; over several, the sum "
        "without the compute between them.",
    ),
    ("mean, p99", "Over the messages that crossed the network, each from the start of its all-to-all."),
    (
        "busbw",
        "nccl-tests' bus bandwidth, of a collective over its own time: of an all-to-all the most that any "
        "GPU sends to others or is sent by them, whatever it keeps. What GPUs pass on for others does not "
        "count. Of several it is the bytes of all over the times of all; a job that has "
        "several kinds has one of each. 1 GB is 10⁹ bytes.",
    ),
    (
        "MSE",
        "Normalised load MSE of the NICs within each server, mean over the servers: 0 is even, 1 is all on "
        "one NIC.",
    ),
    (
        "lower bound",
        "What a server sends or receives over the sum of its NICs' rates, for the slowest server, and the "
        "least delay of two links: no scheme and no fabric beats it.",
    ),
)


def definitions(transports: Sequence[str]) -> list[tuple[str, str]]:
    """Return what the words of a report mean, whose run has these transports."""
    predicted = (
        "By max-min fair fluids over the paths really taken, without headers or slow start. Link delays make "
        "deliveries later; what links lose is sent again at once, and lowers no window."
    )
    limit = (
        f"Marked {LIMIT_MARK} are schemes that choose as they go: PLB, REPS, MinRTT, or your own. "
        "Its messages keep busy all that they may use, or stay where none gains by moving. The scheme says "
        "what they may use; it is asked for choices in made-up states only, to find what is broken in it."
    )
    return [
        *DEFINITIONS,
        ("predicted", f"{predicted} {shares_text(transports)}"),
        (LIMIT, limit),
        *VERDICTS,
    ]
