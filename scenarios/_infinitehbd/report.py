"""What `infinitehbd_faults` leaves behind: its tables for terminal and report, and its results directory."""

from collections.abc import Mapping, Sequence

import pandas as pd

from scenarios._infinitehbd.claims import fault_claims
from scenarios._infinitehbd.costs import BILLS, aggregate_costs
from scenarios._infinitehbd.hbd import ARCHITECTURES
from scenarios._infinitehbd.plots import fault_plots
from scenarios._infinitehbd.study import (
    BOUND,
    FITTED,
    GPUS,
    JOB_SHARES,
    MAIN_TP,
    MODEL_SEEDS,
    NODES,
    SIMULATED_LINES,
    SIMULATED_NODES,
    TP_GPUS,
    WHOLE,
    Cell,
    Study,
)
from testbed.report.page import Block, Line, Page, Sheet, counted
from testbed.report.results import RunDirectory
from testbed.report.table import number
from topologies.cost import GPU_USD
from topologies.errors import ScenarioError
from traffic.fault_trace import READINGS

PRINTED = {
    "InfiniteHBD K=2": "~ K=3", "InfiniteHBD K=3": "0.53", "NVL-36": "~ 11", "NVL-72": "10.04",
    "TPUv4 mod": "7.56", "TPUv4 blocks": "7.56",
}  # fmt: skip
"""What the paper says of waste on the trace at TP-32 [%]; which reading of TPUv4 it takes, it does not."""
FAULTY_SHOWN = (0.01, 0.03, 0.05, 0.07, 0.10, 0.15)
FITTED_ARCHITECTURES = ("TPUv4 blocks",)
WAITING_SHOWN = (90, 95)
TP_HEADERS = tuple(f"TP-{tp}" for tp in TP_GPUS)


class FaultResults(RunDirectory):
    """The directory of a fault study; ``records.csv`` and ``costs.csv`` hold the points of all curves."""

    study: Study | None = None
    """What was added."""

    def add(self, study: Study) -> None:
        """Write a study."""
        self.study = study
        rows = [{str(name): value for name, value in row.items()} for row in study.summary.to_dict("records")]
        costs = aggregate_costs(study.curves, MAIN_TP).rename_axis("faulty").reset_index()
        self.write(rows, tables={"records": study.curves, "costs": costs})

    def page(self) -> Page:
        """Return the report of the study."""
        if self.study is None:
            raise ScenarioError("a report without a study", "add one")
        study, (first, *more) = self.study, sheets(self.study)
        return Page(
            run=self.run,
            sentence=f"{GPUS:,} GPUs in {NODES} nodes of 4, with faults of {study.trace.name} over "
            f"{study.trace.window_days:g} days ({counted(study.seeds, 'seed')}) and of a fault model "
            f"({MODEL_SEEDS} seeds). Nothing was sent.",
            table=self.table,
            results=first,
            claims=fault_claims(study),
            plots=fault_plots(study),
            definitions=DEFINITIONS,
            files="Every architecture, TP size, reading and seed is a row of summary.csv, every point of a "
            "curve one of records.csv, of costs one of costs.csv, beside this file.",
            more=more,
        )


def sheets(study: Study) -> list[Sheet]:
    """Return the tables of a study, waste on the trace first."""
    return [
        _waste_sheet(study),
        _readings_sheet(study),
        _faults_sheet(study.curves),
        _table_7_sheet(study.table_7),
        _jobs_sheet(study),
        _waiting_sheet(study),
        _cost_sheet(study),
    ]


def _waste_sheet(study: Study) -> Sheet:
    """Return waste on the trace by TP size, with the paper's numbers beside TP-32's."""
    mean, above = _means(study, "waste_mean"), _means(study, "above_remainder_mean")
    spread, p99 = _means(study, "waste_mean", "std"), _means(study, "waste_p99")
    lines = [
        Line(
            [
                *_percents(_label(name), name, mean),
                f"{100 * spread[name, MAIN_TP]:.2f}",
                f"{100 * p99[name, MAIN_TP]:.2f}",
                PRINTED.get(name, ""),
            ]
        )
        for name in ARCHITECTURES
    ]
    parts = [Line([*_percents("remainder", BOUND, mean), "", "", ""])]
    parts += [
        Line([*_percents(f"breaks, {name.partition(' ')[2]}", name, above), "", "", ""])
        for name in ARCHITECTURES
        if name.startswith("InfiniteHBD")
    ]
    return Sheet(
        ("waste on the trace [%]",),
        (*TP_HEADERS, "± TP-32", "p99 TP-32", "paper TP-32"),
        [
            Block(lines, f"{FITTED} reading (fitted)"),
            Block(parts, "of which for InfiniteHBD"),
        ],
        f"{_source(study)} Waste: healthy GPUs that no TP group uses, over all GPUs; means over time and "
        f"seeds, ± standard deviation over seeds, p99 over time. The {FITTED} reading of the trace and TPUv4 "
        "in blocks are fitted to the paper: agreement there confirms nothing.",
    )


def _readings_sheet(study: Study) -> Sheet:
    """Return waste at TP-32 in every reading of the trace."""
    shown = (*READINGS, WHOLE)
    means = {reading: _means(study, "waste_mean", reading=reading) for reading in shown}
    spreads = {reading: _means(study, "waste_mean", "std", reading) for reading in shown}
    lines = []
    for name in ARCHITECTURES:
        at = name, MAIN_TP
        each = [
            f"{100 * means[reading][at]:.2f} ±{100 * spreads[reading][at]:.2f}"
            if at in means[reading]
            else "-"
            for reading in shown
        ]
        lines.append(Line([_label(name), *each, PRINTED.get(name, "")]))
    return Sheet(
        ("TP-32, readings [%]",),
        (*(f"{name}, fitted" if name == FITTED else name for name in shown), "paper"),
        [Block(lines)],
        f"{_source(study)} How faults of 8-GPU servers become faults of 4-GPU nodes, three readings of the "
        "paper, and on the servers themselves; means ± standard deviation over seeds. Readings and seeds "
        "spread TPUv4's waste around the paper's number, which decides between none of them.",
    )


def _faults_sheet(curves: pd.DataFrame) -> Sheet:
    """Return waste at TP-32 under the fault model."""
    here = curves[(curves["kind"] == "faulty nodes") & (curves["tp_gpus"] == MAIN_TP)]
    counts = [round(share * NODES) for share in FAULTY_SHOWN]
    lines = []
    for name in ARCHITECTURES:
        waste = here.loc[here["architecture"] == name, "waste"].to_numpy()  # a row per count, from 0
        lines.append(Line([_label(name), *(f"{100 * waste[count]:.2f}" for count in counts)]))
    return Sheet(
        ("TP-32, faulty nodes",),
        [f"{share:.0%}" for share in FAULTY_SHOWN],
        [Block(lines)],
        f"Waste [%] with exactly so many faulty nodes, uniformly drawn: means over {MODEL_SEEDS} seeds. The "
        "remainder makes it ragged (10 % leaves 81 groups of 8 nodes, and nothing over).",
    )


def _table_7_sheet(cells: Sequence[Cell]) -> Sheet:
    """Return table 7 beside the exact value and a simulation."""
    lines = [
        Line(
            [
                f"R={cell.node_gpus}, K={cell.hops}", cell.printed, cell.digits, f"{cell.exact:.3e}",
                number(cell.simulated, "{:.3e}"), f"{cell.bound / cell.exact:.1f}x",
            ]
        )
        for cell in cells
    ]  # fmt: skip
    return Sheet(
        ("table 7, TP-32",),
        ("printed", "bound", "exact", "simulated", "bound / exact"),
        [Block(lines)],
        "Waste ratio that cuts cause in a long line, without the remainder: the paper's upper bound "
        "2 (t - R) P^K with P rounded as printed, the exact expectation, and lines of "
        f"{SIMULATED_LINES * SIMULATED_NODES / 1e6:.0f} million nodes. With K=4 they are cut too rarely "
        "to be simulated.",
    )


def _jobs_sheet(study: Study) -> Sheet:
    """Return the largest jobs by TP size."""
    never, mostly = _means(study, "job_never_pauses_gpus"), _means(study, "job_99_gpus")
    lines = [
        Line([_label(name), *(f"{never[name, tp]:.0f} ({mostly[name, tp]:.0f})" for tp in TP_GPUS)])
        for name in ARCHITECTURES
    ]
    return Sheet(
        ("largest job [GPUs]",),
        TP_HEADERS,
        [Block(lines)],
        f"{_source(study)} The largest job that never pauses (and the one that runs 99 % of the time), of "
        f"{GPUS} GPUs, means over seeds, {FITTED} reading (fitted to the paper).",
    )


def _waiting_sheet(study: Study) -> Sheet:
    """Return how long jobs wait for repairs, by TP size."""
    waits = [_means(study, f"waiting_{share}") for share in WAITING_SHOWN]
    lines = [
        Line([_label(name), *(" / ".join(f"{100 * wait[name, tp]:.1f}" for wait in waits) for tp in TP_GPUS)])
        for name in ARCHITECTURES
    ]
    shares = " / ".join(f"{share}" for share in WAITING_SHOWN)
    return Sheet(
        (f"waiting [%], {shares} %",),
        TP_HEADERS,
        [Block(lines)],
        f"{_source(study)} Share of the time in which a job of {shares} % of all GPUs waits for repairs, if "
        f"every fault lasts {study.trace.mean_repair_days:.3f} days; {FITTED} reading (fitted to the paper). "
        f"The paper's job sizes are lost; {', '.join(map(str, JOB_SHARES))} % are in summary.csv. From TP-16 "
        "on NVL-36 and NVL-72 have no more than 88.9 % to offer even without faults.",
    )


def _cost_sheet(study: Study) -> Sheet:
    """Return the aggregate cost by faulty nodes."""
    costs = aggregate_costs(study.curves, MAIN_TP)
    shown = [costs.index[round(share * NODES)] for share in (0.0, *FAULTY_SHOWN)]
    lines = [Line([_label(name), *(f"{costs.loc[share, name]:,.0f}" for share in shown)]) for name in BILLS]
    return Sheet(
        ("$ per GPU (fitted), TP-32",),
        [f"{share:.0%}" for share in (0.0, *FAULTY_SHOWN)],
        [Block(lines)],
        "Aggregate cost (figure 17d) by faulty nodes: idle and faulty GPUs, and the interconnect at equal "
        f"bandwidth. A GPU at {GPU_USD:,.0f} $ and equal bandwidth are fitted to the paper, which states "
        f"neither; means over {MODEL_SEEDS} seeds of the fault model. SiP-Ring's parts are not published.",
    )


def _label(name: str) -> str:
    """Return an architecture's name; one that was read so as to come close to the paper is named so."""
    return f"{name} (fitted)" if name in FITTED_ARCHITECTURES else name


def _means(
    study: Study, column: str, statistic: str = "mean", reading: str = FITTED
) -> dict[tuple[str, int], float]:
    """Return a statistic over the seeds, by architecture and TP size; NaN, of one seed's spread, is 0."""
    rows = study.summary[study.summary["reading"] == reading]
    found = rows.groupby(["architecture", "tp_gpus"])[column].agg(statistic).fillna(0.0).reset_index()
    columns = (found[name].to_list() for name in ("architecture", "tp_gpus", column))
    return {(str(name), int(tp)): float(value) for name, tp, value in zip(*columns, strict=True)}


def _percents(label: str, name: str, values: Mapping[tuple[str, int], float]) -> list[str]:
    """Return the cells of a line: its label, and a percentage per TP size."""
    return [label, *(f"{100 * values[name, tp]:.2f}" for tp in TP_GPUS)]


def _source(study: Study) -> str:
    """Return what the tables of the trace rest on."""
    kind = "SYNTHETIC stand-in for the fault trace" if study.trace.synthetic else study.trace.name
    return f"{kind[0].upper()}{kind[1:]}, {counted(study.seeds, 'seed')}."


DEFINITIONS = (
    (
        "TP-t",
        "Tensor-parallel groups of t GPUs; a group needs t healthy GPUs that the architecture can join.",
    ),
    (
        "big switch",
        "Any healthy GPUs form a group: what is left is the remainder; no architecture wastes less.",
    ),
    (
        "InfiniteHBD",
        "A ring of nodes with links to the K nodes on either side; K faulty nodes in a row cut it.",
    ),
    ("NVL-H", "Separate HBDs of H GPUs."),
    (
        "TPUv4",
        "Cubes of 64 GPUs, in two readings: mod, any healthy GPUs of a cube form groups (section 2.1's "
        "formula); blocks, a cube is cut into fixed blocks (fitted to the paper).",
    ),
    ("SiP-Ring", "Fixed rings of t GPUs; by this definition equal to TPUv4's blocks up to TP-64."),
    (
        "readings",
        "joint: of a faulty server one half is faulty, rarely both, as appendix A's model implies (fitted to "
        "the paper); independent: each half with 50.21 %; iid: as independent, then nodes in random order.",
    ),
    ("model", "Calculated from the trace or the fault model; nothing was emulated."),
)
