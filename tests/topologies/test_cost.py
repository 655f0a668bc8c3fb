"""Bills of parts: the papers' tables to their printed digits, and what a cluster costs with faults."""

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import cost
from topologies.cost import (
    GBYTE_BPS,
    HPN,
    INFINITEHBD_TABLE,
    NVL_36,
    NVL_36X2,
    NVL_72,
    NVL_576,
    TPUV4,
    Bill,
    BillItem,
    aggregate_usd_per_gpu,
    as_printed,
    infinitehbd_bill,
)
from topologies.errors import FabricError

K2, K3 = infinitehbd_bill(2), infinitehbd_bill(3)

TABLE_6 = """\
TPUv4            1567.20   19.39   5.22  0.06
NVL-36           9563.20   75.95  10.63  0.08
NVL-72           9563.20   75.95  10.63  0.08
NVL-36x2        17924.00  152.13  19.92  0.17
NVL-576         30417.60  413.45  33.80  0.46
InfiniteHBD K=2  2626.80   48.10   3.28  0.06
InfiniteHBD K=3  3740.60   72.05   4.68  0.09
Alibaba HPN      1042.49   90.75  20.85  1.82"""
"""As the paper prints it, but for NVL-36x2, whose parts draw 152.13 W where it prints 150.33; and HPN,
which it lists by parts only."""


def row(bill: Bill) -> list[str]:
    figures = bill.usd_per_gpu, bill.power_w_per_gpu, bill.usd_per_gbyte_s, bill.power_w_per_gbyte_s
    return [*bill.name.split(), *map(as_printed, figures)]


def test_table_has_every_printed_digit() -> None:
    assert [row(bill) for bill in (*INFINITEHBD_TABLE, HPN)] == [
        line.split() for line in TABLE_6.splitlines()
    ]


def test_printed_wattage_of_nvl_36x2_needs_cables_that_the_paper_does_not_list() -> None:
    switches, cables, (quantity, acc) = NVL_36X2.parts
    frugal = BillItem(acc.name, acc.price_usd, "what Table 6 implies", power_w=1.7)
    implied = Bill("NVL-36x2", 72, NVL_36X2.gpu_bps, (switches, cables, (quantity, frugal)))
    assert (acc.power_w, as_printed(implied.power_w_per_gpu)) == (2.5, "150.33")


def test_ratios_are_those_of_the_printed_figures() -> None:
    tpu, nvl, k2 = (float(as_printed(bill.usd_per_gbyte_s)) for bill in (TPUV4, NVL_72, K2))
    assert [as_printed(ratio) for ratio in (100 * k2 / tpu, 100 * k2 / nvl)] == ["62.84", "30.86"]
    assert [as_printed(ratio) for ratio in (nvl / k2, tpu / k2)] == ["3.24", "1.59"]


def test_more_bundles_follow_the_same_count() -> None:
    assert row(infinitehbd_bill(4))[2:4] == ["4854.40", "96.00"]
    assert infinitehbd_bill(2, gpus=8).usd == 12 * 199.60 + 16 * 606.80


@pytest.mark.parametrize(
    ("bill", "wasted", "usd"),
    [
        (K2, (0.0, 0.0090, 0.0317), (2627, 4279, 6314)),
        (K3, (0.0, 0.0057, 0.0014), (3741, 5300, 6580)),
        (TPUV4, (0.0, 0.290, 0.470), (4179, 13699, 20139)),
        (NVL_72, (1 / 9, 0.085, 0.128), (11612, 12281, 14885)),
        (NVL_36, (1 / 9, 0.121, 0.210), (11612, 13289, 17181)),
        (NVL_576, (0.0, 0.020, 0.024), (27038, 28998, 30510)),
    ],
    ids=lambda value: value.name if isinstance(value, Bill) else "",
)
def test_aggregate_cost_adds_lost_gpus_to_the_interconnect_at_equal_bandwidth(
    bill: Bill, wasted: tuple[float, ...], usd: tuple[int, ...]
) -> None:
    """Waste of TP-32 at 0, 5 and 10 % faults."""
    found = [
        aggregate_usd_per_gpu(bill, waste, fault) for waste, fault in zip(wasted, (0, 0.05, 0.1), strict=True)
    ]
    assert found == pytest.approx(usd, abs=1)


def test_two_bundles_cost_as_much_as_three_where_the_fitted_price_says() -> None:
    """The two differ by 3.98 points of waste at 12.1 % faults."""
    difference = aggregate_usd_per_gpu(K2, 0.0398, 0.121) - aggregate_usd_per_gpu(K3, 0.0, 0.121)
    assert abs(difference) < 0.01 * (K3.usd_per_gpu - K2.usd_per_gpu)


@given(st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 1e5))
def test_free_gpus_leave_the_interconnect_and_dear_ones_count_by_share(
    waste: float, fault: float, gpu_usd: float
) -> None:
    alone = aggregate_usd_per_gpu(TPUV4, waste, fault, gpu_usd=0, gpu_bps=TPUV4.gpu_bps)
    assert alone == pytest.approx(TPUV4.usd_per_gpu)
    lost = aggregate_usd_per_gpu(K2, waste, fault, gpu_usd=gpu_usd) - K2.usd_per_gpu
    assert lost == pytest.approx(gpu_usd * (waste + fault), abs=1e-6)


def priced(name: str, price_usd: float) -> BillItem:
    return BillItem(name, price_usd, "the paper's price list")


def test_bill_carries_what_other_papers_count() -> None:
    """MFabric's cluster of 1,024 GPUs at 400 Gbit/s, and TopoOpt's of 128 servers of 4 NICs at 100."""
    nic, module, eps = priced("NIC", 1499), priced("transceiver", 659), priced("EPS port", 1090)
    ocs, fibre = priced("OCS port", 520), priced("fibre", 150)
    tree = Bill("fat-tree", 1024, 400e9, ((1024, nic), (6144, module), (5120, eps), (3072, fibre)))
    mixed = Bill(
        "mFabric", 1024, 400e9, ((1024, nic), (2304, module), (1280, eps), (768, ocs), (1536, fibre))
    )
    assert (tree.usd, mixed.usd) == (11_625_472, 5_078_272)
    parts = [("NIC", 339), ("transceiver", 99), ("panel port", 100), ("1x2 switch", 25), ("fibre", 150)]
    ports = dict.fromkeys(("NIC", "transceiver", "1x2 switch", "fibre"), 512) | {"panel port": 1024}
    topoopt = Bill("TopoOpt", 128, 400e9, tuple((ports[name], priced(name, usd)) for name, usd in parts))
    assert topoopt.usd == 416_256
    assert math.isnan(topoopt.power_w_per_gpu), "its source states no power"


@pytest.mark.parametrize(
    ("value", "printed"), [(0.285, "0.29"), (2.5, "2.50"), (1e6, "1000000.00"), (-0.125, "-0.13")]
)
def test_printed_figures_round_a_five_up(value: float, printed: str) -> None:
    assert as_printed(value) == printed


def test_examples_print_what_they_say() -> None:
    assert doctest.testmod(cost).failed == 0


@pytest.mark.parametrize("ratios", [(-0.1, 0.0), (0.0, -0.1), (0.6, 0.5), (math.nan, 0.0)])
def test_ratios_of_no_cluster_are_refused(ratios: tuple[float, float]) -> None:
    with pytest.raises(FabricError, match="a cluster of which"):
        aggregate_usd_per_gpu(K2, *ratios)


def test_bills_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(FabricError, match="a bill of 0 GPUs"):
        Bill("none", 0, GBYTE_BPS, ())
    with pytest.raises(FabricError, match="of 0 bit/s"):
        Bill("dark", 1, 0.0, ())
    with pytest.raises(FabricError, match="a bill of -1 times NIC"):
        Bill("negative", 1, GBYTE_BPS, ((-1, priced("NIC", 1)),))
    for bundles in (1, 5):
        with pytest.raises(FabricError, match=f"{bundles} bundles on a node of 4 GPUs"):
            infinitehbd_bill(bundles)
