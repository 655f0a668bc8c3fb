"""What is sprayed over many entropies, in the model: in fixed shares, or wherever a path has room."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.packet_paths import paths_over
from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.choices import FluidChoices
from testbed.model.predict import predict
from tests.examples import examples
from topologies.fabric import Fabric, Nic, Path, Port
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.clock import NEVER, SECOND
from traffic.demand import Demand
from traffic.effects import Down, Slow
from traffic.faults import Fault, When
from traffic.fluid.network import FluidNetwork
from traffic.metrics import path_bytes
from traffic.spraying.policy import SPRAYED, Lanes, LaneSet, LaneState, Message, QueuePair
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


def test_a_message_has_arrived_with_its_last_share_and_what_is_on_queue_pairs_by_itself() -> None:
    network = FluidNetwork([8.0] * 3)
    choices = FluidChoices(network, lambda _message: None)
    choices.add_pools(0, [(10,), (11,)], network.add_flows([[0], [1], [2]])[:2])
    choices.post([(10,), (11,)], np.array([1, 3]), np.array([7, 7]), 0)
    network.post(2, 2, 7)
    ended = [choices.landed(each.message, each.pool) for _ in range(3) for each in network.advance(NEVER)]
    assert ended == [False, True, True]
    assert choices.has_arrived(7)


def delayed_choices() -> tuple[FluidNetwork, FluidChoices]:
    """Return two queue pairs of 1 byte/s whose bytes arrive 10 s after they left, and choices among them."""
    network = FluidNetwork([8.0] * 2)
    choices = FluidChoices(network, lambda _message: None)
    choices.add_pools(0, [(10,), (11,)], network.add_flows([[0], [1]], delay_s=10.0))
    return network, choices


def landings(network: FluidNetwork, choices: FluidChoices) -> list[tuple[int, bool]]:
    """Return when bytes arrive from now on [s], and whether their message has arrived then."""
    arrived = []
    while not network.quiet:
        arrived += network.advance(NEVER)
    return [(each.at_ps // SECOND, choices.landed(each.message, each.pool)) for each in arrived]


def test_what_was_on_its_way_of_a_message_that_was_recalled_is_not_what_is_posted_anew() -> None:
    network, choices = delayed_choices()
    choices.post([(10,), (11,)], np.array([1, 5]), np.array([7, 7]), 0)
    network.advance(2 * SECOND)
    assert choices.recall([7])[0] == {7: ({10: 1, 11: 2}, 3)}
    choices.post([(10,)], np.array([3]), np.array([7]), 1)
    assert landings(network, choices) == [(11, False), (15, True)]


def test_a_message_that_is_booked_on_its_way_arrives_with_its_last_share() -> None:
    network, choices = delayed_choices()
    choices.post([(10,), (11,)], np.array([1, 3]), np.array([7, 7]), 0)
    network.advance(4 * SECOND)
    assert choices.has_arrived(7)
    assert choices.chosen(7, goes_on=False) == {10: 1, 11: 3}
    assert landings(network, choices) == [(11, False), (13, True)]


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


def flows(fabric: Fabric, scheme: str, sizes: dict[tuple[int, int], int], *faults: Fault) -> Experiment:
    """Return messages of so many times `SIZE` between GPUs."""
    matrix = np.zeros((fabric.gpus, fabric.gpus), dtype=np.int64)
    for ends, size in sizes.items():
        matrix[ends] = size * SIZE
    return Experiment(fabric, single(Demand("flows", matrix)), scheme, UNSCALED, faults=faults)


@pytest.mark.parametrize("scheme", ["spray", "reps"])
@pytest.mark.parametrize(
    ("sizes", "whole"),
    [
        ({(0, 1): 1, (0, 2): 1}, 2.0),
        ({(1, 0): 3, (4, 2): 3, (1, 2): 4, (0, 3): 1, (3, 0): 4}, 7.0),
        ({(0, 1): 3, (3, 4): 1, (5, 1): 3, (2, 3): 4, (4, 2): 3, (0, 2): 3}, 6.0),
        ({(1, 0): 3, (4, 0): 4, (4, 5): 3, (1, 3): 2, (1, 2): 2}, 8.0),
    ],
)
def test_two_nics_count_as_one_however_many_paths_join_them(
    scheme: str, sizes: dict[tuple[int, int], int], whole: float
) -> None:
    """By hand, each pair fairly; emulated 2.01, 7.06, 6.05, 8.06. With a weight for each path: up to 9.25."""
    fabric = leaf_spine_fabric(6, 2, 4)
    run = predict(flows(fabric, scheme, sizes))
    bit_s = fabric.nic_rate_bps(fabric.nics[0])
    assert run.iteration_s * bit_s / 8 / SIZE == pytest.approx(whole, rel=0.01)


@pytest.mark.parametrize("scheme", ["spray", "reps", "plb", "minrtt:4"])
def test_what_no_path_leads_around_waits_for_its_own(scheme: str) -> None:
    fabric = leaf_spine_fabric(4, 2, 2)
    healthy = flows(fabric, scheme, {(0, 3): 2})
    took_s = predict(healthy).iteration_s
    uplinks = tuple(port for port in fabric.link_at if port.node == "leaf0" and port.number >= 2)
    fault = Fault("both", (Down(uplinks),), When("", 0.2 * took_s, 0.3 * took_s), 0.1 * took_s)
    run = predict(replace(healthy, faults=(fault,)))
    assert run.audit is not None
    assert not run.audit.findings
    assert run.messages["end_s"].notna().all()
    assert run.iteration_s >= 1.3 * took_s * (1 - 1e-9)


class TwoSets:
    """An oblivious scheme whose first GPU has all entropies, and whose second has one of them."""

    name, per_packet, oblivious = "two sets", True, True

    def open(self, *, fabric: Fabric, rng: np.random.Generator) -> None:
        """Begin."""
        self._fabric = fabric

    def admit(self, *, message: Message) -> Lanes:
        """Return the lanes of the message's GPU."""
        near, far = (self._fabric.pinned_nic(gpu) for gpu in (message.source, message.destination))
        return (LaneSet((near,), (far,), range(64) if message.source == 0 else (0,)),)

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the first lane: predictions do not ask."""
        return 0

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Learn nothing."""

    def withdraw(self, *, message: int) -> None:
        """Forget nothing."""


def test_each_message_has_the_shares_of_its_own_entropies() -> None:
    fabric = leaf_spine_fabric(4, 2, 2, nics=1, gpus=2)
    own = f"{__name__}:TwoSets"
    lone = carried(predict(flows(fabric, own, {(0, 6): 1})))
    beside = carried(predict(flows(fabric, own, {(0, 6): 1, (1, 7): 1})))
    assert len(lone) == len(beside) == 2
    more = {path: size - lone[path] for path, size in beside.items()}
    assert sorted(more.values()) == [0, SIZE], "the other message goes by one path whole"


def test_links_end_where_ports_say() -> None:
    """The cases above cut what they mean to: a leaf's port to a spine."""
    fabric = leaf_spine_fabric(4, 2, 2)
    path = next(iter(shares(fabric, fabric.nics[0], fabric.nics[-1])))
    assert [port.node.rstrip("0123456789") for port in path] == ["h", "leaf", "spine", "leaf"]
    assert fabric.peer(path[-1]) == Port("h3", 0)
