"""GPUs and servers that are lost in a training step, whose places others take: all that is owed arrives."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios._mfabric.region_plan import regions_of
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from tests.examples import examples
from tests.testbed.moved_cases import (
    GPU_MOVES,
    GPUS,
    HEALTHY,
    LOST,
    RANK,
    SERVER_MOVES,
    SERVERS,
    losing,
    steadily,
)
from topologies.errors import ScenarioError
from traffic.effects import Gone
from traffic.faults import AS_IT_WAS, Moves, moved
from traffic.job import Collective, Job
from traffic.records import NVLINK

TOOK_S = predict(HEALTHY).iteration_s
MOVES = {"GPU": GPU_MOVES, "server": SERVER_MOVES}


def owed(job: Job, node: str) -> Counter[tuple[int, int]]:
    """Return the bytes that a collective moves from one GPU to another."""
    (found,) = (each for each in job.collectives if each.name == node)
    messages, total = found.pattern.lower().moves, Counter[tuple[int, int]]()
    for source, destination, size in zip(messages.source, messages.destination, messages.bytes, strict=True):
        total[int(source), int(destination)] += int(size)
    return total


def arrived(run: Run, node: str) -> Counter[tuple[int, int]]:
    """Return the bytes that a collective did move."""
    rows = run.messages[run.messages["node"] == node].dropna(subset="end_s")
    total = Counter[tuple[int, int]]()
    for source, destination, size in zip(rows["source"], rows["destination"], rows["bytes"], strict=True):
        total[source, destination] += size
    return total


def check(experiment: Experiment, run: Run, moves: Moves) -> None:
    """Check that all work is done once, and all bytes arrive, between the GPUs of then."""
    before, after = experiment.job, moved(experiment.job, moves)
    events = run.events.set_index(["what", "which"])["at_s"]
    known_s = events["detected", LOST] if ("detected", LOST) in events.index else float("inf")
    given_up = set(run.events.loc[run.events["what"] == "given up", "which"])
    ended_s = run.tasks.groupby("node")["end_s"].max()
    assert set(ended_s.index) == {node.name for node in before.nodes}
    for node, other in zip(before.nodes, after.nodes, strict=True):
        tasks = run.tasks[run.tasks["node"] == node.name]
        if isinstance(node, Collective):
            assert len(tasks) == 1
            late = ended_s[node.name] >= known_s
            lacks = owed(after if late else before, node.name)
            lacks.subtract(arrived(run, node.name))
            # Of a ring that is begun again some steps had arrived before.
            assert max(lacks.values(), default=0) == 0, node.name
            assert min(lacks.values(), default=0) == 0 or node.name in given_up
            continue
        places = dict(zip(node.gpus, other.gpus, strict=True))
        took = dict(zip(tasks["gpu"], tasks["end_s"], strict=True))
        assert len(took) == len(tasks) == len(node.gpus)
        for gpu, backup in places.items():
            assert took.keys() & {gpu, backup}, f"{node.name} is not computed for GPU {gpu}"
            assert gpu == backup or backup not in took or took[backup] > known_s
    lost_gpus = {gpu for gpu, _ in moves}
    later = run.messages[run.messages["start_s"] > known_s]
    assert lost_gpus.isdisjoint(later["source"])
    assert lost_gpus.isdisjoint(later["destination"])


@settings(max_examples=examples(6, 20), deadline=None)
@given(
    what=st.sampled_from(sorted(MOVES)),
    share=st.floats(0, 0.999),
    detect_s=st.floats(0, 0.3),
)
def test_all_work_is_done_once_and_all_bytes_arrive(what: str, share: float, detect_s: float) -> None:
    experiment = losing(HEALTHY, MOVES[what], share * TOOK_S, detect_s)
    check(experiment, predict(experiment), MOVES[what])


def test_lost_before_it_starts_and_known_at_once_is_as_moved_from_the_start() -> None:
    for moves in MOVES.values():
        steady = predict(steadily(HEALTHY, moves))
        assert predict(losing(HEALTHY, moves, 0.0, 0.0)).iteration_s == pytest.approx(steady.iteration_s)


def test_what_the_lost_gpu_computes_ends_later_by_what_was_done_and_the_detection() -> None:
    """A fault in the forward's attention: done again from its start on the backup."""
    attention = predict(HEALTHY).tasks.set_index("node").loc[f"F0 0.0 l0 attention of rank {RANK}"]
    took_s = float(attention["end_s"].iloc[0])
    run = predict(losing(HEALTHY, MOVES["GPU"], 0.4 * took_s, detect_s=0.05))
    tasks = run.tasks[run.tasks["node"] == f"F0 0.0 l0 attention of rank {RANK}"].set_index("gpu")
    (_, backup) = MOVES["GPU"][0]
    assert tasks.loc[backup, "start_s"] == pytest.approx(0.4 * took_s + 0.05)
    assert tasks.loc[backup, "end_s"] == pytest.approx(1.4 * took_s + 0.05)


def test_a_collective_that_seems_to_end_before_the_loss_is_known_is_sent_again() -> None:
    """A GPU that is gone received nothing: its all-to-all is not over until the backup has all of it."""
    ends = predict(HEALTHY).tasks.set_index("node")["end_s"]
    experiment = losing(HEALTHY, MOVES["GPU"], ends["F0 0.0 l0 dispatch"] - 0.01, detect_s=0.1)
    run = predict(experiment)
    assert run.events.loc[run.events["what"] == "given up", "which"].tolist() == ["F0 0.0 l0 dispatch"]
    assert run.tasks.set_index("node").loc["F0 0.0 l0 dispatch", "end_s"] > ends["F0 0.0 l0 dispatch"] + 0.1


def test_tensor_parallel_sums_cross_the_network_from_then_on() -> None:
    """2 (tp-1)/tp of the payload from the rank's server to the backup's, and as much back."""
    rows = predict(steadily(HEALTHY, MOVES["GPU"])).messages
    sums = rows[rows["node"] == f"F0 0.0 l0 attention sum of rank {RANK}"]
    crossing = sums[sums["path"] != NVLINK]
    payload = 512 * 8 * 64 * 2
    assert crossing["bytes"].sum() == 2 * 2 * (GPUS - 1) / GPUS * payload
    healthy_rows = predict(HEALTHY).messages
    inside = healthy_rows[healthy_rows["node"] == f"F0 0.0 l0 attention sum of rank {RANK}"]
    assert set(inside["path"]) == {NVLINK}


def test_a_lost_server_has_no_circuits_and_its_share_goes_over_packets() -> None:
    run = predict(losing(HEALTHY, MOVES["server"], 0.05 * TOOK_S))
    per_server = GPUS - 1  # circuit NICs, with which the OCS' ports are numbered
    last = run.events.loc[run.events["what"] == "lit", "which"].iloc[-1]
    ports = {int(end) for circuit in last.split()[1:] for end in circuit.split(">")}
    assert RANK not in {port // per_server for port in ports}
    combine = run.messages[run.messages["node"] == "F0 0.0 l0 combine"]
    fabric = HEALTHY.fabric
    spare = {gpu for gpu in range(fabric.gpus) if fabric.gpu_servers[gpu] == SERVERS}
    of_spare = combine[combine["source"].isin(spare) != combine["destination"].isin(spare)]
    assert len(of_spare)
    assert not of_spare["path"].str.contains("ocs").any()


def test_between_all_to_alls_circuits_change_as_soon_as_a_server_is_known_to_be_lost() -> None:
    """While experts compute; in the middle of an all-to-all they wait until that has ended."""
    tasks = predict(HEALTHY).tasks.groupby("node").agg({"start_s": "min", "end_s": "max"})
    computing_s = tasks.loc["F0 0.0 l0 experts"].to_numpy(float).mean()
    sending_s = tasks.loc["F0 0.0 l0 combine"].to_numpy(float).mean()
    for at_s, at_once in ((computing_s, True), (sending_s, False)):
        run = predict(losing(HEALTHY, MOVES["server"], at_s, 0.001))
        dark_s = run.events.loc[run.events["what"] == "drained", "at_s"]
        first_s = dark_s[dark_s >= at_s].min()
        ended_s = run.tasks.set_index("node")["end_s"]["F0 0.0 l0 combine"]
        assert first_s == pytest.approx(at_s + 0.001 if at_once else ended_s)


def test_circuits_are_made_for_what_moved() -> None:
    """From the next decision on a turn's demand is that between the servers where its GPUs are now."""
    experiment = losing(HEALTHY, MOVES["server"], 0.0)
    (turns,) = regions_of(experiment.rule).turns.values()
    demand = regions_of(experiment.rule).moved_demand(turns[0], [LOST])
    assert not demand[RANK].any()
    assert not demand[:, RANK].any()
    assert regions_of(experiment.rule).moved_demand(turns[0], []).tolist() == turns[0].demand.tolist()
    (steady,) = regions_of(steadily(HEALTHY, MOVES["GPU"]).rule).turns.values()
    losing_gpu = regions_of(losing(HEALTHY, MOVES["GPU"], 0.0).rule)
    assert losing_gpu.moved_demand(turns[0], [LOST]).tolist() == steady[0].demand.tolist()


def test_run_json_repeats_moves() -> None:
    experiment = losing(HEALTHY, MOVES["server"], 0.3 * TOOK_S)
    again = Experiment.from_json(experiment.to_json())
    assert again == experiment
    assert predict(again).messages.equals(predict(experiment).messages)


def test_what_is_refused() -> None:
    experiment = losing(HEALTHY, MOVES["GPU"], 0.1)
    with pytest.raises(ScenarioError, match="is gone for good"):
        replace(experiment, revisions=AS_IT_WAS)
    with pytest.raises(ScenarioError, match="has another or is not there"):
        losing(HEALTHY, ((MOVES["GPU"][0][0], 0),), 0.1)
    with pytest.raises(ScenarioError, match="leaves it alone"):
        replace(experiment, faults=(replace(experiment.faults[0], effects=(Gone((0,)),)),))
