"""Tables take means over seeds of one experiment, and two experiments of one name are refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.devices import ReconfigurationDelay
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, over_ocses
from testbed.experiment.repetitions import check_named_apart
from topologies.errors import ScenarioError
from topologies.fabric import Port
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.faults import When, cut
from traffic.jitter import jittered
from traffic.job import Collective, Compute, Job
from traffic.scheme_setup import WHILE_LIT
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.mixtral import mixtral_replay
from traffic.workloads.ocs_workloads import SCALED, ocs_demand
from traffic.workloads.synthetic import receiver_skew, sender_skew, sparse, uniform

FABRIC = rail_fabric(4, 4)
ONE = Experiment(FABRIC, single(uniform(16)), "rails")
RING = Job(
    "step",
    16,
    (
        Collective("sum", Ring((tuple(range(16)),), 1 << 20)),
        Compute("next", tuple(range(16)), 1e-3, ("sum",)),
    ),
)
CUT = cut("cut", (Port("h0", 0),), after_s=1e-3)
OTHERS: dict[str, dict[str, Any]] = {
    "fabric": {"fabric": rail_fabric(4, 4, 1)},
    "chunk_bytes": {"chunk_bytes": 1 << 16},
    "transport": {"transport": TransportSetup("credit", initial_window_packets=10)},
    "mtu": {"mtu": 1500},
    "how much their jobs send or compute": {"job": single(uniform(16, tokens=8192))},
    "job": {"job": replace(single(uniform(16)), nodes=replace(RING, name="uniform").nodes)},
}


def check_both(experiments: list[Experiment], differ: str) -> None:
    """Check that they are refused by what they differ in, and go together with a label."""
    with pytest.raises(ScenarioError, match="two different experiments are both called") as refused:
        check_named_apart(experiments)
    assert differ in str(refused.value)
    assert "give a label" in str(refused.value)
    check_named_apart([*experiments[:-1], replace(experiments[-1], label="the other")])


@pytest.mark.parametrize("differ", OTHERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_another_experiment_is_no_seed_of_one(differ: str, seed: int) -> None:
    other = replace(ONE, **OTHERS[differ])
    name = "job" if seed == 0 and "job" in OTHERS[differ] else differ
    check_both([ONE, replace(other, seed=seed)], f"and differ in {name}")


def test_with_equal_seeds_nothing_differs() -> None:
    drawn = [replace(ONE, job=single(sparse(16, 0.4, seed=seed))) for seed in (0, 1)]
    check_both(drawn, "and differ in job")
    check_both([ONE, replace(ONE, dilation=Dilation(1e-3, 1e-2))], "and differ in dilation")
    check_named_apart([ONE, ONE, replace(ONE)])


def test_the_third_is_compared_too() -> None:
    seeds = [replace(ONE, seed=seed) for seed in range(3)]
    check_named_apart(seeds)
    check_both([*seeds[:2], replace(seeds[2], mtu=1500)], "mtu (9000 and 1500)")
    check_both([*seeds, replace(seeds[1], mtu=1500)], "mtu (9000 and 1500)")


@given(seeds=st.lists(st.integers(0, 1 << 16), min_size=2, max_size=3, unique=True), data=st.data())
def test_what_seeds_draw_are_seeds_of_one(seeds: list[int], data: st.DataObject) -> None:
    drawn = data.draw(
        st.sampled_from(
            [
                lambda seed: single(sparse(16, 0.4, seed=seed)),
                lambda seed: single(sender_skew(FABRIC, seed=seed)),
                lambda seed: single(receiver_skew(FABRIC, seed=seed)),
                lambda seed: mixtral_replay(FABRIC, "early", "sparse", seed=seed),
                lambda seed: jittered(RING, seed, 0.5),
                *(lambda seed, name=name: single(ocs_demand(name, seed, 16, 1e8)) for name in SCALED),
            ]
        )
    )
    check_named_apart([replace(ONE, job=drawn(seed), seed=seed) for seed in seeds])


def test_a_seed_may_have_its_own_scale_and_time_of_a_fault() -> None:
    faults = [(replace(CUT, when=When(after_s=after_s)),) for after_s in (1e-3, 2e-3)]
    experiments = [
        replace(ONE, seed=seed, faults=fault, dilation=Dilation(1e-3, 1e-2 + seed))
        for seed, fault in enumerate(faults)
    ]
    check_named_apart(experiments)
    check_both([experiments[0], replace(experiments[1], faults=(replace(CUT, detect_s=1e-3),))], "faults")


def test_schedules_of_other_delays_are_others() -> None:
    fabric, demand = parallel_ocs_fabric(4, 2), Demand("d", np.full((4, 4), 1 << 24))
    one = Experiment(
        fabric,
        over_ocses(demand, 2),
        WHILE_LIT,
        Dilation(1e-3, 1e-1),
        circuits=Scheduled("spectra", ReconfigurationDelay("a", 1e-3)),
    )
    other = replace(one, circuits=Scheduled("spectra", ReconfigurationDelay("a", 2e-3)))
    check_both([one, other], "and differ in circuits")


def test_two_policies_of_one_name_are_told_apart_by_theirs() -> None:
    check_both([ONE, replace(ONE, scheme="ecmp", label="rails")], "scheme (rails and ecmp)")
