"""NICs that fail under delegated all-to-alls: what is left arrives, and circuits go without them."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios._mfabric.region_plan import First
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from tests.examples import examples
from tests.testbed.region_cases import check_bytes, lost, toy_experiment, toy_step
from topologies.fabric import Fabric
from topologies.packet_part import on_packet_switch
from traffic.faults import When


@cache
def step(first: First = "block", alpha: int = 2, packet_nics: int = 2) -> Experiment:
    return toy_experiment(
        toy_step(ranks=4, layers=1, micro_batches=2), first, servers=4, alpha=alpha, packet_nics=packet_nics
    )


def packet_nics(fabric: Fabric, server: int) -> list[tuple[int, int]]:
    return [
        (nic.server, nic.nic) for nic in fabric.nics if nic.server == server and on_packet_switch(fabric, nic)
    ]


def communication_s(run: Run) -> float:
    """Return how long all collectives take, one after the other."""
    collectives = run.tasks[run.tasks["gpu"] == -1]
    return float((collectives["end_s"] - collectives["start_s"]).sum())


def shown(run: Run, after_s: float) -> list[set[int]]:
    """Return the ports with circuits that each reconfiguration lit that was ordered later than some time.

    What was lit before the job started is no reconfiguration.
    """
    drained = run.events[run.events["what"] == "drained"]["at_s"].tolist()
    _, *lit = run.events[run.events["what"] == "lit"]["which"]
    return [
        {int(end) for circuit in which.split()[1:] for end in circuit.split(">") if end != "-"}
        for at_s, which in zip(drained, lit, strict=False)  # the last may be dark in the end
        if at_s > after_s
    ]


@pytest.mark.parametrize("nics", [[(0, 0)], [(0, 1)], [(0, 0), (0, 2)]])
def test_steps_without_nics_from_the_start_are_coupled(nics: list[tuple[int, int]]) -> None:
    """A packet NIC, a circuit NIC, or both packet NICs, whose bytes are relayed."""
    experiment = step()
    standing = replace(experiment, faults=lost(experiment.fabric, *nics))
    coupled, lanes = (predict(standing, couples=couples) for couples in (True, False))
    relays = len(nics) > 1  # rings over relays run step by step
    assert relays or len(coupled.messages) < len(lanes.messages)
    assert communication_s(coupled) == pytest.approx(communication_s(lanes), rel=0.05)
    if (0, 1) not in nics:  # else other circuits may be lit first, and better ones: Algorithm 1 is greedy
        later = replace(standing, faults=lost(experiment.fabric, *nics, after_s=1e-9))
        assert predict(later, couples=True).iteration_s == pytest.approx(lanes.iteration_s)
        assert communication_s(coupled) > communication_s(predict(experiment, couples=True))


COLLECTIVES = ("F0 0.0 l0 dispatch", "F0 0.0 l0 combine", "B1 0.0 l0 dispatch", "DP 0 dense 0")
TOOK_S = 0.5e-3
"""What an all-to-all of the step takes, about [s]."""
fault_times = st.tuples(
    st.sampled_from(COLLECTIVES),
    st.floats(0.0, 1.2),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([None, 0.3, 10.0]),
)
"""From the start of which node, when, known when, and back when; as parts of an all-to-all."""
# A circuit NIC of each server stays, and packet NICs of two servers, which have three circuits.
nics = st.sampled_from([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 1)])


@settings(max_examples=examples(8, 25), deadline=None)
@given(st.dictionaries(nics, fault_times, min_size=1, max_size=6), st.sampled_from(["block", "reuse"]))
def test_every_byte_arrives_whatever_fails_when(
    failing: dict[tuple[int, int], tuple[str, float, float, float | None]], first: First
) -> None:
    experiment = step(first)
    fabric = experiment.fabric
    faults = tuple(
        replace(
            fault,
            when=When(node, after * TOOK_S, None if lasts is None else lasts * TOOK_S),
            detect_s=detect * TOOK_S,
        )
        for nic, (node, after, detect, lasts) in failing.items()
        for fault in lost(fabric, nic)
    )
    run = predict(replace(experiment, faults=faults))
    check_bytes(fabric, run)
    for fault in faults:
        (port,) = map(fabric.peer, fault.ports)
        known_s = run.events[(run.events["which"] == fault.name) & (run.events["what"] == "detected")]["at_s"]
        if port.node == "ocs0" and fault.when.lasts_s is None and len(known_s):
            assert all(port.number not in ports for ports in shown(run, known_s.iloc[0]))


def test_what_a_server_without_packet_nics_sends_goes_through_another() -> None:
    experiment = step()
    fabric = experiment.fabric
    (combine,) = (name for name in COLLECTIVES if "F0 0.0 l0 combine" in name)
    faults = tuple(
        replace(fault, when=When(combine, 0.4 * TOOK_S), detect_s=0.1 * TOOK_S)
        for fault in lost(fabric, *packet_nics(fabric, 0))
    )
    run = predict(replace(experiment, faults=faults))
    check_bytes(fabric, run)
    rings = run.messages[run.messages["node"].str.startswith("DP")]
    hops = rings.loc[(rings["source"] == 0) & (rings["destination"] < 4), "path"]
    assert len(hops)
    for path in hops:  # out over circuits only, and on from a server that has packet NICs
        senders = [leg.partition("@")[2].split(",")[0] for leg in path.split()]
        assert {"h0:1", "h0:3"}.issuperset(sender for sender in senders if sender.startswith("h0:"))
    assert run.iteration_s > predict(experiment).iteration_s
