"""An experiment is a value: it survives JSON, and its key tells it from every other."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from tests.topologies.strategies import fabrics
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.collective import Collective, Step, single
from traffic.demand import Demand

SMALL = Experiment(
    rail_fabric(2, 2), single(Demand("d", np.full((4, 4), 8))), "rails", Dilation(1e-3, 1e-2), seed=3
)


@given(
    fabric=fabrics,
    steps=st.lists(st.floats(0, 10), min_size=1, max_size=3),
    seed=st.integers(0, 1 << 16),
    policy=st.sampled_from(["ecmp", "rails", "mine:Scheme"]),
    dilation=st.builds(Dilation, st.floats(1e-6, 1), st.floats(1e-6, 1)),
)
def test_json_gives_back_the_experiment(
    fabric: Fabric, steps: list[float], seed: int, policy: str, dilation: Dilation
) -> None:
    rng = np.random.default_rng(seed)
    demands = [rng.integers(0, 1 << 40, (fabric.gpus, fabric.gpus)) for _ in steps]
    collective = Collective(
        "c",
        tuple(
            Step(Demand(f"s{i}", matrix, "n"), s)
            for i, (matrix, s) in enumerate(zip(demands, steps, strict=True))
        ),
        "why",
        idle=seed % fabric.gpus,
    )
    experiment = Experiment(fabric, collective, policy, dilation, seed)
    back = Experiment.from_json(experiment.to_json())
    assert (back.fabric, back.policy, back.dilation, back.seed, back.chunk_bytes) == (
        fabric,
        policy,
        dilation,
        seed,
        experiment.chunk_bytes,
    )
    assert [step.compute_s for step in back.collective.steps] == steps
    assert back.collective.idle == collective.idle
    for step, matrix in zip(back.collective.steps, demands, strict=True):
        assert (step.demand.matrix == matrix).all()
    assert (back.to_json(), back.key) == (experiment.to_json(), experiment.key)


def test_every_part_has_a_say_in_the_key() -> None:
    others = [
        replace(SMALL, fabric=rail_fabric(2, 2, 1)),
        replace(SMALL, collective=single(Demand("d", np.full((4, 4), 9)))),
        replace(SMALL, collective=replace(SMALL.collective, idle=1)),
        replace(SMALL, policy="ecmp"),
        replace(SMALL, dilation=Dilation(1e-3, 2e-2)),
        replace(SMALL, seed=4),
        replace(SMALL, chunk_bytes=1 << 10),
    ]
    assert len({SMALL.key, *(other.key for other in others)}) == 1 + len(others)
    assert replace(SMALL).key == SMALL.key


def test_a_collective_of_another_size_is_refused() -> None:
    with pytest.raises(ScenarioError, match="the collective is between 4 GPUs, the fabric has 6"):
        replace(SMALL, fabric=rail_fabric(3, 2))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', "no experiment"])
def test_other_text_is_no_experiment(text: str) -> None:
    with pytest.raises(ScenarioError, match="the text is no experiment"):
        Experiment.from_json(text)


def test_a_broken_part_is_told_of() -> None:
    data = json.loads(SMALL.to_json())
    data["dilation"] = {"rate": 1}
    with pytest.raises(ScenarioError, match="volume"):
        Experiment.from_json(json.dumps(data))
