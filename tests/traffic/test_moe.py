"""The five models have their published parameters, and send and compute what mFabric's sizes make them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from topologies.errors import DemandError
from traffic.models.moe import MODELS, GroupedAttention, MoeModel, model_named

MIXTRAL, LARGE, LLAMA, QWEN, DEEPSEEK = MODELS.values()


@pytest.mark.parametrize(
    ("model", "billions"),
    [(MIXTRAL, 46.7), (LARGE, 140.6), (LLAMA, 6.74), (QWEN, 14.3), (DEEPSEEK, 671.0)],
    ids=MODELS,
)
def test_parameters_are_the_published_ones(model: MoeModel, billions: float) -> None:
    digits = len(str(billions).partition(".")[2])
    assert round(model.weights / 1e9, digits) == billions


def test_mixtrals_parameters_are_exact() -> None:
    """As many as the tensors of its published weights hold."""
    assert MIXTRAL.weights == 46_702_792_704


@pytest.mark.parametrize(
    ("model", "all_to_all_mb", "pipeline_mb", "replica_gpus", "servers"),
    [
        (MIXTRAL, 536.9, 67.1, 128, 4),
        (LARGE, 805.3, 50.3, 512, 8),
        (LLAMA, 1073.7, 268.4, 64, 2),
        (QWEN, 536.9, 134.2, 64, 2),
        (DEEPSEEK, 3758.1, 469.8, 1024, 8),
    ],
    ids=MODELS,
)
def test_micro_batch_sends_these_bytes(
    model: MoeModel, all_to_all_mb: float, pipeline_mb: float, replica_gpus: int, servers: int
) -> None:
    assert round(model.all_to_all_bytes / 1e6, 1) == all_to_all_mb
    assert round(model.pipeline_bytes / 1e6, 1) == pipeline_mb
    assert (model.replica_gpus, model.region_servers()) == (replica_gpus, servers)


@pytest.mark.parametrize(
    ("model", "attention", "experts", "shared"),
    [
        (MIXTRAL, 0.96, 5.77, 0),
        (LARGE, 0.93, 4.95, 0),
        (LLAMA, 5.50, 2.22, 0),
        (QWEN, 1.65, 2.27, 2.27),
        (DEEPSEEK, 17.8, 23.1, 2.89),
    ],
    ids=MODELS,
)
def test_gpu_does_this_work(model: MoeModel, attention: float, experts: float, shared: float) -> None:
    """Teraflop of a forward pass, per GPU, layer and micro-batch."""
    found = [
        work / model.tp / 1e12 for work in (model.attention_flop, model.expert_flop(), model.shared_flop)
    ]
    digits = [len(str(number).partition(".")[2]) for number in (attention, experts, shared)]
    assert [round(work, places) for work, places in zip(found, digits, strict=True)] == [
        pytest.approx(number) for number in (attention, experts, shared)
    ]


def test_mixtral_works_as_in_its_replay() -> None:
    assert MIXTRAL.attention_flop == MIXTRAL.tokens * (2 * (2 * 4096 + 2 * 1024) * 4096 + 2 * 4096 * 4096)
    assert MIXTRAL.expert_flop(7) == 7 * 2 * 3 * 4096 * 14336
    assert MIXTRAL.gate_flop == 2 * 32768 * 4096 * 8


def test_ep_groups_of_a_stage_follow_each_other() -> None:
    layout = LARGE.layout(2)
    assert layout.gpus == 1024
    groups = layout.groups("ep")
    assert len(groups) == 16 * LARGE.tp
    assert groups[0] == range(0, 64, 8)
    regions = {tuple(sorted({gpu // 64 for gpu in group})) for group in groups}
    assert regions == {(region,) for region in range(16)}


def test_layers_fill_the_stages() -> None:
    assert MIXTRAL.stage_layers() == (8,) * 4
    assert LARGE.stage_layers() == (7,) * 8
    assert DEEPSEEK.stage_layers() == (4,) * 15 + (1,)
    assert replace(LARGE, layers=3).stage_layers() == (1, 1, 1, 0, 0, 0, 0, 0)
    for model in MODELS.values():
        assert sum(model.stage_layers()) == model.layers


def test_experts_are_filled_up_where_ranks_do_not_divide_them() -> None:
    assert QWEN.expert_slots == 64
    assert DEEPSEEK.expert_slots == 256
    assert replace(QWEN, experts=32, ep=32).region_servers() == 4


def test_artifacts_8x22b_has_fewer_heads() -> None:
    artifact = replace(LARGE, attention=GroupedAttention(32, 8, 128))
    assert artifact.weights == LARGE.weights - 56 * 2 * 6144 * 16 * 128


@pytest.mark.parametrize(
    ("call", "culprit"),
    [
        (lambda: model_named("gpt"), "unknown model 'gpt'"),
        (lambda: replace(MIXTRAL, top_k=9), "top 9 of 8 experts"),
        (lambda: replace(MIXTRAL, pp=0), "pp 0"),
        (lambda: replace(MIXTRAL, dense_layers=33), "in 32 layers"),
        (lambda: MIXTRAL.region_servers(5), "32 GPUs on servers of 5"),
    ],
)
def test_models_of_nothing_are_refused(call: Callable[[], object], culprit: str) -> None:
    with pytest.raises(DemandError) as error:
        call()
    assert culprit in str(error.value)


def test_models_are_found_by_name() -> None:
    assert [model_named(name).name for name in MODELS] == list(MODELS)
