"""Report of `infinitehbd_alltoall`: outcomes beside their closed forms, and the paper's claims."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

from controller.circuits.round_circuits import exchange_paths
from scenarios._infinitehbd.exchange.all_to_all import BY_DISTANCE, EXCHANGE, ONE_WAY, TWO_WAY, AllToAllPoint
from scenarios._infinitehbd.exchange.sizes import Seen, crossover_plot, crossover_sheet
from testbed.experiment.audit_of import sound
from testbed.model.predict import predict
from testbed.report.claims import SHARE, Claim, Range, arithmetic, farthest_from_1, worst_claim
from testbed.report.page import Block, Findings, Line, Plot, Sheet, counted
from testbed.report.table import number
from testbed.trust.outcome import LEFT_OUT, Outcome
from topologies.khop_ring import KHopRing
from traffic.metrics import communication_s

SOURCE = "InfiniteHBD, 7 and appendix G"
NEAR: Range = (0.9, 1.1)
"""Within how much of its closed form an all-to-all is held to take that time."""
REACH = {4: 64, 8: 2048}
"""GPUs of the largest all-to-all, TP x EP, that the paper has for R GPUs a node."""
WHICH = "the paper does not say which ring it means, nor of which sizes"

Case = tuple[int, int]
"""Nodes, and bytes from every node to every node."""
Cases = Mapping[Case, Mapping[str, tuple[AllToAllPoint, Outcome]]]
"""By the case and how bytes go."""


def all_to_all_findings(outcomes: Sequence[Outcome], points: Sequence[AllToAllPoint]) -> Findings:
    """Return tables, a plot and claims of the outcomes of points."""
    of_experiment = {(point.scheme, point.experiment.job.name): point for point in points}
    cases: dict[Case, dict[str, tuple[AllToAllPoint, Outcome]]] = {}
    for outcome in outcomes:
        point = of_experiment[outcome.experiment.label, outcome.experiment.job.name]
        cases.setdefault((point.nodes, point.node_bytes), {})[point.scheme] = point, outcome
    sound = _sound(cases)
    return Findings([_sheet(cases), crossover_sheet()], [_plot(sound)], _claims(sound))


def _sound(cases: Cases) -> Cases:
    """Return the emulated cases that are neither void nor unsound: claims are ruled from these."""
    return {
        case: {
            scheme: (point, outcome)
            for scheme, (point, outcome) in of_case.items()
            if outcome.emulated and outcome.verdict.word not in LEFT_OUT
        }
        for case, of_case in cases.items()
    }


def _plot(cases: Cases) -> Plot:
    """Return rings over the exchange by size, closed forms and what was emulated."""
    seen = [
        Seen(*case, both_ways, ratio)
        for scheme, both_ways in ((ONE_WAY, False), (TWO_WAY, True))
        for case, ratio in _over_exchange(cases, scheme).items()
    ]
    return Plot("crossover", partial(crossover_plot, seen), CROSSOVER)


CROSSOVER = (
    "The time of a ring over that of the binary exchange, which is the faster above the red line. Lines are "
    "closed forms, without set-up times, dots are emulated; a diamond is the size from which on the exchange "
    "is faster."
)


def _over_exchange(cases: Cases, scheme: str) -> dict[Case, float]:
    """Return the emulated times of a ring over the exchange's, where both were emulated."""
    return {
        case: of_case[scheme][1].cct_s / of_case[EXCHANGE][1].cct_s
        for case, of_case in cases.items()
        if {scheme, EXCHANGE} <= of_case.keys()
    }


def _sheet(cases: Cases) -> Sheet:
    blocks = [
        Block(
            [Line(_cells(point, outcome, of_case)) for point, outcome in of_case.values()],
            f"{nodes} nodes, {node_bytes / 1e6:g} MB",
            f"at least {1e6 * next(iter(of_case.values()))[0].least_s:.1f} us over one bundle",
        )
        for (nodes, node_bytes), of_case in cases.items()
    ]
    return Sheet(
        ("all-to-all",),
        ("closed form", "predicted", "emulated", "/ exchange", "emulated"),
        blocks,
        "MB from every node to every node. Closed forms in us, without set-up times: the exchange takes "
        "log2 p rounds of p m / 2 bytes, and 70 us for each round that waits for its circuits; a ring "
        "m p (p - 1) / 2 one way, m p^2 / 8 both ways. Circuits of the first round are lit beforehand. "
        "Predicted (without what shapers lend) and emulated times are over the closed form; in the last two "
        "columns closed forms and emulated times are over the exchange's. What GPUs of a node forward to "
        "each other is not modelled.",
    )


def _cells(
    point: AllToAllPoint, outcome: Outcome, of_case: Mapping[str, tuple[AllToAllPoint, Outcome]]
) -> list[str]:
    exchange, exchanged = of_case[EXCHANGE]
    predicted_s = communication_s(sound(predict(point.experiment)).tables)
    emulated = outcome.emulated is not None
    word = f" {outcome.verdict.word}" if outcome.verdict.word in LEFT_OUT else ""
    return [
        f"{point.scheme}, {counted(point.waiting_rounds, 'wait')}" if point.waiting_rounds else point.scheme,
        f"{1e6 * point.closed_form_s:.1f}",
        f"{predicted_s / point.closed_form_s:.4f}",
        number(outcome.cct_s / point.closed_form_s if emulated else math.nan, "{:.3f}") + word,
        f"{point.closed_form_s / exchange.closed_form_s:.2f}",
        number(outcome.cct_s / exchanged.cct_s if emulated else math.nan, "{:.2f}"),
    ]


def _claims(cases: Cases) -> list[Claim]:
    """Return the paper's claims, ruled from emulations that are sound."""
    over_form = [
        outcome.cct_s / point.closed_form_s
        for of_case in cases.values()
        for scheme, (point, outcome) in of_case.items()
        if scheme in (EXCHANGE, BY_DISTANCE)
    ]
    return [
        worst_claim(
            "binary exchange takes log2 p rounds of p m / 2 bytes", SOURCE, NEAR, over_form,
            farthest_from_1, SHARE,
        ),
        _ring_claim("O(p log p), not O(p^2): faster than a ring one way", _over_exchange(cases, ONE_WAY)),
        _ring_claim("faster than a ring that uses both its bundles", _over_exchange(cases, TWO_WAY)),
        *(_reach_claim(gpus) for gpus in REACH),
    ]  # fmt: skip


def _ring_claim(text: str, ratios: Mapping[Case, float]) -> Claim:
    """Return a claim that is not ruled: which ring, and from which size, the paper leaves open."""
    return Claim(
        text, SOURCE, (1.0, math.inf), min(ratios.values(), default=math.nan),
        reason=": ".join(filter(None, [WHICH, _each(ratios)])),
    )  # fmt: skip


def _each(ratios: Mapping[Case, float]) -> str:
    return ", ".join(
        f"{nodes} nodes, {node_bytes / 1e6:g} MB {ratio:.2f}x"
        for (nodes, node_bytes), ratio in ratios.items()
    )


def _reach_claim(gpus: int) -> Claim:
    """Return the claim about the largest exchange all of whose rounds have links: K = R, 2^K nodes."""
    ring = KHopRing(1 << gpus, gpus, gpus, doubling=True)
    rounds = len(exchange_paths(ring))
    reached, expected = (1 << rounds) * gpus, (REACH[gpus], REACH[gpus])
    text = f"R = {gpus}: all-to-all between {REACH[gpus]:,} GPUs in all"
    return arithmetic(text, SOURCE, expected, reached, "by its wiring", "{:.0f}")
