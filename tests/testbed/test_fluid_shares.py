"""What is sprayed over many entropies, in the model: in fixed shares, or wherever a path has room."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.packet_paths import paths_over
from testbed.run.predict import predict
from testbed.run.run import Run
from tests.examples import examples
from topologies.fabric import Fabric, Nic, Path, Port
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.effects import Down, Slow
from traffic.faults import Fault, When
from traffic.metrics import path_bytes
from traffic.spraying.policy import SPRAYED, QueuePair
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup

UNSCALED = Dilation(1.0, 1.0)
SIZE = 10_000_000
FABRICS = (leaf_spine_fabric(4, 2, 3), rail_fabric(3, 2, 2), fat_tree_fabric(4))


def shares(fabric: Fabric, source: Nic, destination: Nic) -> dict[Path, float]:
    """Return which share of 64 entropies takes each path between two NICs."""
    by_entropy = paths_over(fabric, datagrams=True).by_entropy(QueuePair(source, destination, SPRAYED))
    return {path: took / len(by_entropy) for path, took in Counter(by_entropy).items()}


def alone(fabric: Fabric, scheme: str, *faults: Fault) -> Experiment:
    """Return one message, from the first GPU to the last."""
    matrix = np.zeros((fabric.gpus, fabric.gpus), dtype=np.int64)
    matrix[0, -1] = SIZE
    return Experiment(fabric, single(Demand("one", matrix)), scheme, UNSCALED, faults=faults)


def drawn(fabric: Fabric, scheme: str, seed: int) -> Experiment:
    """Return an all-to-all of random sizes."""
    matrix = np.random.default_rng(seed).integers(0, 400_000, (fabric.gpus, fabric.gpus))
    return Experiment(fabric, single(Demand("drawn", matrix)), scheme, UNSCALED, seed)


def carried(run: Run) -> Counter[Path]:
    """Return what paths between servers carried."""
    return Counter({path: size for path, size in path_bytes(run.tables).items() if len(path) > 1})


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)
def test_an_oblivious_scheme_sends_by_each_path_what_entropies_take_it(fabric: Fabric) -> None:
    asked, last = alone(fabric, "spray"), fabric.pinned_nic(fabric.gpus - 1)
    found, nics = carried(predict(asked)), range(fabric.servers[0].nics)
    owed = {
        path: share / len(nics) * SIZE
        for nic in nics
        for path, share in shares(fabric, Nic(0, nic), last).items()
    }
    assert found.keys() == owed.keys()
    assert all(found[path] == pytest.approx(size, abs=1) for path, size in owed.items())


@pytest.mark.parametrize("left", [0.1, 0.5])
def test_a_slow_link_holds_up_what_is_oblivious_and_not_what_looks(left: float) -> None:
    fabric = leaf_spine_fabric(4, 2, 2)
    by_path = shares(fabric, fabric.nics[0], fabric.nics[-1])
    slow, share = next((path[1], share) for path, share in by_path.items() if path[1].node == "leaf0")
    fault = Fault("slow", (Slow((slow,), left),))
    rate_bps = fabric.link_at[slow].rate_bps
    whole_s = 8 * SIZE / rate_bps
    oblivious = predict(alone(fabric, "spray", fault)).iteration_s
    assert oblivious == pytest.approx(whole_s * max(1.0, share / left), rel=0.02)
    looking = predict(alone(fabric, "reps", fault)).iteration_s
    assert looking == pytest.approx(whole_s, rel=0.02)  # the other path has room for all of it


@pytest.mark.parametrize("scheme", ["spray", "reps", "plb", "minrtt:4"])
@given(seed=st.integers(0, 99), which=st.integers(0, 999), after=st.floats(0, 1), detect=st.floats(0, 0.5))
@settings(max_examples=examples(4, 20), deadline=None)
def test_every_byte_arrives_once_around_a_link_that_fails(
    scheme: str, seed: int, which: int, after: float, detect: float
) -> None:
    fabric = leaf_spine_fabric(4, 2, 3)
    healthy = drawn(fabric, scheme, seed)
    before = predict(healthy)
    inner = [port for port in fabric.link_at if port.node.startswith("spine")]
    port = inner[which % len(inner)]
    when = When(after_s=after * before.iteration_s)
    fault = Fault("cut", (Down((port,)),), when, detect * before.iteration_s)
    run = predict(replace(healthy, faults=(fault,)))
    assert run.audit is not None
    assert not run.audit.findings
    assert run.messages["end_s"].notna().all()
    assert run.messages[["source", "destination", "bytes"]].equals(
        before.messages[["source", "destination", "bytes"]]
    )
    # what is there counts on, and what is left goes around: each byte crosses from server to server once
    assert sum(carried(run).values()) == sum(carried(before).values())


def test_entropies_as_they_are_decide_where_packets_can_go() -> None:
    fabric = fat_tree_fabric(4)
    few = replace(alone(fabric, "spray"), transport=TransportSetup("credit", entropies=2))
    by_entropy = paths_over(fabric, datagrams=True).by_entropy(
        QueuePair(fabric.nics[0], fabric.nics[-1], SPRAYED)
    )
    assert carried(predict(few)).keys() == set(by_entropy[:2])
    one = carried(predict(alone(fabric, "spray:1")))
    assert len(one) == 1
    assert set(one) <= set(by_entropy)


def test_links_end_where_ports_say() -> None:
    """The cases above cut what they mean to: a leaf's port to a spine."""
    fabric = leaf_spine_fabric(4, 2, 2)
    path = next(iter(shares(fabric, fabric.nics[0], fabric.nics[-1])))
    assert [port.node.rstrip("0123456789") for port in path] == ["h", "leaf", "spine", "leaf"]
    assert fabric.peer(path[-1]) == Port("h3", 0)
