"""Delegated all-to-alls through the runner: legs in turn take what is bounded, held ones wait for light."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.audit_of import sound
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from tests.examples import examples
from tests.testbed.run_cases import When
from tests.traffic.cases import lent_for
from tests.traffic.delegated_bounds import bounds
from tests.traffic.test_delegation import EXAMPLE, Matrix, lit_view, sent
from topologies.big_switch import big_switch_fabric
from topologies.errors import UnsoundError
from topologies.events import Event, Hold, NodeStarted, Order, Reconfigure, View
from topologies.fabric import Fabric, Port
from topologies.light import Circuit
from topologies.mfabric import mfabric_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.delegated import Delegated, DelegatedSetup
from traffic.demand import Demand
from traffic.faults import Fault, cut
from traffic.job import Collective, Compute, Node, chain
from traffic.metrics import communication_s
from traffic.records import legs_of
from traffic.scheme_setup import SchemeSetup
from traffic.steps import single
from traffic.workloads.synthetic import uniform

DELAY_S = 0.01
WARM_UP_S = 0.02


@dataclass(frozen=True)
class Case:
    """An all-to-all behind a warm-up in which circuits are lit."""

    fabric: Fabric
    demand: Matrix
    """Between GPUs."""
    lit: tuple[Circuit, ...]
    scheme: Delegated = field(default_factory=Delegated)
    couples: bool = True
    by_bytes: bool = True
    faults: tuple[Fault, ...] = ()
    lent_bytes: Mapping[Port, float] = field(default_factory=dict)

    def run(self) -> Run:
        nodes: tuple[Node, ...] = (
            Compute("warm up", (0,), WARM_UP_S),
            Collective("send", AllToAll(Demand("drawn", self.demand))),
        )
        backend = FluidBackend(
            self.fabric,
            {"ocs0": DELAY_S},
            by_bytes=self.by_bytes,
            lent_bytes=self.lent_bytes,
        )
        circuits = When({NodeStarted("warm up"): (Reconfigure({"ocs0": self.lit}),)})
        job = chain("delegated", self.fabric.gpus, nodes)
        return Simulation(
            self.fabric,
            job,
            backend,
            self.scheme,
            circuits=circuits,
            faults=self.faults,
            couples=self.couples,
        ).run()


def took_s(run: Run) -> float:
    return run.iteration_s - WARM_UP_S


@pytest.mark.parametrize("couples", [False, True])
@pytest.mark.parametrize(("alpha", "packet_nics", "transfer_ms"), [(3, 1, 7.2), (4, 2, 3.6), (6, 2, 2.4)])
def test_worked_example(alpha: int, packet_nics: int, transfer_ms: float, couples: bool) -> None:
    fabric = mfabric_fabric(
        4, gpus=1, nics=alpha + packet_nics, packet_nics=packet_nics, one_packet_switch=True
    )
    run = Case(fabric, EXAMPLE, lit_view(fabric, EXAMPLE).lit["ocs0"], couples=couples).run()
    assert took_s(run) * 1e3 == pytest.approx(transfer_ms)


drawn = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([1, 2, 4]), st.booleans())


@settings(max_examples=examples(5, 10))
@given(drawn, st.booleans())
def test_legs_in_turn_take_their_bounds_one_after_the_other(
    case: tuple[int, int, int, bool], couples: bool
) -> None:
    seed, alpha, gpus, spill = case
    rng = np.random.default_rng(seed)
    matrix = rng.integers(1, 1000, (4 * gpus, 4 * gpus)) * 1_000_000
    fabric = mfabric_fabric(4, gpus=gpus, nics=alpha + 2, packet_nics=2, one_packet_switch=True)
    view = lit_view(fabric, matrix.reshape(4, gpus, 4, gpus).sum(axis=(1, 3)))
    scheme = Delegated(DelegatedSetup(spill=spill))
    run = Case(fabric, matrix, view.lit["ocs0"], scheme, couples).run()
    best = bounds(view, scheme.delegate(view, sent(matrix)))
    # Lanes over packet NICs that are not coupled share both ends' NICs by their bytes: nearly the bound.
    slack = 1e-6 if couples else 0.25
    assert best.in_turn_s * (1 - 1e-6) <= took_s(run) <= best.in_turn_s * (1 + slack)
    owed = sent(matrix)
    assert run.messages["bytes"].sum() == owed.bytes.sum()
    if not couples:
        assert sorted(run.messages["bytes"]) == sorted(owed.bytes.tolist())
    crossing = owed.select(owed.source // gpus != owed.destination // gpus)
    assert legs_of(run.messages)["bytes"].sum() == crossing.bytes.sum()


def two_kinds(bucket_bytes: int, by_circuit: int, by_packets: int) -> Case:
    """Return two all-to-alls in one: over circuits of 40 Gbit/s to server 1, over packets of 10 to server 2.

    NIC 0 of each server is a packet NIC and GPU 0's, NIC 1 is on light and GPU 1's; what goes over a NIC is
    owed by the other GPU of its server, to the other GPU there.
    """
    fabric = mfabric_fabric(
        3,
        gpus=2,
        nics=2,
        packet_nics=1,
        rate_bps=40e9,
        packet_bps=10e9,
        nvlink_bps=80e9,
        one_packet_switch=True,
    )
    owed = np.zeros((6, 6), dtype=np.int64)
    owed[0, 2], owed[1, 5] = by_circuit, by_packets
    ocs = {port.number: fabric.nic_at(fabric.peer(port)).server for port in fabric.used_ports("ocs0")}
    near, far = (next(number for number, server in ocs.items() if server == end) for end in (0, 1))
    lent = {port: float(bucket_bytes) for port in fabric.link_at if port.node != "ocs0"}
    return Case(fabric, owed, ((near, far), (far, near)), lent_bytes=lent)


@pytest.mark.parametrize("couples", [False, True])
@pytest.mark.parametrize(("by_circuit", "by_packets"), [(50_000_000, 5_000_000), (12_000_000, 10_000_000)])
def test_each_nic_lends_legs_what_its_own_bucket_holds(
    by_circuit: int, by_packets: int, couples: bool
) -> None:
    """The slowest NIC's time was lent to all: four times what a fast one's bucket holds."""
    bucket = 4_000_000
    run = replace(two_kinds(bucket, by_circuit, by_packets), couples=couples).run()
    inside_s = 2 * 8 * max(by_circuit, by_packets) / 80e9
    crossing_s = 8 * (by_circuit - bucket) / 40e9, 8 * (by_packets - bucket) / 10e9
    assert took_s(run) == pytest.approx(inside_s + max(crossing_s), rel=0.01)


@pytest.mark.parametrize("couples", [False, True])
def test_full_buckets_lend_to_what_follows_a_gather(couples: bool) -> None:
    matrix = np.kron(EXAMPLE, np.ones((4, 4), dtype=np.int64)) // 16
    fabric = mfabric_fabric(4, gpus=4, nics=4, packet_nics=1, nvlink_bps=400e9)
    case = Case(fabric, matrix, lit_view(fabric, EXAMPLE).lit["ocs0"], couples=couples)
    assert took_s(case.run()) - took_s(
        replace(case, lent_bytes=lent_for(fabric, 1e-3)).run()
    ) == pytest.approx(1e-3)


def test_pipelined_legs_go_at_once() -> None:
    matrix = np.kron(EXAMPLE, np.ones((4, 4), dtype=np.int64)) // 16
    fabric = mfabric_fabric(4, gpus=4, nics=4, packet_nics=1, nvlink_bps=400e9)
    view = lit_view(fabric, EXAMPLE)
    runs = [
        Case(fabric, matrix, view.lit["ocs0"], Delegated(DelegatedSetup(pipelined=pipelined))).run()
        for pipelined in (False, True)
    ]
    best = bounds(view, Delegated().delegate(view, sent(matrix)))
    assert took_s(runs[0]) == pytest.approx(best.in_turn_s)
    assert best.pipelined_s <= took_s(runs[1]) * (1 + 1e-9)
    assert took_s(runs[1]) < took_s(runs[0])


@dataclass(frozen=True)
class Overlapping:
    """Settings of another scheme whose stages overlap, and whether they say so."""

    pipelined: bool
    name = "overlapping"
    words = ()
    rest = ""
    by_bytes = True

    def scheme(self, rest: object, *, over_circuits: bool) -> Delegated:
        """Return it for one run."""
        return Delegated(DelegatedSetup(pipelined=True))


def test_stages_may_overlap_under_any_scheme_that_says_so() -> None:
    fabric = big_switch_fabric(2, nics=2, gpus=2)
    said, unsaid = (
        predict(Experiment(fabric, single(uniform(fabric.gpus)), cast(SchemeSetup, Overlapping(word))))
        for word in (True, False)
    )
    assert sound(said)
    with pytest.raises(UnsoundError, match="before all was gathered"):
        sound(unsaid)


def test_a_held_collective_sends_when_its_light_is_there() -> None:
    fabric = mfabric_fabric(4, gpus=1, nics=4, packet_nics=1)
    lit = lit_view(fabric, EXAMPLE).lit["ocs0"]
    nodes = (
        Compute("warm up", (0,), WARM_UP_S),
        Collective("send", AllToAll(Demand("drawn", EXAMPLE))),
    )
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("send"): (Reconfigure({"ocs0": lit}), Hold("send", ("ocs0",)))
    }
    for delay_s in (DELAY_S, 10 * DELAY_S):
        backend = FluidBackend(fabric, {"ocs0": delay_s})
        run = Simulation(fabric, chain("held", 4, nodes), backend, Delegated(), circuits=When(orders)).run()
        assert took_s(run) == pytest.approx(delay_s + 7.2e-3)
        assert communication_s(run.tables) == pytest.approx(took_s(run)), "what it waits for is its own time"
        assert run.events["what"].tolist() == ["held", "drained", "lit", "released"]


def test_what_a_failed_circuit_nic_leaves_over_goes_over_packets() -> None:
    fabric = mfabric_fabric(2, gpus=2, nics=4, packet_nics=2, one_packet_switch=True)
    demand = np.kron(np.array([[0, 1], [1, 0]]), np.ones((2, 2), dtype=np.int64)) * 100_000_000
    view = lit_view(fabric, demand.reshape(2, 2, 2, 2).sum(axis=(1, 3)))
    ports = tuple(fabric.nic_port(nic) for nic in fabric.nics if nic.server == 0 and nic.nic in (1, 3))
    fault = cut("both", ports, "send", 0.005, 0.001)
    run = Case(fabric, demand, view.lit["ocs0"], faults=(fault,)).run()
    assert run.messages["end_s"].notna().all()
    legs = legs_of(run.messages)
    assert legs["bytes"].sum() == 8 * 100_000_000
    assert {leg.split(">")[0][-1] for leg in legs["path"]} == {"0", "1", "2", "3"}
    assert took_s(run) > bounds(view, Delegated().delegate(view, sent(demand))).in_turn_s


def test_without_circuits_all_goes_over_packet_nics() -> None:
    fabric = mfabric_fabric(4, gpus=1, nics=3, packet_nics=2, one_packet_switch=True)
    run = Case(fabric, EXAMPLE, ()).run()
    view = View(0.0, fabric, {"ocs0": ()}, frozenset())
    assert took_s(run) == pytest.approx(bounds(view, Delegated().delegate(view, sent(EXAMPLE))).transfer_s)
