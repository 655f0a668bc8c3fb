"""Iterations as jobs: replicas compute each layer once each way, and all bytes of a strategy are sent."""

from collections import Counter, defaultdict

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traffic.test_strategy import models_and_strategies, small
from topologies.errors import DemandError
from traffic.collectives.fan import Fan
from traffic.collectives.pattern import bytes_between
from traffic.collectives.ring import Ring
from traffic.job import Collective, Compute, Job
from traffic.models.layered import LayeredModel
from traffic.models.topoopt import layered_model
from traffic.strategies.iteration_job import iteration_job
from traffic.strategies.strategy import Share, replicas, start_strategy, summed, transfers

Drawn = tuple[LayeredModel, dict[str, Share]]


def one_ring(members: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (members,)


def two_rings(members: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return members, members[::-1]


def waits_of(job: Job) -> "nx.DiGraph[str]":
    """Return the arrows of a job, from what is waited for."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(node.name for node in job.nodes)
    graph.add_edges_from((before, node.name) for node in job.nodes for before in node.after)
    return graph


def nodes_of(job: Job, model: LayeredModel, layer: str, letter: str) -> list[Compute]:
    """Return the computes of a layer; of a table, all that are of lookups."""
    computes = [node for node in job.nodes if isinstance(node, Compute)]
    if model.layer(layer).is_table:
        return [node for node in computes if node.name.startswith(f"{letter} table")]
    return [node for node in computes if node.name == f"{letter} {layer}"]


@given(models_and_strategies(), st.integers(1, 3))
def test_every_replica_computes_each_layer_once_forward_and_once_backward(drawn: Drawn, gpus: int) -> None:
    model, strategy = drawn
    job = iteration_job(model, strategy, one_ring, bucket_bytes=1, gpus=gpus)
    spent: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for node in job.nodes:
        if isinstance(node, Compute) and "inside" not in node.name:
            spent[node.name[0]].update(dict.fromkeys(node.gpus, node.duration_s))
    owed: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for layer in model.layers:
        servers = replicas(strategy[layer.name], model.servers)
        longer = 1 if layer.is_table else model.servers / len(servers)
        for letter, takes_s in (("F", layer.forward_s), ("B", layer.backward_s)):
            owed[letter].update({server * gpus: takes_s * longer for server in servers})
            assert {
                gpu // gpus for node in nodes_of(job, model, layer.name, letter) for gpu in node.gpus
            } >= {*servers}
    for letter, per_gpu in owed.items():
        assert dict(spent[letter]) == pytest.approx(dict(per_gpu))


@given(models_and_strategies())
def test_it_sends_what_the_strategy_transfers_and_sums_all_gradients(drawn: Drawn) -> None:
    model, strategy = drawn
    job = iteration_job(model, strategy, two_rings, bucket_bytes=300)
    sent = np.zeros((model.servers, model.servers), dtype=np.int64)
    rings: Counter[tuple[int, ...]] = Counter()
    for node in job.collectives:
        if isinstance(node.pattern, Ring):
            rings[tuple(sorted(node.pattern.gpus))] += node.pattern.bytes
        else:
            sent += bytes_between(node.pattern, model.servers)
    assert (sent == transfers(model, strategy)).all()
    assert dict(rings) == dict(summed(model, strategy))


@given(models_and_strategies())
def test_layers_wait_for_their_inputs_and_backwards_for_their_gradients(drawn: Drawn) -> None:
    model, strategy = drawn
    job = iteration_job(model, strategy, one_ring, bucket_bytes=1)
    graph, listed = waits_of(job), {node.name: place for place, node in enumerate(job.nodes)}
    assert all(
        listed[before] < listed[node] for before, node in graph.edges
    )  # nothing waits for what is later
    for consumer in model.layers:
        for producer in consumer.inputs:
            crosses = strategy[producer] != strategy[consumer.name]
            for letter, first, then in (("F", producer, consumer.name), ("B", consumer.name, producer)):
                for node in nodes_of(job, model, then, letter):
                    before = nx.ancestors(graph, node.name)
                    assert {each.name for each in nodes_of(job, model, first, letter)} & before
                    if crosses:
                        assert any(isinstance(job.nodes[listed[each]], Collective) for each in before)
    (last,) = nodes_of(job, model, "top", "B")
    assert last.after == ("F top",)


@given(models_and_strategies(), st.integers(1, 5000))
def test_a_bucket_waits_for_the_backward_of_its_layers_and_for_nothing_else(
    drawn: Drawn, bucket_bytes: int
) -> None:
    model, strategy = drawn
    job = iteration_job(model, strategy, one_ring, bucket_bytes=bucket_bytes)
    in_buckets: list[str] = []
    for node in job.collectives:
        if isinstance(node.pattern, Ring):
            layers = [before.removeprefix("B ") for before in node.after]
            assert node.pattern.bytes == 4 * sum(model.layer(layer).parameters for layer in layers)
            for layer in layers:
                assert replicas(strategy[layer], model.servers) == tuple(sorted(node.pattern.gpus))
            in_buckets += layers
    summing = [layer for layer in model.layers if layer.parameters and strategy[layer.name].parts > 1]
    assert sorted(in_buckets) == sorted(layer.name for layer in summing)


def buckets_of(model: LayeredModel, **settings: int) -> list[tuple[tuple[str, ...], int]]:
    """Return the nodes for which each sum of the start strategy waits, and its bytes."""
    job = iteration_job(model, start_strategy(model), one_ring, **settings)
    return [(node.after, node.pattern.bytes) for node in job.collectives if isinstance(node.pattern, Ring)]


def test_a_bucket_is_full_with_its_bytes_and_layers_stay_whole() -> None:
    assert buckets_of(small(4), bucket_bytes=4000) == [(("B top",), 4000), (("B bottom",), 400)]
    assert buckets_of(small(4), bucket_bytes=4001) == [(("B top", "B bottom"), 4400)]


def test_chunks_that_are_too_small_join_the_bucket_before_or_are_refused() -> None:
    apart = [(("B top",), 4000), (("B bottom",), 400)]
    assert buckets_of(small(4), bucket_bytes=1, least_chunk_bytes=100) == apart
    together = [(("B top", "B bottom"), 4400)]
    assert buckets_of(small(4), bucket_bytes=1, least_chunk_bytes=101) == together
    assert buckets_of(small(4), bucket_bytes=1, least_chunk_bytes=1100) == together
    with pytest.raises(
        DemandError, match="4400 bytes, make chunks of 1100 bytes over 1 rings of 4, and the lea"
    ):
        buckets_of(small(4), least_chunk_bytes=1101)


def test_nvlink_sums_inside_servers_before_a_bucket_goes() -> None:
    model = layered_model("vgg16", section="5.6")
    job = iteration_job(model, start_strategy(model), one_ring, gpus=2)
    by_name = {node.name: node for node in job.nodes}
    assert job.gpus == 32
    for node in job.collectives:
        (inside,) = (by_name[name] for name in node.after)
        assert isinstance(inside, Compute)
        assert isinstance(node.pattern, Ring)
        assert inside.gpus == tuple(range(1, 32, 2))
        assert inside.duration_s == pytest.approx(2 * node.pattern.bytes / (4 * 25e9))
        assert node.gpus == tuple(range(0, 32, 2))
        assert all(name.startswith("B ") for name in inside.after)


def test_tables_of_dlrm_go_together_and_of_a_server_with_several_in_turn() -> None:
    model = layered_model("dlrm")
    job = iteration_job(model, start_strategy(model), two_rings)
    fans = [node.pattern for node in job.collectives if isinstance(node.pattern, Fan)]
    everywhere, owners = tuple(range(128)), tuple(range(64))
    assert fans == [Fan(owners, everywhere, 524_288), Fan(owners, everywhere, 524_288, back=True)]
    sums = [node for node in job.collectives if isinstance(node.pattern, Ring)]
    assert len(job.nodes) == 2 * (1 + 24) + 2 + len(sums)  # lookups, 24 layers, fans
    few = layered_model("dlrm", section="5.6", servers=8)
    job = iteration_job(few, start_strategy(few), two_rings)
    lookups = [node for node in job.nodes if isinstance(node, Compute) and node.name.startswith("F table")]
    assert [node.gpus for node in lookups] == [tuple(range(8))] * 2
    assert all(node.after == () for node in lookups)


def test_on_one_server_nothing_is_sent() -> None:
    model = small(1)
    assert iteration_job(model, start_strategy(model), one_ring).collectives == ()


def test_what_makes_no_iteration_is_refused() -> None:
    model = small(4)
    start = start_strategy(model)
    with pytest.raises(DemandError, match="the 0 rings over servers"):
        iteration_job(model, start, lambda _: ())
    with pytest.raises(DemandError, match=r"the 1 rings over servers \(0, 1, 2, 3\) are of others"):
        iteration_job(model, start, lambda _: ((0, 1),))
    with pytest.raises(DemandError, match="buckets of 0 bytes"):
        iteration_job(model, start, one_ring, bucket_bytes=0)
    with pytest.raises(DemandError, match="'top' in 3 parts"):
        iteration_job(model, start | {"top": Share(3)}, one_ring)
