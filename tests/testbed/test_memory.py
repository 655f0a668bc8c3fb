"""Memory of a prediction is known before it is made, and refused where there is less; the advice works."""

import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios._bench.memory import WITHIN, estimated_over_measured
from testbed.experiment import memory
from testbed.experiment.experiment import Experiment
from testbed.experiment.memory import check_memory, messages_of, prediction_bytes
from testbed.machine import shortage
from testbed.model.predict import predict
from tests.audit.cases import small_runs
from tests.testbed.test_shortage import limited
from tests.tools import CHECKOUT
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job

GB = 10**9


def ring(fabric: Fabric, gpus: int) -> Experiment:
    """Return an AllReduce over one ring of some GPUs."""
    whole = Collective("ring", Ring((tuple(range(gpus)),), 1 << 30))
    return Experiment(fabric, Job(f"ring of {gpus}", fabric.gpus, (whole,)), "ecmp")


def test_a_ring_of_8192_gpus_is_counted_without_its_134_million_messages() -> None:
    experiment = ring(rail_fabric(1024, 8), 8192)
    tracemalloc.start()
    needed_bytes = prediction_bytes(experiment)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert messages_of(experiment) == 2 * 8191 * 8192
    assert 100 * GB < needed_bytes < 300 * GB
    assert peak_bytes < 1e-3 * needed_bytes


@pytest.mark.parametrize(
    "experiment",
    [pytest.param(each, id=name) for name, each in small_runs() if not (each.rule or each.faults)],
)
def test_messages_are_as_many_as_are_predicted(experiment: Experiment) -> None:
    assert messages_of(experiment) == len(predict(experiment).tables.messages)


@given(st.integers(2, 60), st.integers(2, 60))
def test_more_messages_take_more(one: int, other: int) -> None:
    fabric = rail_fabric(8, 8)
    few, many = sorted((one, other))
    assert prediction_bytes(ring(fabric, few)) <= prediction_bytes(ring(fabric, many))


def test_what_does_not_fit_is_refused_and_its_advice_followed_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = rail_fabric(16, 8)
    points = [ring(fabric, gpus) for gpus in (128, 120, 8)]
    of_each = [prediction_bytes(each) for each in points]
    assert check_memory(points, 2) == sum(of_each[:2])
    monkeypatch.setattr(memory, "machine_bytes", lambda: sum(of_each[:2]) - 1)
    with pytest.raises(ScenarioError, match=r"'ring of 128' has 32,512 messages, .* take --jobs 1$"):
        check_memory(points, 3)
    assert check_memory(points, 1) == of_each[0]
    monkeypatch.setattr(memory, "machine_bytes", lambda: of_each[0] - 1)
    with pytest.raises(ScenarioError, match="take fewer GPUs or a smaller workload") as refused:
        check_memory(points, 1)
    most = int(re.findall(r"at most ([\d,]+) messages", str(refused.value))[0].replace(",", ""))
    smaller = [each for each in points if messages_of(each) <= most]
    assert check_memory(smaller, 1) == of_each[1]
    with pytest.raises(ScenarioError, match="take fewer GPUs or a smaller workload"):
        check_memory(smaller, 1, more_bytes=15e3)  # an emulation takes more


def test_a_limit_of_address_space_counts(tmp_path: Path) -> None:
    words = ["--trace", "none", "--servers", "128", "--rails", "8", "--tp", "1", "--model-only", "--out"]
    scenario = CHECKOUT / "scenarios" / "ring_trace.py"
    done = limited(scenario, *words, str(tmp_path / "out"), most_bytes=2 << 30)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert re.search(
        r"messages, which take about [\d.]+ GB of memory, and this process may have", done.stderr
    )
    assert done.stderr.endswith("raise the limit (ulimit -v)\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, 8 << 20),
        ({"a/memory.max": "", "a/memory.current": "9"}, 8 << 20),
        ({"a/memory.max": "max", "a/memory.current": "9"}, 8 << 20),
        ({"a/memory.max": "1000", "a/memory.current": "900"}, 100),
        (
            {"a/memory.max": "1000", "a/memory.current": "900", "a/memory.stat": "anon 1\ninactive_file 300"},
            400,
        ),
        ({"a/memory.max": "max", "a/memory.current": "9", "memory.max": "50", "memory.current": "9"}, 41),
        ({"memory.max": "50", "memory.current": "60"}, 0),
        ({"memory/b/memory.limit_in_bytes": "70", "memory/b/memory.usage_in_bytes": "9"}, 61),
        ({"memory/memory.limit_in_bytes": "70", "memory/memory.usage_in_bytes": "9"}, 61),
    ],
)
def test_a_cgroup_around_this_process_leaves_it_less(
    tmp_path: Path, files: dict[str, str], left: int
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 16384 kB\nMemAvailable:    8192 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("5:cpu:/c\n4:memory:/b\n0::/a\n")
    for name, text in files.items():
        (tmp_path / "sys/fs/cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / name).write_text(f"{text}\n")
    assert shortage.machine_bytes(tmp_path) == left


def test_where_nothing_says_what_is_free_nothing_is_refused(tmp_path: Path) -> None:
    assert shortage.machine_bytes(tmp_path) == float("inf")


@pytest.mark.parametrize("name", ["sparse", "training step"])
def test_what_was_estimated_is_what_it_takes(name: str) -> None:
    assert 1 / WITHIN < estimated_over_measured(name) < WITHIN
