"""NICs that fail under delegated all-to-alls: what is left arrives, and circuits go without them."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.run.experiment import Experiment
from testbed.run.predict import predict
from testbed.run.region_plan import First
from testbed.run.runner import Run
from tests.testbed.region_cases import toy_experiment, toy_step
from topologies.fabric import Fabric, Nic
from topologies.packet_part import on_packet_switch
from traffic.faults import Fault
from traffic.records import NVLINK, path_of


@cache
def step(first: First = "block", alpha: int = 2, packet_nics: int = 2) -> Experiment:
    return toy_experiment(
        toy_step(ranks=4, layers=1, micro_batches=2), first, servers=4, alpha=alpha, packet_nics=packet_nics
    )


@cache
def healthy_s(experiment: Experiment) -> float:
    return predict(experiment).iteration_s


def lost(
    fabric: Fabric, *nics: tuple[int, int], after_s: float = 0.0, detect_s: float = 0.0
) -> tuple[Fault, ...]:
    """Return a fault per NIC, server and number each; by default they stand from the start."""
    return tuple(
        Fault(f"nic:{nic[0]}:{nic[1]}", (fabric.nic_port(Nic(*nic)),), "", after_s, detect_s) for nic in nics
    )


def packet_nics(fabric: Fabric, server: int) -> list[tuple[int, int]]:
    return [
        (nic.server, nic.nic) for nic in fabric.nics if nic.server == server and on_packet_switch(fabric, nic)
    ]


def check_bytes(fabric: Fabric, run: Run) -> None:
    """Check that all of each message left its server, went through others whole, and arrived."""
    assert run.messages["end_s"].notna().all()
    columns = (run.messages[name].tolist() for name in ("source", "destination", "bytes", "path"))
    for source, destination, owed, text in zip(*columns, strict=True):
        if text == NVLINK:
            continue
        net = Counter[int]()
        for leg in text.split():
            size, _, ports = leg.partition("@")
            path = path_of(ports)
            net[fabric.server_index[path[0].node]] += int(size)
            net[fabric.server_index[fabric.peer(path[-1]).node]] -= int(size)
        near, far = (fabric.gpu_servers[gpu] for gpu in (source, destination))
        assert {server: size for server, size in net.items() if size} == {near: owed, far: -owed}


def shown(run: Run, after_s: float) -> list[set[int]]:
    """Return the ports with circuits that each reconfiguration lit that was ordered later than some time."""
    drained = run.events[run.events["what"] == "drained"]["at_s"].tolist()
    lit = run.events[run.events["what"] == "lit"]["which"].tolist()
    return [
        {int(end) for circuit in which.split()[1:] for end in circuit.split(">") if end != "-"}
        for at_s, which in zip(drained, lit, strict=True)
        if at_s > after_s
    ]


@pytest.mark.parametrize("nic", [0, 1])
def test_steps_without_a_nic_from_the_start_are_coupled(nic: int) -> None:
    experiment = toy_experiment(toy_step(ranks=4, layers=1), servers=4, alpha=1, packet_nics=2)
    (fault,) = lost(experiment.fabric, (0, nic))
    standing = replace(experiment, faults=(fault,))
    coupled, lanes = (predict(standing, couples=couples) for couples in (True, False))
    assert len(coupled.messages) < len(lanes.messages)
    assert coupled.iteration_s == pytest.approx(lanes.iteration_s, rel=0.02)
    later = replace(standing, faults=(replace(fault, after_s=1e-9),))
    assert predict(later, couples=True).iteration_s == pytest.approx(lanes.iteration_s)
    assert coupled.iteration_s >= predict(experiment, couples=True).iteration_s


nics = st.sets(st.sampled_from(list(product(range(4), range(4)))), min_size=1, max_size=4)


@settings(max_examples=25)
@given(
    nics,
    st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4),
    st.sampled_from([0.0, 0.02]),
    st.sampled_from([None, 0.1]),
    st.sampled_from(["block", "reuse"]),
)
def test_every_byte_arrives_whatever_fails_when(
    failing: set[tuple[int, int]],
    shares: list[float],
    detect_share: float,
    lasts_share: float | None,
    first: First,
) -> None:
    experiment = step(first)
    fabric, whole_s = experiment.fabric, healthy_s(experiment)
    # One circuit NIC and the server's way to others stay: NIC 3 of each server, and all of server 3.
    failing = {(server, nic) for server, nic in failing if server != 3 and nic != 3}
    faults = tuple(
        replace(
            fault,
            after_s=share * whole_s,
            detect_s=detect_share * whole_s,
            lasts_s=None if lasts_share is None else lasts_share * whole_s,
        )
        for fault, share in zip(lost(fabric, *sorted(failing)), shares, strict=False)
    )
    run = predict(replace(experiment, faults=faults))
    check_bytes(fabric, run)
    if lasts_share is None and faults:
        known_s = run.events[run.events["what"] == "detected"]["at_s"].max()
        dead = {
            fabric.peer(port).number
            for fault in faults
            for port in fault.ports
            if fault.name in run.events[run.events["what"] == "detected"]["which"].tolist()
        }
        ocs = {
            fabric.peer(port).number
            for fault in faults
            for port in fault.ports
            if fabric.peer(port).node == "ocs0"
        }
        for ports in shown(run, known_s):
            assert ports.isdisjoint(dead & ocs)


def test_packet_bytes_of_a_server_without_packet_nics_are_relayed() -> None:
    experiment = step()
    fabric = experiment.fabric
    run = predict(
        replace(experiment, faults=lost(fabric, *packet_nics(fabric, 0), after_s=0.2, detect_s=0.01))
    )
    check_bytes(fabric, run)
    relayed = run.messages[run.messages["path"].str.contains("h[123]:[02],.* ", regex=True)]
    assert len(relayed) > 0
