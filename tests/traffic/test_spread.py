"""Messages in equal parts over the paths that a routing names."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from controller.schedulers.coin_change import CoinChange, KShortest
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from tests.controller.schedulers.lit_panels import Panel
from topologies.errors import ScenarioError, StuckError
from topologies.events import View
from topologies.fabric import Nic, Port
from topologies.own_routing import CheckedRouting
from topologies.routing import Routing, Table
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job
from traffic.messages import Messages
from traffic.metrics import communication_s
from traffic.ops import ANY, DARK, Ops, Part
from traffic.scheme import Placement
from traffic.spraying.policy import QueuePair
from traffic.spread import Spread, SpreadSetup

RING = Panel.of_coins(6, (1, 1))
"""Six servers in a ring, neighbours on two circuits: NICs 0 and 2 lead on, 1 and 3 back."""
COINS = CoinChange((1, 5))


def view(panel: Panel, routing: Routing | None) -> View:
    """Return the view of a panel."""
    bound = CheckedRouting(routing) if routing else None
    return View(0.0, panel.fabric, panel.lit, panel.failed, routing=bound)


def messages(*rows: tuple[int, int, int]) -> Messages:
    """Return messages: source, destination, bytes."""
    return Messages(*np.array(rows, dtype=np.int64).T)


def experiment(
    routing: Routing | None, *rows: tuple[int, int, int], most: int = 0, panel: Panel = RING
) -> Experiment:
    """Return messages over a panel's circuits, which stay."""
    circuits = Foreseen((("panel0", panel.lit["panel0"]),), (), ReconfigurationDelay(), stays=True)
    job = Job("messages", len(panel.fabric.servers), (Collective("send", PointToPoint(rows)),))
    return Experiment(panel.fabric, job, SpreadSetup(most), circuits=circuits, routing=routing)


def parts(placed: Placement) -> dict[int, dict[QueuePair, int]]:
    """Return the bytes of each message by queue pair."""
    found: dict[int, dict[QueuePair, int]] = defaultdict(dict)
    for qp, message, size in zip(placed.qp, placed.message, placed.bytes, strict=True):
        assert placed.queue_pairs[qp] not in found[message], "a path has one part of a message"
        found[int(message)][placed.queue_pairs[qp]] = int(size)
    return found


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(1, 9999)), min_size=1, max_size=9
    ),
    most=st.integers(0, 3),
    shortest=st.booleans(),
)
def test_all_paths_share_a_message_evenly(
    rows: list[tuple[int, int, int]], most: int, shortest: bool
) -> None:
    asked = messages(*((source, (source + offset) % 6, size) for source, offset, size in rows))
    routing: Routing = KShortest() if shortest else COINS
    placed = Spread(most).place(view(RING, routing), asked)
    found, lanes = parts(placed), Spread(most).lanes_now(view(RING, routing), asked)
    for message, (_, offset, size) in enumerate(rows):
        paths = 4 if shortest and offset == 3 else 2  # the server opposite is as far either way
        assert len(lanes[message]) == len({*lanes[message]}) == min(paths, most or paths)
        shares = [found[message].get(lane, 0) for lane in lanes[message]]
        assert sum(shares) == sum(found[message].values()) == size
        assert max(shares) - min(shares) <= 1
    assert (placed.bytes > 0).all()
    assert len(placed.queue_pairs) == len({*placed.queue_pairs}) == len({*placed.qp.tolist()})


def test_one_path_is_the_first_of_all() -> None:
    asked = messages((0, 2, 100), (4, 3, 1))
    every, first = (Spread(most).lanes_now(view(RING, COINS), asked) for most in (0, 1))
    assert every == [
        [QueuePair(Nic(0, 0), Nic(2, 1)), QueuePair(Nic(0, 2), Nic(2, 3))],
        [QueuePair(Nic(4, 1), Nic(3, 0)), QueuePair(Nic(4, 3), Nic(3, 2))],
    ]
    assert first == [lanes[:1] for lanes in every]


def test_what_no_path_joins_waits_in_the_dark() -> None:
    cut_off = RING.without(failed=[Port("h3", nic) for nic in range(4)])
    asked = Part(messages((0, 2, 10), (1, 3, 10), (3, 0, 10), (2, 4, 10)), of=np.array([4, 5, 6, 7]))
    for routing in (COINS, KShortest()):
        seen = view(cut_off, routing)
        lowered = Spread().lower(Ops((asked,)), seen)
        assert [(part.medium, part.of.tolist()) for part in lowered.parts] == [(ANY, [4, 7]), (DARK, [5, 6])]
        assert list(map(bool, Spread().lanes_now(seen, asked.moves))) == [True, False, False, True]
        with pytest.raises(ScenarioError, match="no path of the routing joins server 1 to server 3; light"):
            Spread().place(seen, asked.moves)


def test_what_is_joined_stays_as_it_is() -> None:
    ops = Ops((Part(messages((0, 2, 10)), of=np.array([4])),))
    assert Spread().lower(ops, view(RING, COINS)) is ops


def test_lanes_follow_what_is_lit() -> None:
    scheme, asked = Spread(), messages((0, 1, 10))
    bound = CheckedRouting(COINS)
    lanes = [
        scheme.lanes_now(replace(view(panel, None), routing=bound), asked)[0]
        for panel in (RING, RING.without(dark=[0]), RING)
    ]
    second = QueuePair(Nic(0, 2), Nic(1, 3))
    assert lanes == [[QueuePair(Nic(0, 0), Nic(1, 1)), second], [second], lanes[0]]


@dataclass(frozen=True)
class Named:
    """Names what is for NIC 1 of server 2, whoever sends, and flows beside it."""

    towards: bool

    def table(self, **_: object) -> Table:
        """Return the next hops of the ring's first three servers."""
        there, back = (Nic(0, 2), Nic(2, 3)), (Nic(2, 3), Nic(0, 2))
        table: Table = {
            (0, there): Nic(0, 2),
            (1, there): Nic(1, 2),
            (2, back): Nic(2, 3),
            (1, back): Nic(1, 3),
        }
        by_destination: Table = {(0, Nic(2, 1)): Nic(0, 0), (1, Nic(2, 1)): Nic(1, 0)}
        return {**table, **by_destination} if self.towards else table


def test_next_hops_by_destination_count_before_flows() -> None:
    asked = messages((0, 2, 10), (2, 0, 10), (1, 2, 10), (1, 0, 10))
    back = [QueuePair(Nic(2, 3), Nic(0, 2))]
    assert Spread().lanes_now(view(RING, Named(towards=False)), asked) == [
        [QueuePair(Nic(0, 2), Nic(2, 3))],
        back,
        [],
        [],
    ]
    assert Spread().lanes_now(view(RING, Named(towards=True)), asked) == [
        [QueuePair(Nic(0, 0), Nic(2, 1))],
        back,
        [QueuePair(Nic(1, 0), Nic(2, 1))],
        [],
    ]


def test_without_a_routing_there_are_no_paths() -> None:
    why = "spread over the paths of a routing, and there is none; give the experiment one, such as"
    with pytest.raises(ScenarioError, match=why):
        predict(experiment(None, (0, 1, 10**6)))
    with pytest.raises(ScenarioError, match=why):
        Spread().lanes_now(view(RING, None), messages((0, 1, 10)))


def test_a_number_of_paths_below_none_is_refused() -> None:
    with pytest.raises(ScenarioError, match="messages over -1 paths; give 1 or more, or 0 for all"):
        SpreadSetup(-1)
    assert (SpreadSetup().words, SpreadSetup(1).words) == ([], ["1 paths"])


@pytest.mark.parametrize("routing", [COINS, KShortest(), KShortest(1, seed=7)])
@pytest.mark.parametrize("most", [0, 1])
def test_an_experiment_is_read_back(routing: Routing, most: int) -> None:
    asked = experiment(routing, (0, 2, 10**6), most=most)
    read = Experiment.from_json(asked.to_json())
    assert read == asked
    assert read.key == asked.key
    assert read.key != experiment(routing, (0, 2, 10**6), most=2).key
    assert predict(read).messages.equals(predict(asked).messages)


def times_s(
    routing: Routing, rows: Iterable[tuple[int, int, int]], most: int = 0, panel: Panel = RING
) -> float:
    """Return how long messages are predicted to take, in times that a NIC takes for one of them."""
    one_s = 8 * 10**8 / 100e9
    return communication_s(predict(experiment(routing, *rows, most=most, panel=panel)).tables) / one_s


@pytest.mark.parametrize(
    ("routing", "times"),
    [
        (CoinChange((1, 5, 7, 11)), 6),
        (CoinChange((1, 5, 7, 11), "smallest_coin"), 10),
        (KShortest(), 6),
    ],
)
def test_an_all_to_all_of_12_servers_takes_as_long_as_the_busiest_circuit(
    routing: Routing, times: int
) -> None:
    rows = [(source, to, 10**8) for source, to in permutations(range(12), 2)]
    assert times_s(routing, rows, panel=Panel.of_coins(12, (1, 5))) == pytest.approx(times)


def test_parallel_circuits_and_both_ways_round_add_up() -> None:
    across = [(0, 3, 10**8)]
    assert times_s(COINS, across, most=1) == pytest.approx(1)
    assert times_s(COINS, across) == pytest.approx(1 / 2)
    assert times_s(KShortest(), across) == pytest.approx(1 / 4)
    shift = [(server, (server + 2) % 6, 10**8) for server in range(6)]
    assert times_s(COINS, shift) == pytest.approx(1), "two hops share two circuits each"


def test_what_no_circuit_ever_joins_is_stuck() -> None:
    halves = Panel.of_pairs(4, 1, [(0, 1), (2, 3)])
    with pytest.raises(StuckError, match="nothing is on its way"):
        predict(experiment(KShortest(), (0, 2, 10**6), panel=halves))
