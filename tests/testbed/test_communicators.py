"""Communicators have queue pairs of their own: what is short does not wait for another's backlog."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from topologies.errors import ScenarioError
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job, chain
from traffic.transports.host_settings import TransportSetup

SERVERS = 8
FABRIC = rail_fabric(SERVERS, 1)
RATE_BPS = FABRIC.links[0].rate_bps
RING_BYTES = 4_000_000
GPUS = tuple(range(SERVERS))


def all_to_all(hot: float = 1.0) -> AllToAll:
    """Return a long all-to-all, 0.11 s of each NIC; GPU 0 may send more than the others."""
    matrix = np.full((SERVERS, SERVERS), 200_000_000)
    matrix[0] *= int(hot)
    np.fill_diagonal(matrix, 0)
    return AllToAll(Demand("long", matrix))


RING = Collective("ring", Ring((GPUS,), RING_BYTES))


def beside(pattern: AllToAll, ring: Collective = RING) -> Job:
    """Return a ring beside an all-to-all between the same GPUs."""
    return Job("beside", SERVERS, (Collective("all-to-all", pattern), ring))


def took_s(run: Run) -> Mapping[str, float]:
    """Return how long each node took [s]."""
    return dict(zip(run.tasks["node"], run.tasks["end_s"] - run.tasks["start_s"], strict=True))


def ring_s(share: float) -> float:
    """Return how long 2 (n - 1) steps of an n-th of the ring's bytes take at a share of a NIC [s]."""
    return 2 * (SERVERS - 1) * RING_BYTES / SERVERS * 8 / (RATE_BPS * share)


@pytest.mark.parametrize("couples", [False, True])
@pytest.mark.parametrize("transport", ["credit", "ideal", "tcp"])
@pytest.mark.parametrize("scheme", ["ecmp", "rails"])
def test_a_short_ring_beside_a_long_all_to_all_takes_its_share(
    scheme: str, transport: str, couples: bool
) -> None:
    """An edge is one queue pair of eight at its NIC, the all-to-all's seven are the others."""
    experiment = Experiment(FABRIC, beside(all_to_all()), scheme, transport=TransportSetup(transport))
    assert took_s(predict(experiment, couples=couples))["ring"] == pytest.approx(ring_s(1 / 8), rel=0.01)


@pytest.mark.parametrize("transport", ["credit", "ideal"])
def test_where_queue_pairs_are_shared_it_waits_for_the_backlog(transport: str) -> None:
    shared = Experiment(
        FABRIC, beside(all_to_all()), "rails", transport=TransportSetup(transport), shared_queue_pairs=True
    )
    nodes = tuple(replace(node, communicator="world") for node in beside(all_to_all()).collectives)
    one = Job("beside", SERVERS, nodes)
    by_name = Experiment(FABRIC, one, "rails", transport=TransportSetup(transport))
    assert took_s(predict(shared))["ring"] > 20 * ring_s(1 / 8)
    assert took_s(predict(by_name)) == took_s(predict(shared))


def test_under_ideal_transport_a_hot_sender_takes_no_more_than_its_queue_pairs() -> None:
    """GPU 0 sends eight times as much: its seven queue pairs weigh one each, those of the others less."""
    experiment = Experiment(FABRIC, beside(all_to_all(8.0)), "ecmp", transport=TransportSetup("ideal"))
    hottest_s, alone_s = ring_s(1 / 8), ring_s(1)
    assert alone_s < took_s(predict(experiment))["ring"] <= 1.01 * hottest_s


@pytest.mark.parametrize("transport", ["credit", "ideal"])
def test_what_the_ring_takes_is_all_that_the_all_to_all_loses(transport: str) -> None:
    """NICs are never idle, so the all-to-all ends when each has carried both."""
    experiment = Experiment(FABRIC, beside(all_to_all()), "ecmp", transport=TransportSetup(transport))
    expected_s = 7 * 200e6 * 8 / RATE_BPS + ring_s(1)
    assert took_s(predict(experiment))["all-to-all"] == pytest.approx(expected_s, rel=1e-6)


def test_experiments_say_whether_queue_pairs_are_shared() -> None:
    own = Experiment(FABRIC, beside(all_to_all()), "rails")
    shared = replace(own, shared_queue_pairs=True)
    assert Experiment.from_json(shared.to_json()) == shared
    assert own.key != shared.key
    assert (own.scheme_name, shared.scheme_name) == ("rails", "rails, shared queue pairs")
    text = shared.to_json().replace('"shared_queue_pairs":true', '"shared_queue_pairs":"yes"')
    with pytest.raises(ScenarioError, match=r"shared_queue_pairs: Input should be a valid boolean"):
        Experiment.from_json(text)


def sends(name: str, rows: tuple[tuple[int, int, int], ...], after: tuple[str, ...] = ()) -> Collective:
    """Return messages of one communicator."""
    return Collective(name, PointToPoint(rows), after, "one")


def test_rails_sees_what_its_communicator_has_under_way_and_nothing_of_others() -> None:
    """A chunk of server 0 starts when one to server 1 has arrived and three are under way on rail 0 or 1."""
    fabric, chunk = rail_fabric(4, 2, rate_bps=8000.0), 1000
    early = sends("early", ((0, 2, chunk), (0, 2, 3 * chunk)))
    for name, expected in (("one", 1), ("other", 0)):
        late = replace(sends("late", ((1, 4, chunk),), ("wait",)), communicator=name)
        job = Job("later", 8, (early, Compute("wait", (), 1.5), late))
        run = predict(
            Experiment(fabric, job, "rails", chunk_bytes=3 * chunk, transport=TransportSetup("credit"))
        )
        (path,) = run.messages["path"][run.messages["node"] == "late"]
        assert f"@h0:{expected}" in path


def test_equal_parts_are_solved_once_only_where_the_scheme_places_them_alike() -> None:
    fabric = rail_fabric(2, 2)
    steps = [sends(f"step {number}", ((0, 2, 1000),)) for number in range(5)]
    job = chain("steps", 4, tuple(steps))
    experiment = Experiment(fabric, job, "tests.traffic.cases:Turning")
    paths = predict(experiment).messages["path"].tolist()
    assert paths == [f"1000@h0:{number % 2},leaf{number % 2}:1" for number in range(5)]
    assert predict(experiment).messages.equals(predict(experiment).messages)
