"""A backend of somebody else's, outside the checkout, runs all that the two here do."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from testbed.core.backend import Backend
from testbed.experiment.running import simulation_of
from testbed.model.predict import predict
from tests.audit.cases import small_runs
from tests.testbed import toy_backend
from tests.testbed.tables import check_tables
from traffic.clock import NEVER
from traffic.tables import Tables

RUNS = dict(small_runs())
MOST_LINES, MOST_MEMBERS = 150, 12


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> type:
    """Return the class of a copy outside the checkout."""
    path = tmp_path_factory.mktemp("elsewhere") / "toy.py"
    path.write_text(Path(toy_backend.__file__).read_text())
    found = importlib.util.spec_from_file_location("toy", path)
    assert found
    assert found.loader
    module = sys.modules["toy"] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return cast(type, module.ToyBackend)


def test_it_is_short_and_a_backend_has_few_members() -> None:
    lines = Path(toy_backend.__file__).read_text().splitlines()
    assert len(lines) <= MOST_LINES
    members = {name for base in Backend.__mro__ for name in vars(base) if not name.startswith("_")}
    assert len(members) <= MOST_MEMBERS
    assert members <= vars(toy_backend.ToyBackend).keys() | {"now_ps"}


@pytest.mark.parametrize("couples", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_it_brings_what_the_model_brings(name: str, couples: bool, toy: type) -> None:
    """With faults, which catch each backend at another place, it brings all that is not given up."""
    experiment = RUNS[name]
    delays_s = {ocs: delay.mean_s for ocs, delay in experiment.ocs_delays.items()}
    bytes_s = 1e12 if experiment.has_slots else 1e9  # slots are as long as NICs need
    backend: Backend = toy(experiment.fabric, delays_s, bytes_s)
    found = simulation_of(experiment, backend, couples=couples).run().tables
    check_tables(found)
    if experiment.faults:
        messages = found.messages
        assert ((messages["end_ps"] < NEVER) | messages["given_up"]).all()
    else:
        assert arrived(found) == arrived(predict(experiment, couples=couples).tables)


def test_nodes_start_at_their_times_over_it(toy: type) -> None:
    experiment = RUNS["starts"]
    tables = simulation_of(experiment, toy(experiment.fabric, {}, 1e9)).run().tables
    ready_ps = tables.spans.groupby("node")["ready_ps"].min()
    expected = {"all": 0, "early": 10_000_000, "last": 10_000_000_000}
    assert {name: ready_ps[tables.nodes.index(name)] for name in expected} == expected


def arrived(tables: Tables) -> Counter[tuple[str, int, int]]:
    """Return the bytes that arrived between GPUs in each node."""
    found = Counter[tuple[str, int, int]]()
    messages = tables.messages[tables.messages["end_ps"] < NEVER]
    for node, *ends, size in messages[["node", "source", "destination", "bytes"]].to_numpy().tolist():
        found[tables.nodes[node], ends[0], ends[1]] += size
    return found
