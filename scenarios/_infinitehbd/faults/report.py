"""Report of `infinitehbd_faults`: its tables for terminal and page."""

from collections.abc import Callable, Mapping, Sequence

from controller.schedulers.infinitehbd_waste import ARCHITECTURES, ONE_PATH
from scenarios._infinitehbd.faults.claims import fault_claims
from scenarios._infinitehbd.faults.cluster import MAIN_TP, TracedCluster
from scenarios._infinitehbd.faults.costs import TABLE_6, aggregate_costs, computed_table_6, table_6_row
from scenarios._infinitehbd.faults.plots import fault_plots
from scenarios._infinitehbd.faults.study import (
    BOUND,
    FITTED,
    JOB_SHARES,
    MODEL_SEEDS,
    SIMULATED_LINES,
    SIMULATED_NODES,
    WHOLE,
    Cell,
    FaultStudy,
)
from testbed.report.page import Block, Findings, Line, Sheet, counted
from testbed.report.table import number
from testbed.study.computed import ComputedReport
from topologies.cost import GPU_USD, HPN
from traffic.fault_trace import READINGS

PRINTED = {
    "InfiniteHBD K=2": "~ K=3", "InfiniteHBD K=3": "0.53", "NVL-36": "~ 11", "NVL-72": "10.04",
    "TPUv4 mod": "7.56", "TPUv4 blocks": "7.56",
}  # fmt: skip
"""Printed waste on the trace at TP-32 [%]; the paper does not say which reading of TPUv4 it takes."""
INFINITEHBD = {
    "InfiniteHBD K=2": "K=2", "InfiniteHBD K=3": "K=3", ONE_PATH: "K=3, one path", "InfiniteHBD K=4": "K=4",
}  # fmt: skip
"""Variants of InfiniteHBD, each with its name where there are no others."""
FAULTY_SHOWN = (1, 3, 5, 7, 10, 15)
"""Shares of faulty nodes [%]."""
FITTED_ARCHITECTURES = ("TPUv4 blocks",)
WAITING_SHOWN = (90, 95)
Values = Mapping[tuple[str, int], float]
"""By architecture and TP size, of architectures that the cluster can form."""


def fault_report(study: FaultStudy) -> ComputedReport:
    """Return the report of a study; ``records.csv`` and ``costs.csv`` hold the points of all curves."""
    trace, cluster = study.trace, study.cluster
    costs = aggregate_costs(study.curves, cluster).rename_axis("faulty").reset_index()
    return ComputedReport(
        f"{cluster.gpus:,} GPUs in {cluster.nodes} nodes of {cluster.node_gpus}, with faults of "
        f"{trace.name} over {trace.window_days:g} days "
        f"({counted(study.seeds, 'seed')}) and of a fault model ({MODEL_SEEDS} seeds). Nothing was sent.",
        Findings(sheets(study), fault_plots(study), fault_claims(study)),
        study.summary.to_dict("records"),
        "Every architecture, TP size, reading and seed is a row of summary.csv, every point of a "
        "curve one of records.csv, of costs one of costs.csv, beside this file.",
        {"records": study.curves, "costs": costs},
        DEFINITIONS,
        {
            "trace": {"name": trace.name, "synthetic": trace.synthetic, "servers": trace.nodes,
                      "window_days": trace.window_days, "faults": len(trace.node)},
            "cluster": {"servers": cluster.servers, "server_gpus": cluster.server_gpus,
                        "nodes": cluster.nodes, "node_gpus": cluster.node_gpus,
                        "tp_gpus": list(cluster.tp_gpus)},
            "seeds": {"trace": study.seeds, "fault_model": MODEL_SEEDS},
        },
    )  # fmt: skip


def sheets(study: FaultStudy) -> list[Sheet]:
    """Return the tables of a study, waste on the trace first."""
    return [
        _waste_sheet(study),
        *([_readings_sheet(study)] if study.cluster.halved else []),
        _faults_sheet(study),
        _table_7_sheet(study.table_7),
        _jobs_sheet(study),
        _waiting_sheet(study),
        _table_6_sheet(),
        _cost_sheet(study),
    ]


def _waste_sheet(study: FaultStudy) -> Sheet:
    """Return waste on the trace by TP size, with the paper's numbers beside TP-32's."""
    cluster, main = study.cluster, f"TP-{study.cluster.main_tp}"
    fitted = " (fitted)" if cluster.halved else ""
    return Sheet(
        ("waste on the trace [%]",),
        (*_tp_headers(cluster), f"± {main}", f"p99 {main}", *_beside(study, f"paper {main}")),
        [
            Block(_waste_lines(study), f"{study.reading}{fitted}"),
            Block(_parts(study), "of which for InfiniteHBD"),
        ],
        f"{_source(study)} Waste: healthy GPUs that no TP group uses, over all GPUs; means over time and "
        "seeds, ± standard deviation over seeds, p99 over time. "
        f"{FITTED_TEXT if cluster.halved else BLOCKS_TEXT}{_left_out(cluster)}",
    )


def _waste_lines(study: FaultStudy) -> list[Line]:
    """Return a line per architecture: its waste by TP size, its spread and p99 at one, what is printed."""
    mean, main = _means(study, "waste_mean"), study.cluster.main_tp
    spread, p99 = _means(study, "waste_mean", "std"), _means(study, "waste_p99")
    lines = []
    for name in _made(study.cluster):
        at_main = (_percent(spread, name, main), _percent(p99, name, main))
        printed = _beside(study, PRINTED.get(name, ""))
        lines.append(Line([*_percents(study.cluster, _label(name), name, mean), *at_main, *printed]))
    return lines


def _parts(study: FaultStudy) -> list[Line]:
    """Return the parts of InfiniteHBD's waste: the remainder, and what breaks add to it."""
    mean, above = _means(study, "waste_mean"), _means(study, "above_remainder_mean")
    rows = [("remainder", BOUND, mean), *((f"breaks, {of}", name, above) for name, of in INFINITEHBD.items())]
    return [Line([*_percents(study.cluster, *row), "", "", *_beside(study, "")]) for row in rows]


def _readings_sheet(study: FaultStudy) -> Sheet:
    """Return waste at one TP size in every reading of the trace."""
    there, main = set(study.summary["reading"]), study.cluster.main_tp
    shown = [reading for reading in (*READINGS, WHOLE) if reading in there]
    lines = []
    for name in _made(study.cluster, main):
        each = [_with_spread(study, reading, name) for reading in shown]
        lines.append(Line([_label(name), *each, *_beside(study, PRINTED.get(name, ""))]))
    headers = [f"{name}, fitted" if name == FITTED else name for name in shown]
    return Sheet(
        (f"TP-{main}, readings [%]",),
        [*headers, *_beside(study, "paper")],
        [Block(lines)],
        f"{_source(study)} How faults of servers become faults of nodes of half a server, three readings of "
        "the paper, and on the servers themselves; means ± standard deviation over seeds."
        f"{''.join(_beside(study, READINGS_TEXT))}",
    )


def _with_spread(study: FaultStudy, reading: str, name: str) -> str:
    """Return the waste of a reading with its spread over the seeds, a dash where there is none."""
    at = name, study.cluster.main_tp
    mean = _means(study, "waste_mean", reading=reading)
    spread = _means(study, "waste_mean", "std", reading)
    return f"{_percent(mean, *at)} ±{_percent(spread, *at)}" if at in mean else "-"


def _faults_sheet(study: FaultStudy) -> Sheet:
    """Return waste at one TP size under the fault model."""
    cluster, curves = study.cluster, study.curves
    here = curves[(curves["kind"] == "faulty nodes") & (curves["tp_gpus"] == cluster.main_tp)]
    counts = [cluster.faulty_nodes(percent) for percent in FAULTY_SHOWN]
    lines = []
    for name in _made(cluster, cluster.main_tp):
        waste = here.loc[here["architecture"] == name, "waste"].to_numpy()  # a row per count, from 0
        lines.append(Line([_label(name), *(f"{100 * waste[count]:.2f}" for count in counts)]))
    return Sheet(
        (f"TP-{cluster.main_tp}, faulty nodes",),
        [f"{percent} %" for percent in FAULTY_SHOWN],
        [Block(lines)],
        f"Waste [%] with exactly so many faulty nodes, uniformly drawn: means over {MODEL_SEEDS} seeds. The "
        "remainder makes it ragged: what is healthy is seldom a whole number of groups. "
        f"{ONE_PATH}: {ONE_PATH_TEXT}",
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


def _jobs_sheet(study: FaultStudy) -> Sheet:
    """Return the largest jobs by TP size."""
    never, mostly = _means(study, "job_never_pauses_gpus"), _means(study, "job_99_gpus")

    def cell(name: str, tp: int) -> str:
        return f"{never[name, tp]:.0f} ({mostly[name, tp]:.0f})" if (name, tp) in never else "-"

    return Sheet(
        ("largest job [GPUs]",),
        _tp_headers(study.cluster),
        [Block(_by_tp(study.cluster, cell))],
        f"{_source(study)} The largest job that never pauses (and the one that runs 99 % of the time), of "
        f"{study.cluster.gpus:,} GPUs, means over seeds, {_reading(study)}.",
    )


def _waiting_sheet(study: FaultStudy) -> Sheet:
    """Return how long jobs wait for repairs, by TP size."""
    waits = [_means(study, f"waiting_{share}") for share in WAITING_SHOWN]

    def cell(name: str, tp: int) -> str:
        return " / ".join(f"{100 * wait[name, tp]:.1f}" if (name, tp) in wait else "-" for wait in waits)

    shares = " / ".join(f"{share}" for share in WAITING_SHOWN)
    return Sheet(
        (f"waiting [%], {shares} %",),
        _tp_headers(study.cluster),
        [Block(_by_tp(study.cluster, cell))],
        f"{_source(study)} Share of the time in which a job of {shares} % of all GPUs waits for repairs, if "
        f"every fault lasts {study.trace.mean_repair_days:.3f} days; {_reading(study)}. The paper's job "
        f"sizes are lost; {', '.join(map(str, JOB_SHARES))} % are in summary.csv. A job for which there "
        "is no room even without faults waits all the time.",
    )


def _by_tp(cluster: TracedCluster, cell: Callable[[str, int], str]) -> list[Line]:
    """Return a line per architecture with a cell per TP size."""
    return [Line([_label(name), *(cell(name, tp) for tp in cluster.tp_gpus)]) for name in _made(cluster)]


def _table_6_sheet() -> Sheet:
    """Return table 6 as it follows from the parts of table 8, beside what is printed where that differs."""
    lines = [
        Line([name, *(_with_printed(*each) for each in zip(row, TABLE_6[name], strict=True))])
        for name, row in computed_table_6().items()
    ]
    lines.append(Line([HPN.name, *table_6_row(HPN)]))
    return Sheet(
        ("table 6",),
        ("$ / GPU", "W / GPU", "$ / GPU / GBps", "W / GPU / GBps"),
        [Block(lines)],
        "Interconnects, from the parts of the paper's table 8; its table 6 prints the same but for "
        "what is in brackets. NVL-36x2's 150.33 W would need ACC cables of 1.7 W where table 8 has 2.5 W: "
        f"the two contradict each other. {HPN.name} is in table 8 alone.",
    )


def _with_printed(computed: str, printed: str) -> str:
    return computed if computed == printed else f"({printed}) {computed}"


def _cost_sheet(study: FaultStudy) -> Sheet:
    """Return the aggregate cost by faulty nodes."""
    cluster = study.cluster
    costs = aggregate_costs(study.curves, cluster)
    shown = [0, *FAULTY_SHOWN]
    rows = costs.iloc[[cluster.faulty_nodes(percent) for percent in shown]]  # a row per count, from 0
    lines = [Line([_label(str(name)), *(f"{cost:,.0f}" for cost in rows[name])]) for name in costs]
    return Sheet(
        (f"$ per GPU (fitted), TP-{cluster.main_tp}",),
        [f"{percent} %" for percent in shown],
        [Block(lines)],
        "Aggregate cost (figure 17d) by faulty nodes: idle and faulty GPUs, and the interconnect at equal "
        f"bandwidth. A GPU at {GPU_USD:,.0f} $ and equal bandwidth are fitted to the paper, which states "
        f"neither; means over {MODEL_SEEDS} seeds of the fault model. SiP-Ring's parts are not published.",
    )


def _made(cluster: TracedCluster, tp_gpus: int = 0) -> list[str]:
    """Return the architectures that can be made for a TP size, or for any."""
    sizes = (tp_gpus,) if tp_gpus else cluster.tp_gpus
    return [name for name in ARCHITECTURES if any(name in cluster.made(size) for size in sizes)]


def _left_out(cluster: TracedCluster) -> str:
    """Return which architectures a cluster cannot form, or hold no group, and why; empty if none."""
    why: dict[str, list[str]] = {}
    for size in cluster.tp_gpus:
        for name in ARCHITECTURES:
            if reason := cluster.why_not(name, size):
                why.setdefault(reason, []).append(name)
            elif name not in cluster.holding(size):
                why.setdefault(f"no TP-{size} group fits, so every healthy GPU is wasted", []).append(name)
    each = [f"{', '.join(dict.fromkeys(names))}: {reason}." for reason, names in why.items()]
    return " ".join(["", *each])


def _beside(study: FaultStudy, text: str) -> list[str]:
    """Return a note on the paper's numbers: they stand beside those of its cluster, at its TP size."""
    return [text] if study.cluster.is_the_papers and study.cluster.main_tp == MAIN_TP else []


def _reading(study: FaultStudy) -> str:
    """Return how the trace is read where a table has one reading."""
    return f"{FITTED} reading (fitted to the paper)" if study.cluster.halved else f"nodes are {WHOLE}"


def _tp_headers(cluster: TracedCluster) -> list[str]:
    return [f"TP-{size}" for size in cluster.tp_gpus]


def _label(name: str) -> str:
    """Return an architecture's name; one that was read so as to come close to the paper is named so."""
    return f"{name} (fitted)" if name in FITTED_ARCHITECTURES else name


def _means(study: FaultStudy, column: str, statistic: str = "mean", reading: str = "") -> Values:
    """Return a statistic over the seeds, by architecture and TP size; NaN, of one seed's spread, is 0."""
    rows = study.summary[study.summary["reading"] == (reading or study.reading)]
    found = rows.groupby(["architecture", "tp_gpus"])[column].agg(statistic).fillna(0.0).reset_index()
    columns = (found[name].to_list() for name in ("architecture", "tp_gpus", column))
    return {(str(name), int(tp)): float(value) for name, tp, value in zip(*columns, strict=True)}


def _percents(cluster: TracedCluster, label: str, name: str, values: Values) -> list[str]:
    """Return the cells of a line: its label, and a percentage per TP size."""
    return [label, *(_percent(values, name, tp) for tp in cluster.tp_gpus)]


def _percent(values: Values, name: str, tp_gpus: int) -> str:
    """Return a percentage, a dash where there is none."""
    return f"{100 * values[name, tp_gpus]:.2f}" if (name, tp_gpus) in values else "-"


def _source(study: FaultStudy) -> str:
    """Return the basis of the trace's tables in words."""
    kind = "SYNTHETIC stand-in for the fault trace" if study.trace.synthetic else study.trace.name
    return f"{kind[0].upper()}{kind[1:]}, {counted(study.seeds, 'seed')}."


FITTED_TEXT = (
    f"The {FITTED} reading of the trace and TPUv4 in blocks are fitted to the paper: agreement there "
    "confirms nothing."
)
BLOCKS_TEXT = "TPUv4 in blocks is fitted to the paper: agreement there confirms nothing."
READINGS_TEXT = (
    " Readings and seeds spread TPUv4's waste around the paper's number, which decides between none of them."
)
ONE_PATH_TEXT = (
    "a bundle lights one path, so a node with two faulty ones on either side ends a group; the paper's graph "
    "model ignores that."
)
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
    (ONE_PATH, f"InfiniteHBD as its circuits can be set: {ONE_PATH_TEXT}"),
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
