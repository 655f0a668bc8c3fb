"""Report of `infinitehbd_dcn`: bytes over ToR uplinks beside the counted ones, and time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from controller.schedulers.infinitehbd import cut_nodes, deployment_line
from scenarios._infinitehbd.orchestration.crossing import CpTraffic, wire_share
from scenarios._infinitehbd.orchestration.placements import (
    BEST,
    BEST_TEXT,
    LEAST,
    LEAST_TEXT,
    NOT_BEST_TEXT,
    OPTIMISED,
    PLACEMENTS,
    RANKED,
    RANKED_TEXT,
    UNCONSTRAINED,
    JobRequest,
)
from testbed.report.claims import LESS, MORE, Claim, Range, worst_claim
from testbed.report.page import Block, Findings, Line, Plot, Sheet, counted
from testbed.report.palette import INK, canvas, horizontal_grid, legend_below, styled
from testbed.report.table import number
from testbed.trust.outcome import LEFT_OUT, Outcome
from traffic.metrics import cct

SOURCE = "InfiniteHBD, 4.3 and 6.4"
NEAR: Range = (0.9, 1.1)
"""Within how much of what the NICs need a job is held to be free of congestion."""
COLOURS = {LEAST: "#9a9a9a", BEST: "#56b4e9", RANKED: "#0072b2"}
MARKERS = "osD^v"
"""Of what is on the wire, one a transport."""


@dataclass(frozen=True)
class PointSent:
    """A point, and what came of it."""

    point: CpTraffic
    outcome: Outcome

    @property
    def wire(self) -> float | None:
        """The share on the wire, None if nothing sound was emulated."""
        run = self.outcome.emulated
        if run is None or self.outcome.verdict.word in LEFT_OUT:
            return None
        return wire_share(run, self.outcome.experiment.fabric)

    @property
    def mean_s(self) -> float:
        """The mean time of the job's messages [s]."""
        return cct(self.outcome.run.tables).mean_s

    @property
    def transport(self) -> str:
        """The transport between NICs."""
        return self.outcome.experiment.transport_name


def crossing_findings(outcomes: Sequence[Outcome], points: Sequence[CpTraffic]) -> Findings:
    """Return a table, a plot and claims of the outcomes of points."""
    of_experiment = {(point.experiment.job.name, point.placement): point for point in points}
    sent = [
        PointSent(of_experiment[each.experiment.job.name, each.experiment.label], each) for each in outcomes
    ]
    plot = Plot("crossing", partial(drawn_crossings, sent), f"{_about(sent)} {PLOT}")
    return Findings([crossing_sheet(sent)], [plot], crossing_claims(sent), leads=True)


def crossing_sheet(sent: Sequence[PointSent]) -> Sheet:
    """Return the shares of all points, and how long their jobs took, a block per numbering and job."""
    blocks: dict[str, list[Line]] = {}
    for each in sent:
        line = Line(_cells(each), each.outcome.verdict.word)
        blocks.setdefault(each.outcome.experiment.job.name, []).append(line)
    first = sent[0].point
    return Sheet(
        ("crosses ToRs [%]", "transport", "verdict"),
        ("least", "counted", "wire", "CCT [ms]", "mean", "/ link"),
        [Block(lines, title) for title, lines in blocks.items()],
        f"Shares of CP bytes that leave their ToR. {_about(sent)} Counted: by ranks. Wire: bytes over "
        "uplinks of ToRs over those of NICs, by the ports' counters. CCT: of the job's last message, and the "
        "mean of all, emulated or, where nothing was, predicted; the last over the time of the busiest "
        f"link's bytes. ToRs are oversubscribed {first.oversubscription:g}:1. {_cut_text(first.request)}",
    )


def crossing_claims(sent: Sequence[PointSent]) -> list[Claim]:
    """Return the claims about orchestrated jobs, ruled by emulations under each transport."""
    numberings = dict.fromkeys(each.point.numbering for each in sent)
    claims = []
    for transport in dict.fromkeys(each.transport for each in sent):
        mine = [each for each in sent if each.transport == transport and each.wire is not None]
        for numbering in numberings:
            of_numbering = [each for each in mine if each.point.numbering == numbering]
            claims += _numbering_claims(numbering, transport, _beside_unconstrained(of_numbering))
        inside = [each.outcome.cct_s / each.point.nic_s for each in mine if not each.point.share]
        text = "under ToRs nothing is congested: a job takes what its NICs need"
        claims.append(worst_claim(text, SOURCE, NEAR, inside, max, "{:.2f}x", transport))
    return claims


@styled
def drawn_crossings(sent: Sequence[PointSent]) -> Figure:
    """Return a panel per job size: what crosses by placement, counted and on the wire."""
    percents = list(dict.fromkeys(each.point.request.job_percent for each in sent))
    figure = canvas(max(4.2 * len(percents), 6.0), 3.6, "CP bytes that leave their ToR, by placement")
    for axes, percent in zip(figure.subplots(1, len(percents), squeeze=False)[0], percents, strict=True):
        _draw(axes, [each for each in sent if each.point.request.job_percent == percent])
        axes.set(title=f"job of {percent:g} % of the GPUs", ylabel="share [%]", ylim=(0, 112))
        horizontal_grid(axes)
    legend_below(figure, 5)
    return figure


PLOT = "Marks are what the ports counted on the wire, one a transport."


def _draw(axes: Axes, sent: Sequence[PointSent]) -> None:
    """Draw the bars of a job size, and what is on the wire on those that were emulated."""
    transports = list(dict.fromkeys(each.transport for each in sent))
    shares = {(each.point.placement, LEAST): each.point.least for each in sent}
    shares |= {(each.point.placement, each.point.numbering): each.point.share for each in sent}
    for at, (name, colour) in enumerate(COLOURS.items()):
        shown = [place for place, placement in enumerate(PLACEMENTS) if (placement, name) in shares]
        heights = [100 * shares[PLACEMENTS[place], name] for place in shown]
        if shown:
            bars = axes.bar(
                [place + 0.27 * (at - 1) for place in shown], heights, 0.25, color=colour, label=name
            )
            axes.bar_label(bars, fmt="{:.0f}", fontsize=7, padding=6)
    for index, transport in enumerate(transports):
        wires = [each for each in sent if each.transport == transport and each.wire is not None]
        x = [PLACEMENTS.index(each.point.placement) + _offset(each, index, len(transports)) for each in wires]
        y = [100 * (each.wire or 0.0) for each in wires]
        if wires:
            label = f"on the wire, {transport}"
            marker = MARKERS[index % len(MARKERS)]
            axes.plot(
                x, y, marker, color=INK, markerfacecolor="white", markersize=4.5, label=label, clip_on=False
            )
    axes.set_xticks(range(len(PLACEMENTS)), PLACEMENTS)


def _offset(each: PointSent, index: int, transports: int) -> float:
    """Return where on its bar a transport's mark stands."""
    bar = 0.27 * (list(COLOURS).index(each.point.numbering) - 1)
    return bar + 0.12 * (index - (transports - 1) / 2)


def _over(ours: float, other: float) -> float:
    """Return a share over another, infinite over none."""
    return ours / other if other else math.inf


def _numbering_claims(
    numbering: str, transport: str, pairs: Sequence[tuple[PointSent, PointSent]]
) -> list[Claim]:
    """Return the claims of orchestration over no constraints: bytes, and times of messages and jobs."""
    crossed = [_over(ours.wire or 0.0, other.wire or 0.0) for ours, other in pairs if ours.wire or other.wire]
    means = [other.mean_s / ours.mean_s for ours, other in pairs]
    lasts = [other.outcome.cct_s / ours.outcome.cct_s for ours, other in pairs]
    about = f"{numbering}, orchestrated over unconstrained:"
    return [
        worst_claim(f"{about} less crosses ToRs", SOURCE, LESS, crossed, max, "{:.2f}x", transport),
        worst_claim(f"{about} messages arrive sooner", SOURCE, MORE, means, min, "{:.2f}x", transport),
        worst_claim(f"{about} jobs end sooner", SOURCE, MORE, lasts, min, "{:.2f}x", transport),
    ]


def _beside_unconstrained(sent: Sequence[PointSent]) -> list[tuple[PointSent, PointSent]]:
    """Return the orchestrated points, each with that of the same job placed without constraints."""
    by_placement: Mapping[str, dict[float, PointSent]] = {
        placement: {
            each.point.request.job_percent: each for each in sent if each.point.placement == placement
        }
        for placement in (OPTIMISED, UNCONSTRAINED)
    }
    other = by_placement[UNCONSTRAINED]
    return [(each, other[size]) for size, each in by_placement[OPTIMISED].items() if size in other]


def _cells(each: PointSent) -> list[str]:
    point, outcome = each.point, each.outcome
    cct_s = outcome.cct_s
    return [
        point.placement,
        each.transport,
        outcome.verdict.word,
        f"{100 * point.least:.2f}",
        f"{100 * point.share:.2f}",
        "-" if each.wire is None else f"{100 * each.wire:.2f}",
        number(1e3 * cct_s, "{:.2f}"),
        number(1e3 * each.mean_s, "{:.2f}"),
        number(cct_s / point.busiest_s, "{:.2f}"),
    ]


def _about(sent: Sequence[PointSent]) -> str:
    """Return the cluster in words, and the meaning of the figures."""
    request = sent[0].point.request
    cluster, tree = request.cluster, request.cluster.tree
    figures = [LEAST_TEXT, BEST_TEXT if tree.tor_nodes == 2 else NOT_BEST_TEXT, RANKED_TEXT]
    return (
        f"{tree.nodes} nodes, {tree.tor_nodes} under a ToR (2 is fitted to the paper), "
        f"{len(request.faulty)} faulty, K = {cluster.hops}, TP-{cluster.tp_gpus}. {' '.join(figures)} "
        "Shuffled: the unconstrained groups in random order, paired as they come."
    )


def _cut_text(request: JobRequest) -> str:
    cluster = request.cluster
    cuts = cut_nodes(deployment_line(cluster.tree), request.faulty, cluster.hops)
    if not cuts:
        return ""
    return f"Groups end at {counted(len(cuts), 'node')} that would light both paths of a bundle."
