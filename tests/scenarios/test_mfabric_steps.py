"""mFabric's training steps at full size: what is predicted, and what tables and claims make of it."""

import doctest
import math
from dataclasses import replace
from types import ModuleType

import pandas as pd
import pytest
from rich.console import Console
from rich.progress import Progress

from scenarios._mfabric import delays as delay_section
from scenarios._mfabric import iteration_times as time_section
from scenarios._mfabric import steps
from scenarios._mfabric.alphas import ALPHAS, alpha_points, alphas
from scenarios._mfabric.batches import batch_points, batches
from scenarios._mfabric.delays import delay_points, delays
from scenarios._mfabric.fabrics import FAT_TREE, MFABRIC, OVERSUBSCRIBED, RAIL, RINGS, TOPOOPT
from scenarios._mfabric.iteration_times import (
    iteration_points,
    iteration_times,
    of_all_rates,
    over,
    time_table,
)
from scenarios._mfabric.section import Section
from scenarios._mfabric.steps import (
    Iteration,
    Iterations,
    Setting,
    StepPoint,
    iterations,
    step_fabric,
)
from scenarios._output import sheet_table
from testbed.report.claims import Claim
from tests.results_page import SCALE, documented
from topologies.errors import ScenarioError
from traffic.models.moe import MODELS

RATES_BPS = (100e9, 200e9, 400e9, 800e9)
SETTING = Setting(RATES_BPS)
MODEL = "mixtral-8x22b"
TIMES_OVER = {FAT_TREE: 1.0, OVERSUBSCRIBED: 3.2, MFABRIC: 1.2, TOPOOPT: 2.0, RINGS: 4.4}
"""How much longer the network takes than a fat-tree."""


def made_up(point: StepPoint) -> Iteration:
    """Return a second of compute and a fat-tree's 0.4 s of network at 100 Gbit/s, as in the public times."""
    network_s = 0.4 * 100e9 / point.rate_bps * TIMES_OVER[point.fabric] * 2 / (8 - point.packet_nics)
    waiting_s = point.delay_s * 2 * (point.fabric == MFABRIC and point.first == "block")
    slow_s = 0.05 * (point.first == "reuse") + max(point.delay_s - 0.5, 0)
    return Iteration(1 + 3 * network_s + waiting_s + slow_s, 7 * (point.fabric == MFABRIC), waiting_s)


def made_up_iterations(points: list[StepPoint]) -> Iterations:
    return {point: made_up(point) for point in points}


@pytest.fixture(scope="module")
def sections() -> dict[str, Section]:
    """Return all sections by their names, of made-up times."""
    found = [
        iteration_times(model, SETTING, made_up_iterations(iteration_points(model, SETTING)))
        for model in (MODEL, "deepseek-r1")
    ]
    found += [
        batches(SETTING, made_up_iterations(batch_points(SETTING))),
        alphas(SETTING, made_up_iterations(alpha_points(SETTING))),
        delays(SETTING, made_up_iterations(delay_points(SETTING))),
    ]
    return {section.name: section for section in found}


def by_text(section: Section) -> dict[str, Claim]:
    return {claim.text: claim for claim in section.findings.claims}


def test_tables_have_the_columns_that_are_documented(sections: dict[str, Section]) -> None:
    for name, table in [pair for each in sections.values() for pair in each.tables.items()]:
        file = "iteration_times_MODEL" if name.startswith("iteration_times_") else name
        assert list(table.columns) == documented(SCALE, f"{file}.csv"), name


def test_fabrics_have_the_nics_and_uplinks_of_their_names() -> None:
    for fabric in (FAT_TREE, OVERSUBSCRIBED, MFABRIC):
        built = step_fabric(StepPoint(MODEL, fabric, 400e9))
        assert len(built.servers) == 128
        assert len(built.nics) == 1024
        assert {built.nic_rate_bps(nic) for nic in built.nics} == {400e9}
    blocked = step_fabric(StepPoint(MODEL, OVERSUBSCRIBED, 300e9))
    uplinks = [link for link in blocked.links if not link.a.node.startswith("h")]
    assert len(uplinks) == 128
    assert {link.rate_bps for link in uplinks} == {8 * 300e9 / 3}
    with pytest.raises(ScenarioError, match="no training step"):
        step_fabric(StepPoint(MODEL, "ring", 400e9))


def test_packet_nics_of_any_number_have_one_rate_in_all() -> None:
    points = alpha_points(SETTING)
    assert [8 - point.packet_nics for point in points] == list(ALPHAS)
    assert {point.packet_nics * (point.packet_bps or point.rate_bps) for point in points} == {200e9}
    # The usual one is that of Figure 12, so that it is predicted once.
    assert StepPoint(MODEL, MFABRIC, 100e9) in points


def test_delays_include_the_usual_one() -> None:
    assert StepPoint(MODEL, MFABRIC, 400e9) in delay_points(SETTING)


def test_times_stand_beside_the_public_ones() -> None:
    table = time_table(MODEL, RATES_BPS, made_up_iterations(iteration_points(MODEL, SETTING)))
    assert table["normalised"].min() == 1
    assert table[table["fabric"] == RAIL]["iteration_s"].to_list() == (
        table[table["fabric"] == FAT_TREE]["iteration_s"].to_list()
    )
    assert table.loc[0, "public"] == 1.37435
    assert table["public"].isna().sum() == 3 * 4  # of 3:1, of reuse and of rings
    assert over(table, OVERSUBSCRIBED, FAT_TREE)[100] == pytest.approx(2.28 / 1.4)
    assert over(table, TOPOOPT, MFABRIC)[100] == pytest.approx(1.8 / 1.53)


def test_the_networks_share_is_found_from_two_rates(sections: dict[str, Section]) -> None:
    (sheet,) = sections[f"iteration_times_{MODEL}"].findings.sheets
    lines = {line.cells[0]: line.cells[1:] for line in sheet.blocks[3].lines}
    assert [cell.split()[0] for cell in lines["network's share"]] == ["28.6%", "16.7%", "9.1%", "4.8%"]
    # The public times have nearly the same.
    assert lines["network's share"][0] == "28.6% (29.1%)"
    assert lines["mFabric / fat-tree"][0].split()[0] == f"{1.53 / 1.4:.3f}"
    assert lines["mFabric* / fat-tree"][0] == f"{1.48 / 1.4:.3f}"


def test_claims_are_ruled_by_the_times(sections: dict[str, Section]) -> None:
    claims = by_text(sections[f"iteration_times_{MODEL}"])
    measured = {text: (claim.verdict, round(claim.measured, 3)) for text, claim in claims.items()}
    assert measured["within 10 % of the fat-tree"] == ("holds", 1.093)
    assert measured["up to 1.6x over 3:1"] == ("holds", 1.49)
    assert measured["1.5x over TopoOpt on average"][0] == "does not hold"
    assert measured["1.5x over TopoOpt, rings on average"] == ("holds", 1.398)
    assert measured["faster than TopoOpt, 100 to 400G"] == ("holds", 1.026)


def test_more_circuits_and_longer_delays_are_ruled(sections: dict[str, Section]) -> None:
    alpha, delay = sections["alpha"], sections["delay"]
    assert {claim.verdict for claim in alpha.findings.claims} == {"holds"}
    claims = by_text(delay)
    assert claims["25 ms: not significantly longer than 1 us (10 %)"].measured == pytest.approx(1.05, 0.01)
    assert claims["above 1 s: clearly longer than at 25 ms"].verdict == "holds"


def test_tables_fit_a_terminal_and_plots_are_drawn(sections: dict[str, Section]) -> None:
    for each in sections.values():
        for sheet in each.findings.sheets:
            console = Console(width=80, record=True)
            with console.capture() as captured:
                console.print(sheet_table(sheet))
            shown = captured.get().splitlines()
            for cells in (line.cells for block in sheet.blocks for line in block.lines):
                assert any(line.split() == " ".join(cells).split() for line in shown), cells
        assert all(plot.draw().axes for plot in each.findings.plots)


def test_an_average_is_of_all_rates_or_of_none() -> None:
    assert of_all_rates(pd.Series([2.0, 1.5, 1.0, 1.5])) == 1.5
    assert math.isnan(of_all_rates(pd.Series([2.0])))


def test_a_wait_for_circuits_is_what_a_fast_ocs_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STUDIED", {"toy": replace(MODELS[MODEL], layers=4, pp=2)})
    points = [StepPoint("toy", MFABRIC, 400e9, delay_s=delay_s, servers=16) for delay_s in (0.025, 0.0)]
    points += [StepPoint("toy", fabric, 400e9, servers=16) for fabric in (FAT_TREE, OVERSUBSCRIBED, TOPOOPT)]
    with Progress(disable=True) as progress:
        found = list(iterations(points, SETTING, progress).values())
    slow, fast, fat_tree, blocked, panel = found
    assert fat_tree.seconds < fast.seconds < slow.seconds
    assert fat_tree.seconds < blocked.seconds
    assert fast.seconds < panel.seconds
    assert panel.reconfigurations == 0
    assert slow.reconfigurations > 0 == fat_tree.reconfigurations
    assert slow.seconds - fast.seconds == pytest.approx(slow.waiting_s, rel=0.1)
    # Dispatches wait in three turns of two layers each; backward, attention hides most of the delay.
    assert 3 * 2 * 0.025 <= slow.waiting_s < 2 * 3 * 2 * 0.025


@pytest.mark.parametrize("module", [delay_section, time_section])
def test_examples_are_right(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert not found.failed
