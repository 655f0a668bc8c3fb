"""The figures of TopoOpt's simulations: which points each needs (section 5)."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from scenarios._topoopt.fabrics import EXPANDER, FAT_TREE, IDEAL, OCS_RECONFIG, SIP_ML, TOPOOPT
from scenarios._topoopt.scale.points import ScalePoint

MODELS = ("candle", "vgg16", "bert", "dlrm", "ncf", "resnet50")
"""In the order of Figure 11's panels."""
SWEPT = (TOPOOPT, IDEAL, FAT_TREE, EXPANDER)
"""Fabrics that are predicted at each rate."""
FOLLOWED = {OCS_RECONFIG: ("candle", "vgg16", "bert", "dlrm", "resnet50"),
            SIP_ML: ("candle", "vgg16", "bert", "resnet50")}  # fmt: skip
"""The models of fabrics whose circuits follow demand. Where tables send to all servers circuits change for
thousands of pairs: SiP-ML, which gives all circuits of a server to one other, and NCF would take long."""
FOLLOWED_BPS = 100e9
"""Where circuits follow demand: one rate, as a point takes minutes at the slowest."""
ALL_TO_ALL_BATCHES = (64, 128, 256, 512, 1024, 2048)
DELAYS_S = (1e-6, 1e-3, 10e-3)
DEGREES = (2, 4, 6, 8, 10)
FULL_BPS = 100e9


def figure_11(rates_bps: Sequence[float], degree: int = 4) -> list[ScalePoint]:
    """Return all models on all fabrics; Figure 27 has 8 interfaces, and no circuits that follow."""
    swept = [
        ScalePoint(model, fabric, degree, rate_bps)
        for model, rate_bps, fabric in product(MODELS, rates_bps, SWEPT)
    ]
    following = [
        ScalePoint(model, fabric, degree, FOLLOWED_BPS)
        for fabric, models in FOLLOWED.items()
        for model in models
    ]
    return swept + (following if degree == 4 else [])


def figure_12(_rates_bps: Sequence[float]) -> list[ScalePoint]:
    """Return DLRM with more and more all-to-all, of the start strategy; Figures 13 to 15 are of it too."""
    return [
        ScalePoint("dlrm", fabric, degree, FULL_BPS, section="5.4", batch=batch)
        for degree, batch, fabric in product((4, 8), ALL_TO_ALL_BATCHES, (TOPOOPT, IDEAL, FAT_TREE))
    ]


def figure_17(_rates_bps: Sequence[float]) -> list[ScalePoint]:
    """Return OCS-reconfig with and without forwarding, beside TopoOpt; of DLRM at 10 ms with forwarding.

    Without it each of DLRM's pairs of servers waits for a circuit: a prediction takes more than ten minutes.
    """
    following = [
        ScalePoint("bert", OCS_RECONFIG, 8, FULL_BPS, delay_s=delay_s, forwards=forwards)
        for delay_s, forwards in product(DELAYS_S, (True, False))
    ]
    following.append(ScalePoint("dlrm", OCS_RECONFIG, 8, FULL_BPS, delay_s=max(DELAYS_S)))
    return following + [ScalePoint(model, TOPOOPT, 8, FULL_BPS) for model in ("dlrm", "bert")]


def figure_28(_rates_bps: Sequence[float]) -> list[ScalePoint]:
    """Return TopoOpt with more and more interfaces."""
    return [
        ScalePoint(model, TOPOOPT, degree, rate_bps)
        for model, rate_bps, degree in product(MODELS, (40e9, 100e9), DEGREES)
    ]


FIGURES: Mapping[str, Callable[[Sequence[float]], list[ScalePoint]]] = {
    "11": figure_11,
    "12": figure_12,
    "17": figure_17,
    "27": lambda rates_bps: figure_11(rates_bps, 8),
    "28": figure_28,
}
"""By number, the points that a figure needs; Figures 13, 14 and 15 read those of 12, and 10 needs none."""


def points_of(figures: Sequence[str], rates_bps: Sequence[float]) -> list[ScalePoint]:
    """Return the points that figures need, each once.

    Points of one network follow each other, so that a process searches its strategies once; those whose
    circuits follow demand take longest and come last.
    """
    points = [point for figure in figures if figure in FIGURES for point in FIGURES[figure](rates_bps)]
    return sorted(
        dict.fromkeys(points),
        key=lambda each: (each.fabric in (OCS_RECONFIG, SIP_ML), each.model, each.degree, each.rate_bps),
    )
