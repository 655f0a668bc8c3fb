"""Cost and power of interconnects: bills of parts, per GPU and per bandwidth of a GPU.

A bill carries any paper's parts: InfiniteHBD's, each with its watts, and those of papers that count
NICs, ports and fibres by price only. A part whose power no source states makes the power of its bill NaN.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from topologies.errors import FabricError

GBYTE_BPS = 8e9
"""One gigabyte per second, the papers' GBps [bit/s]."""
GPU_USD = 28_000.0
"""The price of a GPU in `aggregate_usd_per_gpu`: fitted to InfiniteHBD's figure 17d, which does not state it.

With it K = 2 and K = 3 cost the same where 12.1 % of the nodes are faulty, as the paper says."""
HBD_BPS = 800 * GBYTE_BPS
"""InfiniteHBD's bandwidth of a GPU [bit/s]; interconnects are compared as if each carried that."""


@dataclass(frozen=True)
class BillItem:
    """An item of a bill: a component of an interconnect."""

    name: str
    price_usd: float
    """Price of one."""
    source: str
    """Who states the price."""
    power_w: float = math.nan
    """Power that one draws; NaN if the source does not say."""
    rate_bps: float = math.nan
    """Rate of one [bit/s]; NaN if the source does not say."""


@dataclass(frozen=True)
class Bill:
    """The parts that join a number of GPUs.

    Raises
    ------
    FabricError
        If there is no GPU or no bandwidth, or a quantity is negative.
    """

    name: str
    """The architecture."""
    gpus: int
    """How many GPUs the parts join."""
    gpu_bps: float
    """Bandwidth of a GPU over them [bit/s], one way, as the source counts it."""
    parts: tuple[tuple[int, BillItem], ...]
    """How many of each part."""

    def __post_init__(self) -> None:
        """Refuse a bill that cannot be divided among GPUs."""
        if self.gpus < 1 or not 0 < self.gpu_bps < math.inf:
            raise FabricError(
                f"a bill of {self.gpus} GPUs of {self.gpu_bps:g} bit/s", "give it GPUs with a bandwidth"
            )
        for quantity, part in self.parts:
            if quantity < 0:
                raise FabricError(f"a bill of {quantity} times {part.name}", "give it none or more")

    @property
    def usd(self) -> float:
        """What all parts cost."""
        return math.fsum(quantity * part.price_usd for quantity, part in self.parts)

    @property
    def power_w(self) -> float:
        """What all parts draw; NaN if a source does not say."""
        return math.fsum(quantity * part.power_w for quantity, part in self.parts)

    @property
    def usd_per_gpu(self) -> float:
        """What the parts of a GPU cost."""
        return self.usd / self.gpus

    @property
    def power_w_per_gpu(self) -> float:
        """What the parts of a GPU draw."""
        return self.power_w / self.gpus

    @property
    def usd_per_gbyte_s(self) -> float:
        """What a GPU's parts cost for each GB/s of its bandwidth."""
        return self.usd_per_gpu * GBYTE_BPS / self.gpu_bps

    @property
    def power_w_per_gbyte_s(self) -> float:
        """What a GPU's parts draw for each GB/s of its bandwidth."""
        return self.power_w_per_gpu * GBYTE_BPS / self.gpu_bps


def aggregate_usd_per_gpu(
    bill: Bill,
    waste_ratio: float,
    fault_ratio: float,
    *,
    gpu_usd: float = GPU_USD,
    gpu_bps: float = HBD_BPS,
) -> float:
    """Return what a cluster costs beside its working GPUs, for each GPU: idle and faulty GPUs, interconnect.

    Parameters
    ----------
    bill
        The interconnect.
    waste_ratio
        Healthy GPUs that no TP group uses, over all GPUs.
    fault_ratio
        Faulty GPUs, over all GPUs.
    gpu_usd
        Price of a GPU.
    gpu_bps
        Bandwidth of a GPU [bit/s] at which interconnects are compared: costs are taken in proportion.

    Raises
    ------
    FabricError
        If the ratios are not of parts of one cluster.

    Notes
    -----
    The paper states neither the price of a GPU nor what it normalised by. At equal bandwidth
    InfiniteHBD is the cheapest throughout, as it says; by each architecture's own bandwidth TPUv4 would be
    cheaper without faults.

    References
    ----------
    InfiniteHBD, section 6.5 and figure 17d.
    """
    if not (waste_ratio >= 0 and fault_ratio >= 0 and waste_ratio + fault_ratio <= 1 + 1e-9):
        raise FabricError(
            f"a cluster of which {waste_ratio:g} is wasted and {fault_ratio:g} faulty",
            "give shares of all GPUs, together at most 1",
        )
    return gpu_usd * (waste_ratio + fault_ratio) + bill.usd_per_gbyte_s * gpu_bps / GBYTE_BPS


def pareto_front(points: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Return the Pareto-optimal points, in order of their first number: no other point dominates them.

    Parameters
    ----------
    points
        By name two numbers of which less is better: cost and iteration time.

    Examples
    --------
    >>> pareto_front({"dear": (3, 1), "cheap": (1, 3), "slow": (3, 2), "both": (2, 2)})
    ('cheap', 'both', 'dear')
    """
    front = [
        name
        for name, (cost, time) in points.items()
        if not any(a <= cost and b <= time and (a, b) != (cost, time) for a, b in points.values())
    ]
    return tuple(sorted(front, key=points.__getitem__))


def as_printed(value: float, places: int = 2) -> str:
    """Return a value as papers print it: a 5 is rounded up.

    Examples
    --------
    >>> as_printed(10953 / 72), f"{10953 / 72:.2f}"
    ('152.13', '152.12')
    """
    # Twelve digits first: 0.285 is 0.28499999999999998 in binary.
    return str(Decimal(f"{value:.12g}").quantize(Decimal(10) ** -places, rounding=ROUND_HALF_UP))


def _part(name: str, price_usd: float, rate_gbyte_s: float, power_w: float, source: str) -> BillItem:
    return BillItem(name, price_usd, f"InfiniteHBD, Table 8: {source}", power_w, rate_gbyte_s * GBYTE_BPS)


# Retail prices are less 60 %, as of a large order (section 6.5).
OCS = _part("OCS", 80_000, 6400, 108, "Palomar; SemiAnalysis, 2023")
NVLINK_SWITCH = _part("NVLink switch", 28_000, 3600, 275, "SemiAnalysis, 2024")
EPS = _part("packet switch", 14_960, 6400, 3145, "NADDOD N9500-128QC")
OCSTRX = _part("OCSTrx", 600, 100, 12, "its own module")
DAC_25 = _part("DAC cable", 35.60, 25, 0.1, "FS, 200G QSFP56, 1.5 m")
DAC_50 = _part("DAC cable", 63.60, 50, 0.1, "FS, 400G OSFP, 1.5 m")
DAC_200 = _part("DAC cable", 199.60, 200, 0.1, "FS, 1.6T OSFP, 1 m")
ACC_200 = _part("ACC cable", 320, 200, 2.5, "1.6T; SemiAnalysis, 2024")
MODULE_50 = _part("optical module", 360, 50, 12, "FiberMall OSFP-400G-FR4")
MODULE_200 = _part("optical module", 850, 200, 25, "1.6T; OSFP MSA and SemiAnalysis")
FIBRE_50, FIBRE_100, FIBRE_200 = (
    _part("fibre", 6.80, rate_gbyte_s, 0, "FS, 50 m duplex single mode") for rate_gbyte_s in (50, 100, 200)
)

TPUV4 = Bill("TPUv4", 4096, 300 * GBYTE_BPS, ((48, OCS), (5120, DAC_50), (6144, MODULE_50), (6144, FIBRE_50)))
NVL_36 = Bill("NVL-36", 36, 900 * GBYTE_BPS, ((9, NVLINK_SWITCH), (2592, DAC_25)))
NVL_72 = Bill("NVL-72", 72, 900 * GBYTE_BPS, ((18, NVLINK_SWITCH), (5184, DAC_25)))
NVL_36X2 = Bill("NVL-36x2", 72, 900 * GBYTE_BPS, ((36, NVLINK_SWITCH), (6480, DAC_25), (162, ACC_200)))
"""Its parts draw 152.13 W per GPU. The paper's Table 6 prints 150.33, which would need ACC cables of
1.7 W where its Table 8 has 2.5: the two tables contradict each other, and the parts are kept."""
NVL_576 = Bill(
    "NVL-576",
    576,
    900 * GBYTE_BPS,
    ((432, NVLINK_SWITCH), (41_472, DAC_25), (4608, MODULE_200), (4608, FIBRE_200)),
)
HPN = Bill(
    "Alibaba HPN",
    16_320,
    50 * GBYTE_BPS,
    ((360, EPS), (32_640, DAC_25), (28_800, MODULE_50), (14_400, FIBRE_50)),
)


def infinitehbd_bill(bundles: int, gpus: int = 4) -> Bill:
    """Return the parts of one node of InfiniteHBD.

    Parameters
    ----------
    bundles
        K, bundles of 8 OCSTrx modules that leave the node, each with a fibre.
    gpus
        R, GPUs of the node; the R - K bundles that stay inside are two DAC cables each.

    Raises
    ------
    FabricError
        If the node cannot have that many bundles.

    References
    ----------
    InfiniteHBD, section 4.2 and Table 8, which has R = 4 and K = 2 and 3; others follow the same count.
    """
    if not 2 <= bundles <= gpus:
        raise FabricError(f"{bundles} bundles on a node of {gpus} GPUs", "give it 2 up to one per GPU")
    modules = 8 * bundles
    return Bill(
        f"InfiniteHBD K={bundles}",
        gpus,
        HBD_BPS,
        ((2 * (gpus - bundles), DAC_200), (modules, OCSTRX), (modules, FIBRE_100)),
    )


INFINITEHBD_TABLE = (TPUV4, NVL_36, NVL_72, NVL_36X2, NVL_576, infinitehbd_bill(2), infinitehbd_bill(3))
"""The architectures of InfiniteHBD's Table 6, in its order."""
