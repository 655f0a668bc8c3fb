"""What `infinitehbd_alltoall` says of its outcomes: each beside its closed form, and the paper's claims."""

import math
from collections.abc import Callable, Mapping, Sequence

from controller.circuits.round_circuits import exchange_paths
from scenarios._infinitehbd.all_to_all import BY_DISTANCE, EXCHANGE, ONE_WAY, TWO_WAY, Point
from testbed.report.claims import SHARE, Claim, Range, ruling
from testbed.report.page import Block, Findings, Line, Sheet, counted
from testbed.report.table import number
from testbed.run.audit_of import sound
from testbed.run.outcome import Outcome
from testbed.run.predict import predict
from topologies.khop_ring import KHopRing
from traffic.metrics import communication_s

SOURCE = "InfiniteHBD, 7 and appendix G"
NEAR: Range = (0.9, 1.1)
"""Within how much of its closed form an all-to-all is held to take that time."""
REACH = {4: 64, 8: 2048}
"""GPUs of the largest all-to-all, TP x EP, that the paper has for R GPUs a node."""
WHICH = "the paper does not say which ring it means; its bundles used both ways are faster up to 16 nodes"

Case = tuple[int, int]
"""Nodes, and bytes from every node to every node."""


def all_to_all_findings(points: Sequence[Point]) -> Callable[[Sequence[Outcome]], Findings]:
    """Return what makes a table and claims of the outcomes of points."""
    of_experiment = {(point.scheme, point.experiment.job.name): point for point in points}

    def found(outcomes: Sequence[Outcome]) -> Findings:
        cases: dict[Case, dict[str, tuple[Point, Outcome]]] = {}
        for outcome in outcomes:
            point = of_experiment[outcome.experiment.label, outcome.experiment.job.name]
            cases.setdefault((point.nodes, point.node_bytes), {})[point.scheme] = point, outcome
        return Findings([_sheet(cases)], claims=_claims(cases))

    return found


def _sheet(cases: Mapping[Case, Mapping[str, tuple[Point, Outcome]]]) -> Sheet:
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


def _cells(point: Point, outcome: Outcome, of_case: Mapping[str, tuple[Point, Outcome]]) -> list[str]:
    exchange, exchanged = of_case[EXCHANGE]
    predicted_s = communication_s(sound(predict(point.experiment)).tables)
    emulated = outcome.emulated is not None
    return [
        f"{point.scheme}, {counted(point.waiting_rounds, 'wait')}" if point.waiting_rounds else point.scheme,
        f"{1e6 * point.closed_form_s:.1f}",
        f"{predicted_s / point.closed_form_s:.4f}",
        number(outcome.cct_s / point.closed_form_s if emulated else math.nan, "{:.3f}"),
        f"{point.closed_form_s / exchange.closed_form_s:.2f}",
        number(outcome.cct_s / exchanged.cct_s if emulated else math.nan, "{:.2f}"),
    ]


def _claims(cases: Mapping[Case, Mapping[str, tuple[Point, Outcome]]]) -> list[Claim]:
    over_form = [
        outcome.cct_s / point.closed_form_s
        for of_case in cases.values()
        for scheme, (point, outcome) in of_case.items()
        if scheme in (EXCHANGE, BY_DISTANCE)
    ]
    farthest = max(over_form, key=lambda ratio: abs(ratio - 1))
    one_way, two_way = (
        {case: of_case[ring][1].cct_s / of_case[EXCHANGE][1].cct_s for case, of_case in cases.items()}
        for ring in (ONE_WAY, TWO_WAY)
    )
    faster: Range = (1.0, math.inf)
    return [
        Claim(
            "binary exchange takes log2 p rounds of p m / 2 bytes", SOURCE, NEAR, farthest,
            ruling(farthest, NEAR), f"farthest of {len(over_form)} from its closed form", SHARE,
        ),
        Claim(
            "O(p log p), not O(p^2): faster than a ring one way", SOURCE, faster, min(one_way.values()),
            ruling(min(one_way.values()), faster), _each(one_way),
        ),
        Claim(
            "faster than a ring that uses both its bundles", SOURCE, faster, min(two_way.values()),
            "not comparable", f"{WHICH}: {_each(two_way)}",
        ),
        *(_reach_claim(gpus) for gpus in REACH),
    ]  # fmt: skip


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
    return Claim(text, SOURCE, expected, reached, ruling(reached, expected), "by its wiring", "{:.0f}")
