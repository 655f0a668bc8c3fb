"""mFabric's training steps at full size: what is predicted, and what tables and claims make of it."""

import doctest
import math
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from rich.console import Console

from scenarios._mfabric.fabrics import DELEGATED, FAT_TREE, MFABRIC, OVERSUBSCRIBED, RAIL, RINGS, TOPOOPT
from scenarios._mfabric.figures import alphas, batches, delays
from scenarios._mfabric.figures import iteration_times as time_section
from scenarios._mfabric.figures.iteration_times import (
    ALL_WAITS,
    NO_WAITS,
    fit_table,
    iteration_points,
    iteration_times,
    of_all_rates,
    over,
    path_flop,
    time_table,
)
from scenarios._mfabric.section import Section
from scenarios._mfabric.step import own_nics
from scenarios._mfabric.step.own_nics import few_messages
from scenarios._mfabric.step.parts import BACKWARD, COMPUTE, FORWARD, PARTS, TRANSFER, iteration_parts
from scenarios._mfabric.step.points import (
    Iteration,
    StepPoint,
    StepSetup,
    iteration,
    step_experiment,
    step_fabric,
)
from scenarios._mfabric.step.study import Iterations, as_simulated_s, at_once, waits_s
from testbed.model.predict import predict
from testbed.report.claims import Claim
from testbed.study.output import sheet_table
from tests.results_page import SCALE, documented
from topologies.errors import ScenarioError
from traffic.collectives.all_to_all import AllToAll
from traffic.job import Collective, Compute
from traffic.models.moe import MODELS

RATES_BPS = (100e9, 200e9, 400e9, 800e9)
SETUP = StepSetup(RATES_BPS)
MODEL = "mixtral-8x22b"
TIMES_OVER = {FAT_TREE: 1.0, DELEGATED: 0.8, OVERSUBSCRIBED: 3.2, MFABRIC: 1.2, TOPOOPT: 2.0, RINGS: 4.4}
"""How much longer the network takes than a fat-tree."""


def made_up(point: StepPoint) -> Iteration:
    """Return a second of compute and a fat-tree's 0.4 s of network at 100 Gbit/s, as in the public times.

    An all-to-all waits for the delay once in forwards and, unless it is hidden, once in backwards.
    """
    network_s = 0.4 * 100e9 / point.rate_bps * TIMES_OVER[point.fabric] * 2 / (8 - point.packet_nics)
    wait_s = point.delay_s * (point.fabric == MFABRIC and point.first == "block")
    slow_s = 0.05 * (point.first == "reuse") + max(point.delay_s - 0.5, 0)
    parts_s = dict.fromkeys(PARTS, 0.0) | {COMPUTE: 1.0, FORWARD: 3 * wait_s, BACKWARD: wait_s}
    seconds = 1 + 3 * network_s + 2 * wait_s + slow_s
    return Iteration(seconds, 7 * (point.fabric == MFABRIC), parts_s | {TRANSFER: 3 * network_s})


def made_up_iterations(points: Sequence[StepPoint]) -> Iterations:
    return {point: made_up(point) for point in points}


@pytest.fixture(scope="module")
def sections() -> dict[str, Section]:
    """Return all sections by their names, of made-up times."""
    found = [
        iteration_times(model, SETUP, made_up_iterations(iteration_points(model, SETUP)))
        for model in (MODEL, "deepseek-r1")
    ]
    found += [
        *(
            study.section(SETUP, made_up_iterations(study.points(SETUP)))
            for study in (batches.STUDY, alphas.STUDY, delays.STUDY)
        ),
    ]
    return {section.name: section for section in found}


def by_text(section: Section) -> dict[str, Claim]:
    return {claim.text: claim for claim in section.findings.claims}


def test_tables_have_the_columns_that_are_documented(sections: dict[str, Section]) -> None:
    for name, table in [pair for each in sections.values() for pair in each.tables.items()]:
        kind = "_".join(name.split("_")[:2])
        file = f"{kind}_MODEL" if name.startswith("iteration_") else name
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
    points = alphas.STUDY.points(SETUP)
    assert [8 - point.packet_nics for point in points] == list(alphas.ALPHAS)
    assert {point.packet_nics * (point.packet_bps or point.rate_bps) for point in points} == {200e9}
    # The usual one is that of Figure 12, so that it is predicted once.
    assert StepPoint(MODEL, MFABRIC, 100e9) in points


def test_delays_include_the_usual_one() -> None:
    assert StepPoint(MODEL, MFABRIC, 400e9) in delays.STUDY.points(SETUP)


def test_times_stand_beside_the_public_ones() -> None:
    table = time_table(MODEL, RATES_BPS, made_up_iterations(iteration_points(MODEL, SETUP)))
    # Over the shortest of what has public times: the fat-tree at 800 Gbit/s.
    assert table["normalised"].min() == pytest.approx(1.04 / 1.05)
    assert table.loc[table["public"].notna(), "normalised"].min() == 1
    assert table[table["fabric"] == RAIL]["iteration_s"].to_list() == (
        table[table["fabric"] == FAT_TREE]["iteration_s"].to_list()
    )
    assert table.loc[0, "public"] == 1.37435
    unknown = table[table["public"].isna()]
    assert set(unknown["fabric"]) == {OVERSUBSCRIBED, DELEGATED}
    # The network takes 0.4 s and 0.48 s; of 50 ms that circuits keep an iteration, 37.5 ms in forwards.
    assert over(table, OVERSUBSCRIBED, FAT_TREE)[100] == pytest.approx(2.28 / 1.4)
    assert over(table, NO_WAITS, FAT_TREE)[100] == pytest.approx(1.48 / 1.4)
    assert over(table, MFABRIC, FAT_TREE)[100] == pytest.approx(1.5175 / 1.4)
    assert over(table, ALL_WAITS, FAT_TREE)[100] == pytest.approx(1.53 / 1.4)
    assert over(table, TOPOOPT, MFABRIC)[100] == pytest.approx(1.8 / 1.5175)


def test_waits_are_the_difference_that_the_delay_makes() -> None:
    point = StepPoint(MODEL, MFABRIC, 100e9)
    found = made_up_iterations([point, at_once(point), StepPoint(MODEL, FAT_TREE, 100e9)])
    assert waits_s(point, found) == pytest.approx((0.0375, 0.0125))
    assert as_simulated_s(point, found) == pytest.approx(found[at_once(point)].seconds + 0.0375)
    assert waits_s(StepPoint(MODEL, FAT_TREE, 100e9), found) == (0, 0)
    # Where nothing on the critical path waits, what the delay costs is all before it.
    idle = replace(found[point], parts_s=dict.fromkeys(PARTS, 0.0))
    assert waits_s(point, {**found, point: idle}) == pytest.approx((0.05, 0))


def test_times_are_fitted_and_give_what_gpus_would_compute() -> None:
    table = time_table(MODEL, RATES_BPS, made_up_iterations(iteration_points(MODEL, SETUP)))
    fits = fit_table(table, MODELS[MODEL]).set_index("fabric")
    assert [*fits[["fixed_s", "network_s"]].loc[FAT_TREE]] == pytest.approx([1, 0.4])
    assert [*fits[["fixed_s", "network_s"]].loc[NO_WAITS]] == pytest.approx([1, 0.48])
    # The public fat-tree: 0.982 + 0.398, so compute takes 2.47 times the network's 0.4 s.
    assert [*fits[["fixed_public", "network_public"]].loc[FAT_TREE]] == pytest.approx(
        [0.982, 0.398], abs=5e-4
    )
    # 15 times 7 layers, a forward and a backward of twice the work, on 8 GPUs a rank: 6.0e12 FLOP forward.
    work = 15 * 7 * 3 * 5.88e12
    assert path_flop(MODELS[MODEL]) == pytest.approx(work, rel=0.01)
    assert fits.loc[FAT_TREE, "flops"] == pytest.approx(work / (0.4 * 0.982 / 0.398), rel=0.01)
    alone = fit_table(table[table["rate_gbps"] == 100], MODELS[MODEL])
    assert alone[["fixed_s", "network_s", "flops"]].isna().all(axis=None)


def test_claims_stand_beside_the_times_and_are_ruled_by_none(sections: dict[str, Section]) -> None:
    claims = by_text(sections[f"iteration_times_{MODEL}"])
    measured = {
        text: (claim.reason.split("; ")[1], round(claim.measured, 3)) for text, claim in claims.items()
    }
    assert measured["very close to the fat-tree (10 %)"] == ("in the range", 1.084)
    assert measured["up to 1.6x over 3:1"] == ("in the range", 1.502)
    assert measured["1.5x over TopoOpt on average"][0] == "not in the range"
    assert measured["1.5x over TopoOpt, rings on average"] == ("in the range", 1.412)
    assert measured["faster than TopoOpt, 100 to 400G"] == ("in the range", 1.037)
    assert "comparable to the fat-tree (10 %)" in by_text(sections["iteration_times_deepseek-r1"])
    every = [claim for section in sections.values() for claim in section.findings.claims]
    assert {claim.verdict for claim in every} == {"not comparable"}
    assert all(claim.reason.startswith("predicted, nothing was emulated") for claim in every)


def test_more_circuits_and_longer_delays_are_compared(sections: dict[str, Section]) -> None:
    alpha, delay = sections["alpha"], sections["delay"]
    assert all("; in the range" in claim.reason for claim in alpha.findings.claims)
    claims = by_text(delay)
    assert claims["25 ms: not significantly longer than 1 us (10 %)"].measured == pytest.approx(1.05, 0.01)
    assert "; in the range" in claims["above 1 s: clearly longer than at 25 ms"].reason


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


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a model of four layers in two stages, on 16 servers."""
    monkeypatch.setattr(
        "scenarios._mfabric.step.points.STUDIED", {"toy": replace(MODELS[MODEL], layers=4, pp=2)}
    )
    return "toy"


def test_a_wait_for_circuits_is_what_a_fast_ocs_saves(toy: str) -> None:
    slow = StepPoint(toy, MFABRIC, 400e9, servers=16)
    fabrics = (FAT_TREE, DELEGATED, OVERSUBSCRIBED, TOPOOPT)
    others = [StepPoint(toy, fabric, 400e9, servers=16) for fabric in fabrics]
    found = {point: iteration(SETUP, point) for point in (slow, at_once(slow), *others)}
    fat_tree, delegated, blocked, panel = (found[point] for point in others)
    assert fat_tree.seconds < found[at_once(slow)].seconds < found[slow].seconds
    assert delegated.seconds < found[at_once(slow)].seconds
    assert fat_tree.seconds < blocked.seconds
    assert panel.reconfigurations == 0
    assert found[slow].reconfigurations > 0 == fat_tree.reconfigurations
    # Dispatches wait in three turns of two layers each; backward, attention hides most of the delay.
    forward_s, backward_s = waits_s(slow, found)
    assert forward_s == pytest.approx(3 * 2 * 0.025, rel=0.2)
    assert 0 <= backward_s < forward_s
    for each in found.values():
        assert sum(each.parts_s.values()) == pytest.approx(each.seconds)


@pytest.mark.parametrize("fabric", [FAT_TREE, OVERSUBSCRIBED])
def test_few_messages_take_as_long_as_all_of_them(toy: str, fabric: str) -> None:
    few = step_experiment(SETUP, StepPoint(toy, fabric, 400e9, servers=16))
    whole = step_experiment(SETUP, StepPoint(toy, DELEGATED, 400e9, servers=16)).job
    all_to_alls = {
        node.name: replace(node.pattern, coupled_as_one=True)
        for node in whole.collectives
        if isinstance(node.pattern, AllToAll)
    }
    nodes = tuple(
        replace(node, pattern=all_to_alls.get(node.name, node.pattern))
        if isinstance(node, Collective)
        else node
        for node in few.job.nodes
    )
    many = replace(few, job=replace(few.job, nodes=nodes))
    seconds = [predict(each, couples=True).iteration_s for each in (few, many)]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-6)


@given(arrays(np.int64, (8, 8), elements=st.integers(0, 9)), st.sampled_from([1, 2, 4]))
def test_few_messages_carry_what_each_gpu_and_server_exchange(matrix: NDArray[np.int64], gpus: int) -> None:
    servers = np.arange(8) // gpus
    few = few_messages(matrix, servers)
    inside = servers[:, None] == servers
    assert (few[inside] == matrix[inside]).all()
    assert np.count_nonzero(few) <= np.count_nonzero(matrix)
    for first in range(0, 8, gpus):
        far = slice(first, first + gpus)
        assert (few[:, far].sum(axis=1) == matrix[:, far].sum(axis=1)).all()
        assert (few[far].sum(axis=0) == matrix[far].sum(axis=0)).all()


def test_even_experts_wait_for_none_and_send_as_before(toy: str) -> None:
    point = StepPoint(toy, DELEGATED, 400e9, servers=16)
    even, busiest = (step_experiment(StepSetup((), experts=word), point).job for word in ("even", "busiest"))
    assert [node.pattern for node in even.collectives] == [node.pattern for node in busiest.collectives]
    assert all(not node.durations_s for node in even.nodes if isinstance(node, Compute))
    for one, other in zip(even.nodes, busiest.nodes, strict=True):
        if isinstance(one, Compute) and isinstance(other, Compute):
            assert one.duration_s == pytest.approx(other.duration_s, rel=1e-4)  # the mean is a whole token's


def test_parts_of_a_chain_are_what_its_nodes_take(toy: str) -> None:
    experiment = step_experiment(SETUP, StepPoint(toy, FAT_TREE, 400e9, servers=16))
    run = predict(experiment, couples=True)
    parts = iteration_parts(experiment, run)
    # Every stage computes the same: three forwards and backwards of two layers, and what sums inside servers.
    compute_s = [node.duration_s for node in experiment.job.nodes if isinstance(node, Compute)]
    names = [node.name for node in experiment.job.nodes if isinstance(node, Compute)]
    one = sum(
        took
        for name, took in zip(names, compute_s, strict=True)
        if name.split()[:2] in (["F0", "0.0"], ["B0", "0.0"])
    )
    assert parts[COMPUTE] == pytest.approx(3 * one, rel=1e-3)
    assert parts[FORWARD] == parts[BACKWARD] == 0


@pytest.mark.parametrize("module", [time_section, own_nics])
def test_examples_are_right(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert not found.failed
