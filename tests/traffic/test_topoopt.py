"""TopoOpt's models: parameters and gradients to the byte, and durations that sum to what was measured."""

from dataclasses import replace

import pytest

from topologies.errors import DemandError
from traffic.models.layered import Layer, LayeredModel
from traffic.models.topoopt import MODELS, layered_model
from traffic.strategies.strategy import start_strategy, summed, transfers

EVERY = [(name, section) for name, sections in MODELS.items() for section in sections]
ROWS = [
    ("dlrm", "5.3", 306_264_065, 1_225_056_260),
    ("dlrm", "5.4", 339_818_497, 1_359_273_988),
    ("dlrm", "5.6", 76_585_985, 306_343_940),
    ("dlrm", "6", 129_104_897, 516_419_588),
    ("candle", "5.3", 23_610_605_571, 94_442_422_284),
    ("candle", "5.6", 1_188_171_779, 4_752_687_116),
    ("candle", "6", 785_420_291, 3_141_681_164),
    ("bert", "5.3", 201_376_769, 805_507_076),
    ("bert", "5.6", 56_642_305, 226_569_220),
    ("bert", "6", 100_688_897, 402_755_588),
    ("ncf", "5.3", 134_252_546, 537_010_184),
    ("vgg16", "5.3", 289_352_488, 1_157_409_952),
    ("vgg16", "5.6", 289_352_488, 1_157_409_952),
    ("vgg16", "6", 289_352_488, 1_157_409_952),
    ("resnet50", "5.3", 23_563_402, 94_253_608),
    ("resnet50", "6", 23_563_402, 94_253_608),
    ("vgg19", "6", 143_667_240, 574_668_960),  # the textbook's
]
"""P and S, of the scripts."""
DENSE_MS = [
    ("dlrm", "5.3", 5.99, 10.85),
    ("candle", "5.3", 690, 1321),
    ("candle", "5.6", 35.6, 69.0),
    ("bert", "5.3", 18.1, 35.6),
    ("bert", "5.6", 21.0, 41.2),
    ("ncf", "5.3", 3.07, 5.06),
    ("vgg16", "5.3", 29.6, 70.9),
    ("resnet50", "5.3", 64.6, 137.6),
]
"""Sums of what was measured more precisely than by layer: forward and backward of all but tables [ms]."""


@pytest.mark.parametrize(("name", "section", "parameters", "gradient_bytes"), ROWS)
def test_parameters_and_gradients(name: str, section: str, parameters: int, gradient_bytes: int) -> None:
    model = layered_model(name, section=section)
    assert (model.parameters, model.gradient_bytes) == (parameters, gradient_bytes)
    everywhere = tuple(range(model.servers))
    assert summed(model, start_strategy(model)) == [(everywhere, gradient_bytes)]


def dense_s(model: LayeredModel) -> tuple[float, float]:
    """Return forward and backward of a server if all but tables is data parallel [s]."""
    dense = [layer for layer in model.layers if not layer.is_table]
    return sum(layer.forward_s for layer in dense), sum(layer.backward_s for layer in dense)


@pytest.mark.parametrize(("name", "section", "forward_ms", "backward_ms"), DENSE_MS)
def test_durations_sum_to_what_was_measured(
    name: str, section: str, forward_ms: float, backward_ms: float
) -> None:
    found = dense_s(layered_model(name, section=section))
    assert [1e3 * each for each in found] == pytest.approx([forward_ms, backward_ms], rel=4e-3)


@pytest.mark.parametrize(
    ("section", "batch", "total_ms"),
    [
        ("5.6", 256, 14.54),
        ("5.4", 64, 17.9),
        ("5.4", 128, 32.1),
        ("5.4", 256, 59.4),
        ("5.4", 512, 118.1),
        ("5.4", 1024, 228.7),
        ("5.4", 2048, 459.6),
    ],
)
def test_dlrm_with_a_table(section: str, batch: int, total_ms: float) -> None:
    model = layered_model("dlrm", section=section, batch=batch)
    table = model.tables[0]
    total_s = sum(dense_s(model)) + table.forward_s + table.backward_s
    assert 1e3 * total_s == pytest.approx(total_ms, abs=0.051)
    assert "measured" in model.source


@pytest.mark.parametrize(
    ("name", "section", "batch", "table", "size"),
    [
        ("dlrm", "5.3", None, "table 0", 524_288),
        ("dlrm", "5.6", None, "table 0", 2_097_152),
        ("ncf", "5.3", None, "user GMF 0", 262_144),
        ("ncf", "5.3", None, "item MLP 31", 524_288),
        ("dlrm", "6", 512, "table 11", 67_108_864),
    ],
)
def test_what_a_table_sends_each_other_server(
    name: str, section: str, batch: int | None, table: str, size: int
) -> None:
    model = layered_model(name, section=section, batch=batch)
    strategy = start_strategy(model)
    owner = strategy[table].start
    there_and_back = transfers(model, strategy)
    others = [server for server in range(model.servers) if server != owner]
    owns = {server: [t for t in model.tables if strategy[t.name].start == server] for server in others}
    assert model.samples // model.servers * model.layer(table).sample_bytes == size
    idle = [server for server in others if not owns[server]]
    assert (there_and_back[owner, idle] == size).all()
    assert (there_and_back == there_and_back.T).all()


def test_ratios_of_section_5_4_and_of_the_testbed() -> None:
    for batch, ratio in (
        (64, 0.0247),
        (128, 0.0494),
        (256, 0.0987),
        (512, 0.197),
        (1024, 0.395),
        (2048, 0.790),
    ):
        model = layered_model("dlrm", section="5.4", batch=batch)
        everything = transfers(model, start_strategy(model)).sum()
        assert everything == 128 * 127 * 4 * batch * 128 * 8 * 2
        assert everything / (2 * 127 * model.gradient_bytes) == pytest.approx(ratio, rel=3e-3)
    model = layered_model("dlrm", section="6", batch=512)
    forward = transfers(model, start_strategy(model)).sum(axis=1) / 2
    assert (forward[0] / (2 * 11 / 12 * model.gradient_bytes)).round(3) == 0.780


@pytest.mark.parametrize(("name", "section"), EVERY)
def test_other_batches_and_servers_change_durations_and_no_layer(name: str, section: str) -> None:
    batch = 3 * MODELS[name][section].batch  # which is not measured
    model = layered_model(name, section=section, batch=batch)
    wide = layered_model(name, section=section, batch=2 * batch, servers=4 * model.servers)
    assert wide.samples == 8 * model.samples
    for before, after in zip(model.layers, wide.layers, strict=True):
        more = 8 if after.is_table else 2  # its owner has all samples
        expected = replace(before, forward_s=more * before.forward_s, backward_s=more * before.backward_s)
        assert replace(expected, forward_s=after.forward_s, backward_s=after.backward_s) == after
        found = (after.forward_s, after.backward_s)
        assert found == pytest.approx((expected.forward_s, expected.backward_s))


def test_the_owner_of_a_measured_table_has_the_samples_of_all_servers() -> None:
    model, half = layered_model("dlrm", section="5.4"), layered_model("dlrm", section="5.4", servers=64)
    assert dense_s(half) == dense_s(model)
    assert half.tables[0].forward_s == pytest.approx(model.tables[0].forward_s / 2)


def test_durations_by_formula() -> None:
    model = layered_model("dlrm", section="6", batch=64)
    top, table = model.layer("top 2"), model.layer("table 3")
    assert top.forward_s == pytest.approx(2 * 64 * 1024**2 / 16e12)
    assert top.backward_s == pytest.approx(1.93 * top.forward_s)
    assert table.forward_s == pytest.approx(64 * 12 * 100 * 32768 * 4 / 0.8e12)
    assert "formula" in model.source
    full, half = (layered_model("vgg16", batch=batch) for batch in (64, 32))
    assert half.layer("conv 3.1").forward_s == pytest.approx(full.layer("conv 3.1").forward_s / 2)
    assert "in proportion" in half.source


def test_unknown_models_are_refused() -> None:
    with pytest.raises(DemandError, match="there is no model 'gpt'; choose one of dlrm, candle"):
        layered_model("gpt")
    with pytest.raises(DemandError, match=r"no section 5\.4 of model 'bert'; choose one of 5\.3, 5\.6, 6"):
        layered_model("bert", section="5.4")
    with pytest.raises(DemandError, match="0 servers and a batch of 128"):
        layered_model("dlrm", servers=0)


FIRST, LAST = Layer("first", "dense", 4, 2, 1.0, 1.0), Layer("last", "dense", 4, 2, 1.0, 1.0, ("first",))


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((), "has 0 layers on 2 servers"),
        ((LAST, FIRST), "'last' of 'own' is there twice, or before"),
        ((FIRST, FIRST), "'first' of 'own' is there twice"),
        ((FIRST, replace(LAST, inputs=())), "no layer of 'own' takes the output of 'first'"),
        ((FIRST, replace(LAST, forward_s=-1.0)), "'last' of 'own' has a negative"),
    ],
)
def test_layers_that_are_no_model_are_refused(layers: tuple[Layer, ...], said: str) -> None:
    with pytest.raises(DemandError, match=said):
        LayeredModel("own", 2, 1, 1, layers, "")


def test_layers_are_found_by_name() -> None:
    model = LayeredModel("own", 2, 1, 1, (FIRST, LAST), "")
    assert model.layer("last") is LAST
    assert model.consumers == {"first": ("last",), "last": ()}
    with pytest.raises(DemandError, match="no layer 'middle'; it has 2 x dense"):
        model.layer("middle")
