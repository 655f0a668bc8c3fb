"""Costs of InfiniteHBD's section 6.5: interconnects (table 6), and with idle and faulty GPUs (figure 17d).

Table 6 follows from the parts that the paper lists (its table 8), so what it says is arithmetic.
In the aggregate cost by faulty nodes the price of a GPU, and comparing interconnects at equal bandwidth,
are fitted to the paper, which states neither (`topologies.cost`): with them its two sentences about the
figure come out, so they confirm nothing.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from scenarios._infinitehbd.faults.cluster import TracedCluster
from testbed.report.claims import TIMES, Claim, arithmetic
from topologies.cost import (
    INFINITEHBD_TABLE,
    NVL_36,
    NVL_72,
    NVL_576,
    TPUV4,
    Bill,
    aggregate_usd_per_gpu,
    as_printed,
    infinitehbd_bill,
)

K2, K3 = "InfiniteHBD K=2", "InfiniteHBD K=3"
TABLE_6 = {
    "TPUv4": ("1567.20", "19.39", "5.22", "0.06"),
    "NVL-36": ("9563.20", "75.95", "10.63", "0.08"),
    "NVL-72": ("9563.20", "75.95", "10.63", "0.08"),
    "NVL-36x2": ("17924.00", "150.33", "19.92", "0.17"),
    "NVL-576": ("30417.60", "413.45", "33.80", "0.46"),
    K2: ("2626.80", "48.10", "3.28", "0.06"),
    K3: ("3740.60", "72.05", "4.68", "0.09"),
}
"""Printed values: $ and W per GPU, $ and W per GPU and GBps."""
SOURCE = "InfiniteHBD, table 6 and 6.5"


def computed_table_6() -> dict[str, tuple[str, ...]]:
    """Return table 6 as it follows from the parts of table 8, rounded as the paper rounds."""
    return {bill.name: table_6_row(bill) for bill in INFINITEHBD_TABLE}


def table_6_row(bill: Bill) -> tuple[str, ...]:
    """Return $ and W per GPU, $ and W per GPU and GBps, rounded as the paper rounds."""
    each = bill.usd_per_gpu, bill.power_w_per_gpu, bill.usd_per_gbyte_s, bill.power_w_per_gbyte_s
    return tuple(map(as_printed, each))


def table_6_claims() -> list[Claim]:
    """Return the claims about interconnects: the paper's parts alone decide them, no run does."""
    computed = computed_table_6()
    usd = {name: float(row[2]) for name, row in computed.items()}
    k2, k3 = usd.pop(K2), usd.pop(K3)
    watts = {bill.name: bill.power_w_per_gpu for bill in INFINITEHBD_TABLE}
    per_gbyte = {bill.name: bill.power_w_per_gbyte_s for bill in INFINITEHBD_TABLE}
    others = min(power for name, power in watts.items() if name != "TPUv4")
    k2_draws = f"per GPU; per GBps K=2 draws {per_gbyte[K2]:.3f} W and TPUv4 {per_gbyte['TPUv4']:.3f} W"
    return [
        _every_digit("costs", (0, 2), computed),
        _every_digit("watts", (1, 3), computed),
        _printed("K=2 costs 62.84 % of TPUv4", 62.84, 100 * k2 / usd["TPUv4"], "{:.2f} %"),
        _printed("K=2 costs 30.86 % of NVL-36 and NVL-72", 30.86, 100 * k2 / usd["NVL-72"], "{:.2f} %"),
        _printed("31 % of the cost of NVL-72", 31, 100 * k2 / usd["NVL-72"], "{:.0f} %", 0),
        _printed("3.24x cheaper than NVL-72", 3.24, usd["NVL-72"] / k2, TIMES),
        _printed("1.59x cheaper than TPUv4", 1.59, usd["TPUv4"] / k2, TIMES),
        arithmetic(
            "InfiniteHBD costs the least per GBps", SOURCE, (1.0, np.inf), min(usd.values()) / max(k2, k3),
            "the cheapest other over K=3",
        ),
        arithmetic(
            "TPUv4 draws the least power", SOURCE, (1.0, np.inf), others / watts["TPUv4"], k2_draws,
        ),
    ]  # fmt: skip


def bills(node_gpus: int) -> dict[str, Bill]:
    """Return the bill of each architecture; the paper has no parts of SiP-Ring."""
    return {
        K2: infinitehbd_bill(2, node_gpus), K3: infinitehbd_bill(3, node_gpus), "TPUv4 blocks": TPUV4,
        "NVL-36": NVL_36, "NVL-72": NVL_72, "NVL-576": NVL_576,
    }  # fmt: skip


def aggregate_costs(curves: pd.DataFrame, cluster: TracedCluster) -> pd.DataFrame:
    """Return cost per GPU [$], a column per architecture, by the share of faulty nodes.

    Parameters
    ----------
    curves
        Of a study: the waste of kind ``faulty nodes`` is taken, means over the seeds of its fault model.
    cluster
        What it studied; its main TP size is taken, and the architectures that can be made of it.
    """
    here = curves[(curves["kind"] == "faulty nodes") & (curves["tp_gpus"] == cluster.main_tp)]
    waste = here.pivot_table(index="x", columns="architecture", values="waste")
    made = {name: bill for name, bill in bills(cluster.node_gpus).items() if name in waste}
    return pd.DataFrame({name: _usd_per_gpu(bill, waste[name]) for name, bill in made.items()})


def cheaper_below(costs: pd.DataFrame) -> float:
    """Return from which share of faulty nodes on K = 2 costs more than K = 3; NaN if it never does."""
    dearer = costs.index[(costs[K2] > costs[K3]).to_numpy()]
    return float(dearer[0]) if len(dearer) else np.nan


def lead(costs: pd.DataFrame) -> "pd.Series[float]":
    """Return the cost of the cheapest other architecture over that of the cheaper InfiniteHBD."""
    others = costs.drop(columns=[K2, K3]).min(axis=1)
    least: pd.Series[float] = others / costs[[K2, K3]].min(axis=1)
    return least


def _every_digit(what: str, columns: tuple[int, int], computed: Mapping[str, tuple[str, ...]]) -> Claim:
    """Return the claim that the parts give every printed number of two columns."""
    cells = [(name, computed[name][at], row[at]) for name, row in TABLE_6.items() for at in columns]
    other = [f"{name} has {ours}, printed {printed}" for name, ours, printed in cells if ours != printed]
    reason = "; ".join(other) or "from the parts of table 8"
    pattern = f"{{:.0f}} of {len(cells)}"
    same = len(cells) - len(other)
    return arithmetic(f"table 6: {what}, every digit", SOURCE, (len(cells),) * 2, same, reason, pattern)


def _printed(text: str, printed: float, computed: float, pattern: str, places: int = 2) -> Claim:
    """Return the claim of a number that is printed with so many decimals."""
    reason = "from dollars per GBps as rounded"
    ours = float(as_printed(computed, places))
    return arithmetic(text, SOURCE, (printed, printed), ours, reason, pattern)


def _usd_per_gpu(bill: Bill, waste: "pd.Series[float]") -> "pd.Series[float]":
    shares = zip(waste.to_numpy().tolist(), waste.index.to_numpy().tolist(), strict=True)
    return pd.Series([aggregate_usd_per_gpu(bill, *each) for each in shares], index=waste.index)
