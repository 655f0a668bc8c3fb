"""Shares of bytes and time, and optical I/O beside NVL72: what the sections compute, against other ways."""

import math
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from controller.circuits.devices import ReconfigurationDelay
from scenarios._mfabric.figures import lookahead as look
from scenarios._mfabric.figures import shares as share
from scenarios._mfabric.region_plan import RegionalSetup
from scenarios._mfabric.section import Section
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.study.output import sheet_table
from tests.computed_here import found_of
from tests.results_page import SCALE, documented
from topologies.rail import rail_fabric
from traffic.delegated import DelegatedSetup
from traffic.models.moe import MODELS
from traffic.models.moe_step import Machines, moe_step, repeated_gate
from traffic.workloads.gate import ARTIFACT_TOKENS

SMALL = replace(
    look.MODEL, ep=16, experts=32, top_k=4, micro_batch=1, sequence=1024, layers=5, dense_layers=1, pp=2
)


@pytest.fixture
def small_domains() -> Iterator[None]:
    """Let domains have 8 GPUs, and the model few experts and layers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look, "MODEL", SMALL)
        patch.setattr(look, "DOMAIN_GPUS", 8)
        patch.setattr(look, "DELAY_S", 0.0)  # the first light would not come during so short an attention
        yield


@pytest.fixture(scope="module")
def shares() -> Section:
    planned = share.training_shares(range(1))
    return planned.section(found_of(planned.points))


def test_bytes_are_those_of_the_spec_s_formulas() -> None:
    model = replace(MODELS["mixtral-8x7b"], layers=4, pp=2)
    sent, whole, calls = share.traffic_bytes(model, 1).values()
    passes = 2 * model.pp * model.layers  # forward and backward, as many micro-batches as stages
    # A ring over tp GPUs for attention's output, and for the tokens that experts received.
    ring = 2 * (model.tp - 1) * model.ep * 2 * model.hidden * model.tokens
    assert sent["TP"] == pytest.approx(passes * ring * (1 + model.top_k), rel=1e-6)
    assert calls["TP"] == 2 * passes * model.ep * model.tp * model.tokens * model.hidden * 2
    assert calls["EP"] == pytest.approx(2 * passes * model.ep * model.all_to_all_bytes, rel=1e-6)
    assert whole["EP"] == pytest.approx(model.tp * sent["EP"], rel=1e-6)
    between_stages = 2 * model.pp * (model.pp - 1) * model.ep * model.tp * model.pipeline_bytes
    assert sent["PP"] == calls["PP"] == between_stages
    # All experts on one replica: only dense weights are summed, over the 4 servers of each stage, two rings.
    assert sent["DP"] > 2 * 3 * 2 * model.dense_weights


def test_tables_have_the_columns_that_are_documented(shares: Section) -> None:
    for name, table in shares.tables.items():
        assert list(table.columns) == documented(SCALE, f"{name}.csv"), name


def test_shares_sum_to_one_and_models_without_tp_send_none(shares: Section) -> None:
    table = shares.tables["traffic_shares"]
    assert table.groupby(["model", "reading"])["share"].sum().to_numpy() == pytest.approx(1)
    tp = table[table["kind"] == "TP"]
    assert set(tp.loc[tp["bytes"] > 0, "model"]) == {"mixtral-8x7b"}


def test_claims_of_figures_2_3_and_17_are_ruled_with_their_reasons(shares: Section) -> None:
    claims = {claim.text: claim for claim in shares.findings.claims}
    assert {claim.verdict for claim in claims.values()} == {"not comparable"}
    # Bytes are counted by a reading, and of times there is only the model's word.
    assert {text: claim.reason.split("; ")[1] for text, claim in claims.items()} == {
        "mixtral-8x7b: TP sends 60 % of the bytes": "not in the range",
        "mixtral-8x7b: EP sends 30 % of the bytes": "not in the range",
        "mixtral-8x7b: PP and DP send less than 6 %": "in the range",
        "llama-moe: EP sends more than 80 %": "in the range",
        "qwen-moe: EP sends more than 80 %": "in the range",
        "mixtral-8x7b: all-to-alls take 33% to 55% of a layer": "in the range",
        "llama-moe: all-to-alls take 42% to 58% of a layer": "in the range",
        "qwen-moe: all-to-alls take up to 68% of a layer": "not in the range",
        "mixtral-8x7b, 8 sequences: experts take more than 100 ms": "not in the range",
    }
    assert claims["mixtral-8x7b: TP sends 60 % of the bytes"].reason.endswith("sizes of calls 66%")
    assert "102 ms at 140 TFLOP/s" in claims[list(claims)[-1]].reason


def test_a_layer_s_times_do_not_depend_on_the_micro_batch_but_in_scale() -> None:
    model = MODELS["mixtral-8x7b"]
    fabric = rail_fabric(4, 8, rate_bps=400e9)
    tokens = ARTIFACT_TOKENS
    one = share.layer_times(replace(model, micro_batch=4), tokens, fabric, Machines(400e12))
    two = share.layer_times(model, 2 * tokens, fabric, Machines(400e12))
    shares = [each.loc[["dispatch", "combine"], "F"].sum() / each["F"].sum() for each in (one, two)]
    assert shares[1] == pytest.approx(shares[0], rel=1e-4)
    assert (two["F"] / one["F"])["combine"] == pytest.approx(2, rel=1e-4)
    assert two.loc["dispatch", "F"] == pytest.approx(two.loc["combine", "B"]), "the same matrix"


@pytest.mark.usefixtures("small_domains")
@pytest.mark.parametrize("fabric", look.FABRICS)
def test_an_iteration_is_that_of_the_whole_step_predicted(fabric: str) -> None:
    ports = look.PORTS[0]
    alone = replace(SMALL, pp=1)
    tokens = share.tokens_of(SMALL, share.EVEN, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look, "MODEL", alone)
        exchanges_s = look.exchanges_s(0, look.Case(ports, share.EVEN), fabric)
        found_s = look.iteration_s(tokens, 1e15, ports, exchanges_s)
    machines = Machines(1e15, ports.nvlink_bps(fabric), 8, (0,))
    step = moe_step(alone, repeated_gate(tokens), micro_batches=1, machines=machines)
    late = tuple(dispatch.node for dispatch in step.dispatches)
    regional = None if fabric == look.NVL72 else RegionalSetup(ReconfigurationDelay(), "block", late)
    wired = look.group_fabric(ports, fabric)
    whole = Experiment(wired, step.job, DelegatedSetup(), circuits=regional)
    tasks = predict(whole, couples=True).tasks
    ended_s = tasks.loc[~tasks["node"].str.startswith("DP"), "end_s"].max()
    assert found_s == pytest.approx(ended_s, rel=1e-6)


@pytest.mark.usefixtures("small_domains")
def test_the_table_of_figure_16_has_every_case_and_fits() -> None:
    planned = look.lookahead(range(2))
    section = planned.section(found_of(planned.points))
    table = section.tables["lookahead"]
    assert list(table.columns) == documented(SCALE, "lookahead.csv")
    assert len(table) == len(look.CASES) * len(look.GPU_FLOPS)
    fast_s, slow_s = (
        table.loc[table["case"] == case, "nvl72_all_to_all_s"].to_numpy()
        for case in ("16 Tbit/s, even gate", "8 Tbit/s, even gate")
    )
    assert fast_s / slow_s == pytest.approx(0.5, rel=1e-3)
    assert section.seeds == range(1)
    assert not any(math.isnan(claim.measured) for claim in section.findings.claims)
    for plot in section.findings.plots:
        assert "even loads" in plot.draw().get_suptitle()


def test_tables_fit_a_terminal_whole(shares: Section) -> None:
    for sheet in shares.findings.sheets:
        console = Console(width=80, record=True, file=StringIO())
        console.print(sheet_table(sheet))
        lines = console.export_text().splitlines()
        assert max(map(len, lines)) <= 80
        for cells in (line.cells for block in sheet.blocks for line in block.lines):
            assert any(line.split() == " ".join(cells).split() for line in lines), cells
