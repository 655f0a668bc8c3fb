"""Faults in predicted runs: what survives arrives, around what failed, and takes what the rest can carry."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import UNSCALED
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from tests.examples import examples
from tests.testbed.ocs_cases import experiment_of
from topologies.errors import ScenarioError, StuckError
from topologies.fabric import Fabric, Nic, Port
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.effects import Down, Gone, Killed
from traffic.faults import Fault, KnownRevision, Revisions, When, cut
from traffic.job import Collective, Compute, Job
from traffic.records import NVLINK
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import uniform

RAIL = rail_fabric(4, 3, 2)
FABRICS = [RAIL, leaf_spine_fabric(4, 2, 2, gpus=2, nics=2), fat_tree_fabric(4, gpus=1, servers=6)]
SCHEMES = ["ecmp", "rails", "reps", "minrtt", "plb", "pxn"]
CREDIT = TransportSetup("credit")


def asked(fabric: Fabric, scheme: str, seed: int, *faults: Fault) -> Experiment:
    """Return an all-to-all of random sizes."""
    matrix = np.random.default_rng(seed).integers(0, 400_000, (fabric.gpus, fabric.gpus))
    job = single(Demand("drawn", matrix))
    return Experiment(fabric, job, scheme, UNSCALED, seed, transport=CREDIT, faults=faults)


def carried(run: Run) -> list[list[tuple[int, str]]]:
    """Return the legs of each message: bytes and path."""
    legs = [[word.partition("@") for word in path.split(" ")] for path in run.messages["path"]]
    return [[(int(size), path) for size, _, path in each if size != NVLINK] for each in legs]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Experiment, Experiment]:
    """Draw an experiment, and the same with a NIC or a link between switches that fails, and may be back."""
    fabric = draw(st.sampled_from(FABRICS))
    scheme = draw(st.sampled_from(SCHEMES if fabric is RAIL else SCHEMES[:1] + SCHEMES[2:]))
    several = [nic for nic in fabric.nics if fabric.servers[nic.server].nics > 1]
    nics = [fabric.nic_port(nic) for nic in several]
    trunks = [link.a for link in fabric.links if {link.a.node, link.b.node} <= fabric.switch_index.keys()]
    healthy = asked(fabric, scheme, draw(st.integers(0, 9)))
    took_s = predict(healthy).iteration_s
    share, lasts = draw(st.floats(0, 1.1)), draw(st.none() | st.floats(0.01, 0.5))
    fault = cut(
        "cut",
        (draw(st.sampled_from([*nics, *trunks])),),
        after_s=share * took_s,
        detect_s=draw(st.sampled_from([0.0, 0.02, 0.2])) * took_s,
        lasts_s=lasts and lasts * took_s,
    )
    return healthy, replace(healthy, faults=(fault,))


@given(cases())
@settings(max_examples=examples(18, 60), deadline=None)
def test_all_bytes_arrive_around_what_failed(case: tuple[Experiment, Experiment]) -> None:
    healthy, faulty = (predict(each) for each in case)
    (fault,) = case[1].faults
    assert faulty.messages["end_s"].notna().all()
    columns = ["source", "destination", "bytes"]
    assert faulty.messages[columns].equals(healthy.messages[columns])
    legs = carried(faulty)
    crossing = [n for n, each in enumerate(legs) if each]
    assert [sum(size for size, _ in legs[n]) for n in crossing] == faulty.messages["bytes"][crossing].tolist()
    known = faulty.events.loc[faulty.events["what"] == "detected", "at_s"]
    if fault.when.lasts_s is None and len(known):
        fabric = case[0].fabric
        dead = {str(end) for port in fault.ports for end in (port, fabric.peer(port))}
        later = (faulty.messages["start_s"] > known.iloc[0]).to_numpy()
        assert not any(dead & set(path.split(",")) for n in np.flatnonzero(later) for _, path in legs[n])


@given(st.integers(0, 2), st.floats(0, 0.9), st.sampled_from([0.0, 0.05]))
@settings(max_examples=examples(6, 20), deadline=None)
def test_rails_without_a_nic_has_the_others_of_its_server(nic: int, share: float, detect: float) -> None:
    healthy = Experiment(RAIL, single(uniform(RAIL.gpus)), "rails", UNSCALED, transport=CREDIT)
    took_s = predict(healthy).iteration_s
    fault = cut("nic", (RAIL.nic_port(Nic(2, nic)),), after_s=share * took_s, detect_s=detect * took_s)
    expected = share + detect + (1 - share - detect * 2 / 3) * 3 / 2
    found = predict(replace(healthy, faults=(fault,))).iteration_s / took_s
    assert found == pytest.approx(max(expected, 1.0), rel=0.03)


def test_a_server_that_is_gone_is_owed_nothing_and_the_others_get_all() -> None:
    healthy = asked(RAIL, "rails", 0)
    took_s = predict(healthy).iteration_s
    gone = tuple(range(*RAIL.gpu_offsets[1:3]))
    fault = cut(
        "server", tuple(RAIL.used_ports("h1")), after_s=0.3 * took_s, detect_s=0.01 * took_s, gpus=gone
    )
    run = predict(replace(healthy, faults=(fault,)))
    touched = run.messages["source"].isin(gone) | run.messages["destination"].isin(gone)
    assert run.messages.loc[~touched, "end_s"].notna().all()
    ended = run.messages.loc[touched, "end_s"].dropna()
    assert len(ended) < touched.sum()
    assert ended.empty or ended.max() <= 0.31 * took_s


def test_what_waits_for_a_gpu_that_is_gone_is_an_error_unless_it_is_its_own() -> None:
    ring = Collective("ring", Ring(((0, 3, 6),), 3_000_000), ("warm up",))
    job = Job("drawn", RAIL.gpus, (Compute("warm up", (0, 3, 6), 1e-4), ring))
    fault = Fault("gpu", (Gone((3,)),), When("ring", 1e-5))
    experiment = Experiment(RAIL, job, "rails", UNSCALED, transport=CREDIT, faults=(fault,))
    with pytest.raises(ScenarioError, match="'ring' cannot go on without GPU 3, which is gone"):
        predict(experiment)
    alone = Job("drawn", RAIL.gpus, (Compute("long", (2, 3), 1.0), Compute("then", (2,), 1.0, ("long",))))
    early = Fault("gpu", (Gone((3,)),), When(after_s=0.5))
    run = predict(replace(experiment, job=alone, faults=(early,)))
    assert run.tasks[["node", "gpu", "end_s"]].to_numpy().tolist() == [["long", 2, 1.0], ["then", 2, 2.0]]


def test_a_collective_that_lost_a_gpu_lets_nothing_begin_that_waits_for_it() -> None:
    """What was lost made a job faster."""
    healthy = asked(RAIL, "rails", 0)
    (step,) = healthy.job.collectives
    gate = Compute("gate", (0, 1), 1e-3, (step.name,))
    fault = Fault("gpu:3", (Gone((3,)),), When(after_s=0.4 * predict(healthy).iteration_s))
    experiment = replace(healthy, job=replace(healthy.job, nodes=(*healthy.job.nodes, gate)), faults=(fault,))
    with pytest.raises(ScenarioError, match=f"'{step.name}' cannot go on without GPU 3, which is gone"):
        predict(experiment)


def test_a_fault_may_count_from_a_node_that_computes_nothing() -> None:
    nodes = (Compute("barrier", (), 0.0), Compute("long", (0, 1), 1.0, ("barrier",)))
    fault = Fault("gpu:1", (Gone((1,)),), When("barrier", 0.5), 0.1)
    run = predict(Experiment(RAIL, Job("drawn", RAIL.gpus, nodes), "rails", faults=(fault,)))
    happened = run.events[["at_s", "what", "which"]].to_numpy().tolist()
    assert happened[:2] == [[0.5, "failed", "gpu:1"], [0.6, "detected", "gpu:1"]]


def test_what_waits_for_a_collective_that_is_given_up_for_nothing_goes_on() -> None:
    healthy = asked(RAIL, "rails", 0)
    (step,) = healthy.job.collectives
    then = Compute("then", (0,), 1.0, (step.name,))
    job = replace(healthy.job, nodes=(*healthy.job.nodes, then))
    backend, fault = FluidBackend(RAIL, {}), Fault("gpu:3", (Gone((3,)),), When(after_s=1e-5), 1e-5)
    simulation = Simulation(
        RAIL,
        job,
        backend,
        healthy.new_scheme(),
        faults=(fault,),
        revisions=Revisions((KnownRevision("gpu:3", (step.name,)),)),
    )
    run = simulation.run()
    assert run.iteration_s == pytest.approx(1.0 + 2e-5)


def test_switches_forward_on_without_the_controller_and_not_without_their_daemon() -> None:
    healthy = asked(RAIL, "ecmp", 0)
    took_s = predict(healthy).iteration_s
    without = Fault("controller", (Killed("controller"),), When(after_s=0.4 * took_s))
    assert predict(replace(healthy, faults=(without,))).iteration_s == took_s
    stopped = Fault("switches", (Killed("switches"),), When("", 0.4 * took_s, 0.5 * took_s))
    stood = predict(replace(healthy, faults=(stopped,))).iteration_s
    assert stood == pytest.approx(1.5 * took_s, rel=0.05)  # what is left is sent over paths drawn anew
    with pytest.raises(StuckError, match="nothing more can arrive after switches: nothing is on its way"):
        predict(replace(healthy, faults=(replace(stopped, when=When(after_s=0.4 * took_s)),)))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("detect", [0.05, 0.3])
def test_connections_wait_until_switches_that_were_away_are_known_to_be_back(
    scheme: str, detect: float
) -> None:
    healthy = asked(RAIL, scheme, 0)
    took_s = predict(healthy).iteration_s
    away = Fault("switches", (Killed("switches"),), When("", 0.4 * took_s, 0.2 * took_s), detect * took_s)
    stood = predict(replace(healthy, faults=(away,)))
    assert stood.iteration_s == pytest.approx((1.2 + detect) * took_s, rel=0.06)
    ends_s = stood.messages["end_s"]
    assert not ((ends_s > 0.4 * took_s) & (ends_s < (0.6 + detect) * took_s)).any()
    assert stood.messages["end_s"].notna().all()


@given(st.integers(0, 5), st.integers(0, 1), st.floats(0, 1), st.sampled_from(["spectra", "rotor"]))
@settings(max_examples=examples(5, 15), deadline=None)
def test_what_a_lost_port_of_an_ocs_leaves_over_goes_over_others(
    port: int, ocs: int, share: float, scheduler: str
) -> None:
    healthy = experiment_of(scheduler)
    before = predict(healthy)
    took_s = before.iteration_s
    lost = cut("port", (Port(f"ocs{ocs}", port),), after_s=share * took_s, detect_s=0.02 * took_s)
    after = predict(replace(healthy, faults=(lost,)))
    assert after.messages["end_s"].notna().all()
    assert after.messages[["source", "destination", "bytes"]].equals(
        before.messages[["source", "destination", "bytes"]]
    )
    assert after.iteration_s >= took_s * (1 - 1e-9)


def test_over_circuits_a_server_that_is_gone_is_owed_nothing() -> None:
    healthy = experiment_of("spectra")
    took_s = predict(healthy).iteration_s
    ports = tuple(healthy.fabric.used_ports("h2"))
    run = predict(replace(healthy, faults=(cut("server", ports, after_s=0.3 * took_s, gpus=(2,)),)))
    touched = run.messages["source"].eq(2) | run.messages["destination"].eq(2)
    assert run.messages.loc[~touched, "end_s"].notna().all()
    assert run.messages.loc[touched, "end_s"].isna().any()


def test_ocses_are_not_stepped_without_a_controller() -> None:
    healthy = experiment_of("spectra")
    killed = Fault("controller", (Killed("controller"),), When(after_s=0.4 * predict(healthy).iteration_s))
    with pytest.raises(StuckError, match="the controller was killed, and OCSes wait for its commands"):
        predict(replace(healthy, faults=(killed,)))


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ([cut("cut", (Port("h9", 1),))], "of port h9:1, which has no link"),
        ([Fault("gone", (Gone((99,)),))], "of GPU 99, of 12"),
        ([cut("cut", (Port("h0", 1),))] * 2, "'cut' is there twice"),
        (
            [cut("cut", (Port("h0", 1),)), Fault("away", (Killed("controller"),))],
            "the controller fails in a run in which switches need it",
        ),
    ],
)
def test_faults_that_do_not_go_together_or_with_the_fabric_are_refused(
    faults: list[Fault], sentence: str
) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        asked(RAIL, "rails", 0, *faults)


def test_a_link_that_failed_from_both_ends_is_back_when_both_faults_are_over() -> None:
    healthy = asked(RAIL, "rails", 0)
    took_s = predict(healthy).iteration_s
    port = RAIL.nic_port(Nic(2, 1))
    late = partial(cut, after_s=0.1 * took_s, detect_s=4 * took_s)
    alone = replace(healthy, faults=(late("one", (port,)),))
    both = (late("one", (port,)), late("two", (RAIL.peer(port),), lasts_s=0.1 * took_s))
    assert predict(replace(healthy, faults=both)).iteration_s == predict(alone).iteration_s > 4 * took_s


def test_switches_forward_again_when_all_that_stopped_them_is_over() -> None:
    healthy = asked(RAIL, "rails", 0)
    took_s = predict(healthy).iteration_s
    stops = [
        Fault(name, (Killed("switches"),), When("", after * took_s, 0.4 * took_s))
        for name, after in (("one", 0.2), ("two", 0.4))
    ]
    assert predict(replace(healthy, faults=tuple(stops))).iteration_s == pytest.approx(1.6 * took_s, rel=0.05)


def test_an_experiment_with_faults_is_read_back() -> None:
    fault = Fault("cut", (Down((Port("h0", 1),)), Killed("switches")), When("step 0", 1e-3, 0.5), 1e-4)
    experiment = asked(RAIL, "rails", 0, fault)
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert experiment.scheme_name == "rails, cut"


@pytest.mark.parametrize(
    "wrong",
    [
        partial(Fault, effects=()),
        partial(Fault, effects=(Down(()),)),
        partial(Fault, effects=(Killed("switches"), Killed("controller"))),
        partial(Fault, effects=(Killed("switches"),), when=When(after_s=-1.0)),
        partial(Fault, effects=(Killed("switches"),), detect_s=float("nan")),
        partial(Fault, effects=(Killed("switches"),), when=When(lasts_s=0.0)),
        partial(Fault, effects=(Gone((1,)),), when=When(lasts_s=1.0)),
    ],
)
def test_a_fault_that_cannot_be_is_refused(wrong: Callable[[str], Fault]) -> None:
    with pytest.raises(ScenarioError, match="fault 'cut'"):
        wrong("cut")
