"""Strategies: what crosses servers is what a sample-by-sample count finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import DemandError
from traffic.models.layered import Layer, LayeredModel
from traffic.strategies.strategy import (
    Share,
    check_strategy,
    edge_bytes,
    replicas,
    start_strategy,
    summed,
    transfers,
)


def small(servers: int, samples_each: int = 2) -> LayeredModel:
    """Return two tables, a layer beside them, one that takes all three, and one that takes the last two."""
    layers = (
        Layer("table a", "table", 0, 3, 1.0, 2.0, element_bytes=8, rows=10),
        Layer("table b", "table", 0, 5, 1.0, 2.0, element_bytes=8, rows=10),
        Layer("bottom", "dense", 100, 7, 1.0, 2.0),
        Layer("join", "concat", 0, 15, 1.0, 2.0, ("table a", "table b", "bottom")),
        Layer("top", "dense", 1000, 1, 1.0, 2.0, ("bottom", "join")),
    )
    return LayeredModel("small", servers, 1, samples_each, layers, "a test")


@st.composite
def shares(draw: st.DrawFn, servers: int, *, parts: int | None = None) -> Share:
    """Draw a share of some servers."""
    divisors = [g for g in range(1, servers + 1) if servers % g == 0]
    g = draw(st.sampled_from(divisors)) if parts is None else parts
    return Share(g, draw(st.integers(0, servers // g - 1)))


@st.composite
def strategies(draw: st.DrawFn, model: LayeredModel) -> dict[str, Share]:
    """Draw a strategy of a model."""
    return {
        layer.name: draw(shares(model.servers, parts=1 if layer.is_table else None)) for layer in model.layers
    }


@st.composite
def models_and_strategies(draw: st.DrawFn) -> tuple[LayeredModel, dict[str, Share]]:
    """Draw how many servers the small model has, and its strategy."""
    model = small(draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12])))
    return model, draw(strategies(model))


def server_of(share: Share, sample: int, model: LayeredModel) -> int:
    """Return the server whose replica has a sample."""
    each = model.samples // share.parts
    return share.start + sample // each * (model.servers // share.parts)


@given(models_and_strategies())
def test_transfers_are_the_samples_that_a_server_lacks(
    drawn: tuple[LayeredModel, dict[str, Share]],
) -> None:
    model, strategy = drawn
    counted = np.zeros((model.servers, model.servers), dtype=np.int64)
    for layer in model.layers:
        for name in layer.inputs:
            for sample in range(model.samples):
                at, to = (server_of(strategy[each], sample, model) for each in (name, layer.name))
                if at != to:
                    counted[at, to] += model.layer(name).sample_bytes
    assert (transfers(model, strategy) == counted + counted.T).all()


@given(models_and_strategies())
def test_groups_are_the_replicas_of_layers_and_have_all_their_gradients(
    drawn: tuple[LayeredModel, dict[str, Share]],
) -> None:
    model, strategy = drawn
    groups = summed(model, strategy)
    kept = [each for each in model.layers if each.parameters and strategy[each.name].parts > 1]
    assert sum(size for _, size in groups) == 4 * sum(layer.parameters for layer in kept)
    assert {members for members, _ in groups} == {
        replicas(strategy[each.name], model.servers) for each in kept
    }
    assert len({members for members, _ in groups}) == len(groups)
    assert [len(members) for members, _ in groups] == sorted((len(g) for g, _ in groups), reverse=True)


def test_the_start_has_tables_in_turn_and_all_else_everywhere() -> None:
    model = small(2)
    assert start_strategy(model) == {
        "table a": Share(1, 0),
        "table b": Share(1, 1),
        **dict.fromkeys(("bottom", "join", "top"), Share(2)),
    }
    assert transfers(model, start_strategy(model)).tolist() == [[0, 2 * (3 + 5) * 8], [2 * (3 + 5) * 8, 0]]


def test_an_edge_between_twelve_servers() -> None:
    model = small(12, samples_each=1)
    strategy = start_strategy(model) | {"bottom": Share(3, 1), "join": Share(4, 0)}
    source, destination, size = edge_bytes(model, strategy, "bottom", "join")
    assert replicas(strategy["bottom"], 12) == (1, 5, 9)  # four samples each
    assert replicas(strategy["join"], 12) == (0, 3, 6, 9)  # three samples each
    assert source.tolist() == [1, 1, 5, 5, 9]
    assert destination.tolist() == [0, 3, 3, 6, 6]
    assert size.tolist() == [3 * 28, 28, 2 * 28, 2 * 28, 28]  # and three stay on server 9


@pytest.mark.parametrize(
    ("layer", "share", "said"),
    [
        ("top", None, "layer 'top' has no share"),
        ("top", Share(3), "layer 'top' in 3 parts from server 0 of 4"),
        ("top", Share(0), "'top' in 0 parts"),
        ("top", Share(2, 2), "'top' in 2 parts from server 2"),
        ("top", Share(2, -1), "'top' in 2 parts from server -1"),
        ("table b", Share(2), "table 'table b' is in 2 parts; give it one server"),
    ],
)
def test_strategies_that_do_not_fit_are_refused(layer: str, share: Share | None, said: str) -> None:
    model = small(4)
    strategy = start_strategy(model)
    del strategy[layer]
    with pytest.raises(DemandError, match=said):
        check_strategy(model, strategy | ({layer: share} if share else {}))
