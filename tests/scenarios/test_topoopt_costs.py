"""TopoOpt's costs: the specified examples to the dollar, its averages, and how they grow."""

import math

import pytest

from scenarios._topoopt.costs import (
    FIGURE_SERVERS,
    PRICES,
    cost_table,
    fat_tree_cost,
    interconnect_bill,
    mean_over_topoopt,
)
from scenarios._topoopt.fabrics import EXPANDER, FAT_TREE, IDEAL, OCS_RECONFIG, SIP_ML, TOPOOPT
from topologies.cost import as_printed
from topologies.errors import ScenarioError

G = 1e9


@pytest.mark.parametrize(
    ("kind", "degree", "rate_bps", "usd"),
    [
        (TOPOOPT, 4, 100 * G, 416_256),
        (OCS_RECONFIG, 4, 100 * G, 567_296),
        (FAT_TREE, 4, 100 * G, 258_304),
        (IDEAL, 4, 100 * G, 1_033_216),
        (TOPOOPT, 8, 200 * G, 1_004_032),
        (IDEAL, 8, 200 * G, 3_855_872),
        (EXPANDER, 4, 100 * G, 512 * (339 + 99) + 256 * 150),
    ],
)
def test_128_servers_cost_what_is_specified(kind: str, degree: int, rate_bps: float, usd: int) -> None:
    assert interconnect_bill(kind, 128, degree, rate_bps).usd == usd


@pytest.mark.parametrize("servers", FIGURE_SERVERS)
@pytest.mark.parametrize("degree", [4, 8])
def test_mean_ratios_are_the_paper_s_at_every_size(servers: int, degree: int) -> None:
    assert as_printed(mean_over_topoopt(OCS_RECONFIG, servers, degree)) == "1.33"
    assert as_printed(mean_over_topoopt(IDEAL, servers, degree)) == "3.16"


def test_4394_servers_are_a_full_tree_whose_ratio_is_the_mean() -> None:
    """The paper prints 3.0 there, of a rate that it does not state."""
    usd = {
        kind: [interconnect_bill(kind, 4394, 4, bps).usd for bps in (100 * G, 200 * G)]
        for kind in (IDEAL, TOPOOPT)
    }
    ratios = [ideal / topoopt for ideal, topoopt in zip(usd[IDEAL], usd[TOPOOPT], strict=True)]
    assert [as_printed(ratio) for ratio in ratios] == ["2.48", "3.84"]
    assert ratios[0] < 3.0 < ratios[1]
    counts = {part.name: count for count, part in interconnect_bill(IDEAL, 4394, 1, 100 * G).parts}
    assert counts["switch port"] == 5 * 4394


@pytest.mark.parametrize("degree", [4, 8])
def test_the_fat_tree_is_the_fastest_that_costs_no_more_than_topoopt(degree: int) -> None:
    own_usd = interconnect_bill(FAT_TREE, 128, degree, 100 * G).usd
    most_usd = interconnect_bill(TOPOOPT, 128, degree, 100 * G).usd
    assert own_usd <= most_usd
    faster = [rate_bps for rate_bps in PRICES if rate_bps > degree * 100 * G / 4]
    assert all(fat_tree_cost(128, rate_bps) > most_usd for rate_bps in faster)


def test_a_rate_without_a_price_is_that_of_several_planes() -> None:
    assert fat_tree_cost(128, 80 * G) == 2 * fat_tree_cost(128, 40 * G)
    assert fat_tree_cost(128, 400 * G) == 2 * fat_tree_cost(128, 200 * G)
    assert interconnect_bill(FAT_TREE, 128, 8, 10 * G).usd == 2 * fat_tree_cost(128, 10 * G)


def test_figure_10_has_a_row_for_each_point_and_none_for_what_has_no_price() -> None:
    table = cost_table()
    assert len(table) == len(PRICES) * len(FIGURE_SERVERS) * 6
    usd = table.pivot_table(
        index=["rate_gbps", "servers"], columns="interconnect", values="usd", dropna=False
    )
    assert usd[SIP_ML].isna().all()
    priced = usd.drop(columns=SIP_ML)
    assert (priced.loc[[100, 200]].idxmax(axis=1) == IDEAL).all()
    circuits = priced[[TOPOOPT, OCS_RECONFIG, EXPANDER]]
    assert (circuits.idxmin(axis=1) == EXPANDER).all()
    assert (priced.loc[(slice(None), 432), :].to_numpy() > priced.loc[(slice(None), 128), :].to_numpy()).all()
    assert (table.loc[table["interconnect"] == TOPOOPT, "over_topoopt"] == 1).all()
    here = table[(table["interconnect"] == IDEAL) & (table["rate_gbps"] == 100)]
    assert here["over_topoopt"].tolist() == pytest.approx([2.48216482] * len(FIGURE_SERVERS))


def test_a_bill_is_per_server_and_sums_to_its_parts() -> None:
    bill = interconnect_bill(TOPOOPT, 12, 4, 25 * G)
    assert {part.name: count for count, part in bill.parts} == {
        "NIC port": 48, "transceiver": 48, "1x2 switch": 48, "fibre": 48, "patch-panel port": 96,
    }  # fmt: skip
    assert bill.gpus == 12
    assert bill.gpu_bps == 100 * G
    assert math.isclose(bill.usd, 48 * (92.5 + 39 + 25 + 150 + 200))


@pytest.mark.parametrize(
    ("kind", "servers", "rate_bps", "why"),
    [
        (SIP_ML, 128, 100 * G, "SiP-ML is not computed"),
        ("butterfly", 128, 100 * G, "unknown interconnect 'butterfly'"),
        (TOPOOPT, 0, 100 * G, "0 servers"),
        (TOPOOPT, 128, 50 * G, "no prices for 50 Gbit/s"),
        (FAT_TREE, 128, 1 * G, "no prices for 1 Gbit/s"),
    ],
)
def test_what_has_no_cost_is_refused(kind: str, servers: int, rate_bps: float, why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        interconnect_bill(kind, servers, 4, rate_bps)
