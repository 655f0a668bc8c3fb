"""Aggregate cost of InfiniteHBD's figure 17d: idle and faulty GPUs, and the interconnect, by faulty nodes.

The price of a GPU, and comparing interconnects at equal bandwidth, are fitted to the paper, which states
neither (`topologies.cost`): with them its two sentences about the figure come out, so they confirm nothing.
"""

import numpy as np
import pandas as pd

from topologies.cost import NVL_36, NVL_72, NVL_576, TPUV4, Bill, aggregate_usd_per_gpu, infinitehbd_bill

K2, K3 = "InfiniteHBD K=2", "InfiniteHBD K=3"
BILLS = {
    K2: infinitehbd_bill(2), K3: infinitehbd_bill(3), "TPUv4 blocks": TPUV4,
    "NVL-36": NVL_36, "NVL-72": NVL_72, "NVL-576": NVL_576,
}  # fmt: skip
"""What each architecture is made of; the paper has no parts of SiP-Ring."""


def aggregate_costs(curves: pd.DataFrame, tp_gpus: int) -> pd.DataFrame:
    """Return cost per GPU [$], a column per architecture, by the share of faulty nodes.

    Parameters
    ----------
    curves
        Of a study: the waste of kind ``faulty nodes`` is taken, means over the seeds of its fault model.
    tp_gpus
        GPUs of a TP group.
    """
    here = curves[(curves["kind"] == "faulty nodes") & (curves["tp_gpus"] == tp_gpus)]
    waste = here.pivot_table(index="x", columns="architecture", values="waste")
    return pd.DataFrame({name: _usd_per_gpu(bill, waste[name]) for name, bill in BILLS.items()})


def cheaper_below(costs: pd.DataFrame) -> float:
    """Return from which share of faulty nodes on K = 2 costs more than K = 3; NaN if it never does."""
    dearer = costs.index[(costs[K2] > costs[K3]).to_numpy()]
    return float(dearer[0]) if len(dearer) else np.nan


def lead(costs: pd.DataFrame) -> "pd.Series[float]":
    """Return what the cheapest other architecture costs over the cheaper InfiniteHBD."""
    others = costs.drop(columns=[K2, K3]).min(axis=1)
    least: pd.Series[float] = others / costs[[K2, K3]].min(axis=1)
    return least


def _usd_per_gpu(bill: Bill, waste: "pd.Series[float]") -> "pd.Series[float]":
    shares = zip(waste.to_numpy().tolist(), waste.index.to_numpy().tolist(), strict=True)
    return pd.Series([aggregate_usd_per_gpu(bill, *each) for each in shares], index=waste.index)
