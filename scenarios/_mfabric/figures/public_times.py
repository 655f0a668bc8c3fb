"""Iteration times that mFabric's project publishes: its own simulations, normalised, 1,024 GPUs.

References
----------
mixnet-project.github.io, ``data/normalized_performance.csv``: what the project's page draws. They are those
of the paper's Figure 12, whose means over TopoOpt they give.
"""

from scenarios._mfabric.fabrics import FAT_TREE, MFABRIC, RAIL, TOPOOPT

GPUS = 1024
FABRICS = (FAT_TREE, MFABRIC, RAIL, TOPOOPT)
NORMALISED: dict[str, dict[float, tuple[float, float, float, float]]] = {
    "mixtral-8x22b": {
        100e9: (1.37435, 1.45417, 1.36057, 2.69652),
        200e9: (1.19402, 1.20061, 1.16273, 1.97602),
        400e9: (1.08170, 1.11384, 1.09573, 1.57520),
        800e9: (1.02415, 1.01263, 1.00000, 1.26695),
    },
    "mixtral-8x7b": {
        100e9: (1.20981, 1.24877, 1.18902, 2.27317),
        200e9: (1.07866, 1.09758, 1.05724, 1.62502),
        400e9: (1.03022, 1.03095, 1.01311, 1.26845),
        800e9: (1.00029, 1.00127, 1.00000, 1.14302),
    },
    "llama-moe": {
        100e9: (3.93236, 5.00986, 5.31384, 9.53062),
        200e9: (2.18810, 2.72655, 2.93218, 5.73703),
        400e9: (1.34617, 1.59919, 1.67535, 3.98051),
        800e9: (1.00000, 1.19167, 1.12414, 2.30337),
    },
    "qwen-moe": {
        100e9: (5.09419, 6.17374, 6.11042, 7.77487),
        200e9: (2.73005, 3.20494, 3.23776, 4.55257),
        400e9: (1.56319, 1.76437, 1.83023, 2.80189),
        800e9: (1.00000, 1.05346, 1.15476, 1.78870),
    },
}
"""By model and rate of a NIC [bit/s], in the order of `FABRICS`: over the shortest of the model."""


def public_times(model: str, rate_bps: float) -> dict[str, float]:
    """Return the normalised iteration time of each fabric."""
    return dict(zip(FABRICS, NORMALISED[model][rate_bps], strict=True))
