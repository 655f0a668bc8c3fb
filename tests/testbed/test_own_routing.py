"""A user's own routing: which paths it gives, and what is refused of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import pytest

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from testbed.core.packet_paths import paths_over
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from tests.testbed.forwarding_cases import LongWay, long_way, ring_fabric, stride_circuits
from topologies.errors import LightrailError, ScenarioError, StuckError
from topologies.fabric import Fabric, Nic, Port
from topologies.own_routing import ROUTING, CheckedRouting
from topologies.rail import rail_fabric
from topologies.routes import Routes
from topologies.routing import Flow, Routing, Table
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job
from traffic.scheme_setup import ONCE_LIT, ROUTED
from traffic.spraying.policy import QueuePair

LIT = Foreseen((("ocs0", stride_circuits(5, 1)),), (), ReconfigurationDelay(), stays=True)
FLOW = Nic(0, 1), Nic(1, 0)


@dataclass(frozen=True)
class By:
    """A routing by a function."""

    found: Callable[[], object]

    def table(self, **_: object) -> object:
        """Return what the function says."""
        return self.found()


def asked(routing: object, *, servers: int = 5) -> Experiment:
    """Return a message from server 0 to server 2 over a ring."""
    job = Job("one", servers, (Collective("send", PointToPoint(((0, 2, 10**8),))),))
    return Experiment(ring_fabric(servers), job, ROUTED, circuits=LIT, routing=cast(Routing, routing))


def test_a_flow_takes_a_path_of_its_own_and_others_the_shortest() -> None:
    case = long_way(10**8)
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    paths = [[port.split("@")[1] for port in path.split(" ")] for path in run.messages["path"]]
    assert [path[0].count("h") for path in paths] == [4, 1]
    times = run.messages["end_s"] - run.messages["start_s"]
    assert times.tolist() == pytest.approx([2 * 8e-3, 2 * 8e-3]), "they share the circuit from 3 to 2"


def test_a_next_hop_for_a_destination_serves_all_who_send_there() -> None:
    fabric = ring_fabric(5)
    routes = Routes(fabric, dict(LIT.first), routing=cast(Routing, Towards()))
    assert [routes.onward(server, (Nic(server, 1), Nic(2, 1))) for server in (0, 1, 3, 4)] == [
        Nic(server, 0) for server in (0, 1, 3, 4)
    ]
    route = routes.route(Nic(3, 0), Nic(2, 1))
    assert route
    assert len(route.light) == 4, "3 > 4 > 0 > 1 > 2, and not back"


@dataclass(frozen=True)
class Towards:
    """Sends all that is for a NIC of server 2 one way round."""

    def table(self, **_: object) -> dict[tuple[int, Nic], Nic]:
        """Return the next hops."""
        return {(server, Nic(2, 1)): Nic(server, 0) for server in (0, 1, 3, 4)}


def test_what_has_no_next_hop_waits_for_circuits_that_do_not_come() -> None:
    with pytest.raises(StuckError, match="nothing is on its way"):
        predict(asked(By(dict)))


def test_routings_are_read_back_strictly() -> None:
    own = ROUTING.named(f"{LongWay.__module__}:LongWay", {"servers": 5})
    assert ROUTING.of_document(ROUTING.document(own)) == own
    experiment = asked(own)
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert experiment.name == "routed, fixed, LongWay(servers=5)"
    documents: list[object] = [{"routing": "ecmp"}, {"routing": 1}, [], {"routing": "a:b", "more": 1}]
    for document in documents:
        with pytest.raises(LightrailError):
            ROUTING.of_document(document)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (lambda: None, "table returned an object of type NoneType"),
        (lambda: {1: Nic(1, 0)}, "1 is not a server or a switch, and a NIC or a flow"),
        (
            lambda: {("ocs0", Nic(1, 0)): Port("ocs0", 0)},
            "is not a port with a link of a packet switch 'ocs0'",
        ),
        (lambda: {(1, "x"): Nic(1, 0)}, "'x' is not a NIC of the fabric, or a pair of two"),
        (lambda: {(1, Nic(9, 0)): Nic(1, 0)}, r"is not a NIC of the fabric"),
        (lambda: {(1, Nic(2, 0)): Nic(3, 0)}, "is not a NIC of server 1"),
        (lambda: {(1, Nic(2, 0)): 0}, "0 is not a NIC of server 1"),
        (lambda: 1 / 0, "your routing raised ZeroDivisionError"),
    ],
)
def test_what_is_no_table_is_a_sentence(found: Callable[[], object], why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        predict(asked(By(found)))


def test_a_circle_is_a_sentence() -> None:
    hops = {(1, Nic(3, 0)): Nic(1, 0), (2, Nic(3, 0)): Nic(2, 1)}
    routes = Routes(ring_fabric(5), dict(LIT.first), routing=cast(Routing, By(lambda: hops)))
    with pytest.raises(ScenarioError, match="of server 3 in a circle: servers 1 > 2 > 1; have each hop"):
        routes.route(Nic(0, 0), Nic(3, 0))


def test_where_nothing_forwards_there_is_no_routing() -> None:
    fabric = replace(ring_fabric(5), servers_forward=False)
    with pytest.raises(ScenarioError, match="neither servers nor switches of ring forward packets"):
        replace(asked(LongWay(5)), fabric=fabric, scheme=ONCE_LIT)


@dataclass(frozen=True)
class BySpine:
    """Sends what is of some flow by spine 1, and all else that is for a NIC by spine 0."""

    flow: Flow = (Nic(0, 0), Nic(1, 1))

    def table(self, *, fabric: Fabric, **_: object) -> Table:
        """Return the next hops of leaves, whose ports 2 and 3 lead to the spines."""
        table: dict[tuple[int | str, Nic | Flow], Nic | Port] = {("leaf0", self.flow): Port("leaf0", 3)}
        for leaf in ("leaf0", "leaf1"):
            for nic in fabric.nics:
                if leaf != _leaf(nic):
                    table[leaf, nic] = Port(leaf, 2)
        return table


def _leaf(nic: Nic) -> str:
    return f"leaf{nic.nic}"


def test_a_switch_sends_on_by_destination_and_by_flow_and_by_the_shortest_path_around_what_failed() -> None:
    fabric, routing = rail_fabric(2, 2, 2), CheckedRouting(BySpine())
    crossing = [
        QueuePair(Nic(0, 0), Nic(1, 1)),
        QueuePair(Nic(1, 0), Nic(0, 1)),
        QueuePair(Nic(0, 0), Nic(1, 0)),
    ]
    paths = paths_over(fabric, routing=routing)
    spines = [[port.node for port in paths[queue_pair][2:3]] for queue_pair in crossing]
    assert spines == [["spine1"], ["spine0"], []]
    failed = fabric.both_ends([Port("leaf0", 2)])
    assert paths_over(fabric, failed, routing)[crossing[1]][2].node == "spine1"
