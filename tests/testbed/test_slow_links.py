"""Links that are slowed or lose packets, predicted: closed forms, and nothing is led around them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.live.emulate import check_slowed_light
from testbed.model.predict import predict
from tests.testbed.ocs_cases import experiment_of
from tests.testbed.tables import rows
from topologies.errors import LightrailError, ScenarioError
from topologies.fabric import Port
from topologies.rail import rail_fabric
from traffic.clock import ps
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.effects import Down, Effect, LinkState, Lossy, Slow
from traffic.faults import Fault, When, cut
from traffic.job import Collective, Job
from traffic.steps import single
from traffic.workloads.synthetic import uniform

PAIR, RAIL = rail_fabric(2, 1), rail_fabric(3, 2, spines=1)
CABLE = (Port("leaf0", 1),)
"""The receiver's link, by its other end."""
TOOK_S = 0.01
"""What the transfer takes over a whole link."""
SCHEMES = ["ecmp", "rails", "reps", "minrtt", "plb"]


def fault(effect: Effect, begin: float, end: float | None, detect: float = 0.01) -> Fault:
    """Return a fault with its times as shares of the transfer's."""
    lasts_s = None if end is None else (end - begin) * TOOK_S
    return Fault(f"{effect}", (effect,), When("", begin * TOOK_S, lasts_s), detect * TOOK_S)


def transfer(scheme: str, *faults: Fault) -> Run:
    """Return the run of one message over a link."""
    pattern = PointToPoint(((0, 1, round(PAIR.links[0].rate_bps / 8 * TOOK_S)),))
    job = Job("transfer", PAIR.gpus, (Collective("send", pattern),))
    found = predict(Experiment(PAIR, job, scheme, faults=faults))
    assert found.audit is not None
    assert found.audit.findings == ()
    return found


HALF = fault(Slow(CABLE, 0.5), 0.4, 0.7)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([HALF], 1.15),
        ([fault(Slow(CABLE, 0.5), 0.4, None)], 1.6),
        ([fault(Slow(CABLE, 0.25), 0.0, None, 0.0)], 4.0),
        ([fault(Slow(CABLE, 0.5), 0.2, 0.8), fault(Slow(CABLE, 0.4), 0.4, 0.6)], 1.36),
        ([fault(Slow(CABLE, 0.5), 0.2, 0.6), fault(Slow(CABLE, 0.4), 0.4, 0.8)], 1.38),
        ([fault(Slow(CABLE, 0.5), 0.2, 0.8), fault(Down(CABLE), 0.4, 0.6, 1.0)], 1.4),
        ([fault(Slow(CABLE, 0.5), 0.2, 0.6), fault(Down(CABLE), 0.4, 0.8, 1.0)], 1.5),
        ([fault(Lossy(CABLE, 0.2), 0.5, None), fault(Lossy(CABLE, 0.5), 0.5, None)], 1.75),
    ],
)
def test_a_transfer_takes_as_long_as_what_is_left_of_its_link_carries(
    scheme: str, faults: Sequence[Fault], expected: float
) -> None:
    assert transfer(scheme, *faults).iteration_s == pytest.approx(expected * TOOK_S, rel=1e-6)


def test_a_slowed_link_is_known_and_nothing_is_led_around_it() -> None:
    found = transfer("ecmp", HALF)
    assert found.events[["at_s", "what"]].to_numpy().tolist() == [
        [0.004, "failed"],
        [0.0041, "detected"],
        [0.007, "back"],
    ]
    assert found.messages["path"].tolist() == ["125000000@h0:0,leaf0:1"], "one leg: nothing was taken back"
    rate_bps = PAIR.links[1].rate_bps
    assert rows(found.tables.links, "at_ps", "rate_bps", "up", "known") == [
        (ps(0.004), rate_bps / 2, True, False),
        (ps(0.0041), rate_bps / 2, True, True),
        (ps(0.007), rate_bps, True, False),
        (ps(0.0071), rate_bps, True, True),
    ]


def test_a_cut_beside_a_slowed_link_is_led_around_alone() -> None:
    demand = Demand("drawn", np.random.default_rng(0).integers(0, 40_000_000, (RAIL.gpus, RAIL.gpus)))
    job = Job("drawn", RAIL.gpus, (Collective("send", AllToAll(demand)),))
    slowed, cable = Port("h0", 0), Port("h1", 1)
    both = (fault(Slow((slowed,), 0.5), 0.01, None), fault(Down((cable,)), 0.01, None, 0.02))
    found = predict(Experiment(RAIL, job, "rails", faults=both))
    assert found.audit is not None
    assert found.audit.findings == ()
    assert found.messages["end_s"].notna().all()
    legs = found.tables.legs[found.tables.legs["path"] >= 0]
    last_ps = {
        port: legs["last_ps"][[port in found.tables.paths[path] for path in legs["path"]]].max()
        for port in (slowed, cable)
    }
    assert last_ps[slowed] > last_ps[cable] == ps(3e-4)


@pytest.mark.parametrize("couples", [False, True])
def test_a_ring_over_a_link_that_is_slow_from_the_start_is_as_slow(couples: bool) -> None:
    fabric = rail_fabric(3, 1)
    job = Job("ring", 3, (Collective("ring", Ring(((0, 1, 2),), 60_000_000)),))
    healthy = Experiment(fabric, job, "rails")
    slow = Fault("slow", (Slow((Port("h0", 0),), 0.5),))
    assert slow.is_standing
    runs = [predict(each, couples=couples) for each in (healthy, replace(healthy, faults=(slow,)))]
    assert runs[1].iteration_s == pytest.approx(2 * runs[0].iteration_s, rel=0.01)
    assert runs[1].audit is not None
    assert runs[1].audit.findings == ()


@pytest.mark.parametrize("scheme", ["rails", "ecmp"])
@pytest.mark.parametrize("second", [(0.3, 0.7), (0.5, 0.7)], ids=["overlapping", "adjacent"])
def test_what_two_cuts_of_a_link_moved_is_back_on_it_as_after_one(
    scheme: str, second: tuple[float, float]
) -> None:
    fabric = rail_fabric(4, 2, spines=2)
    healthy = Experiment(fabric, single(uniform(fabric.gpus)), scheme)
    took_s = predict(healthy).iteration_s

    def down(name: str, begin: float, end: float) -> Fault:
        lasts_s = (end - begin) * took_s
        return cut(name, (Port("h3", 1),), after_s=begin * took_s, detect_s=0.02 * took_s, lasts_s=lasts_s)

    one = predict(replace(healthy, faults=(down("a", 0.1, 0.7),)))
    two = predict(replace(healthy, faults=(down("a", 0.1, 0.5), down("b", *second))))
    assert two.iteration_s == pytest.approx(one.iteration_s, rel=0.02)


@dataclass(frozen=True)
class Late:
    """Goes wrong only on a link that another fault has slowed."""

    ports: tuple[Port, ...]
    how: str

    def on(self, state: LinkState) -> LinkState:
        """Return the same, or something else where the rate is that of the other fault."""
        if state.rate != 0.4:
            return state
        if self.how == "raises":
            raise KeyError("late")
        if self.how == "exits":
            raise SystemExit(0)
        return LinkState(rate={"improves": 1.0, "no rate": 0.0, "nan": float("nan")}[self.how])


@pytest.mark.parametrize("how", ["raises", "exits", "improves", "no rate", "nan"])
def test_an_effect_that_goes_wrong_in_the_middle_of_a_run_ends_it_in_a_sentence(how: str) -> None:
    fabric, cable = rail_fabric(2, 2), (Port("h1", 1),)
    faults = Fault("slow", (Slow(cable, 0.4),)), Fault("late", (Late(cable, how),), When(after_s=1e-6))
    with pytest.raises(LightrailError, match=r"effect .*(Late|raised)"):
        predict(Experiment(fabric, single(uniform(fabric.gpus)), "rails", faults=faults))


@pytest.mark.parametrize("port", [Port("h1", 0), Port("ocs1", 1)])
def test_a_slower_link_to_an_ocs_is_not_emulated(port: Port) -> None:
    experiment = experiment_of("spectra")
    check_slowed_light(experiment.fabric, (Fault("dies", (Slow((port,), 0.9), Down((port,)))),))
    with pytest.raises(ScenarioError, match="leads to an OCS"):
        check_slowed_light(experiment.fabric, (fault(Slow((port,), 0.9), 0.4, 0.7),))
