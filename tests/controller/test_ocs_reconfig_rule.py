"""OCS-reconfig as a rule: when it looks, what it orders, and which circuits keep their ports."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from controller.circuits.circuits import Circuits
from controller.circuits.ocs_reconfig import LOOK, SIP_ML, OcsReconfig, on_ports
from controller.circuits.rule import Rule
from controller.schedulers.ocs_reconfig import Pair, random_circuits
from tests.examples import examples
from topologies.errors import ScenarioError
from topologies.events import Event, Lit, NodeDone, NodeStarted, Order, Reconfigure, SetTimer, View
from topologies.light import Circuit, duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.patch_panel import patch_panel_fabric

FABRIC = patch_panel_fabric(4, nics=2, gpus=1)
NOTHING = np.zeros((4, 4), dtype=np.int64)


@dataclass(frozen=True)
class Node:
    """A node of a job."""

    name: str
    after: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Nodes:
    """A job that computes, sends and computes."""

    nodes: tuple[Node, ...] = (Node("compute"), Node("send"), Node("more"))
    collectives: tuple[Node, ...] = (Node("send"),)


class Played:
    """A rule, told what happens; times in ms."""

    def __init__(self, rule: OcsReconfig, seed: int = 0) -> None:
        self.rule: Rule = rule.bind(fabric=FABRIC, job=Nodes(), scale=None, seed=seed)
        self.lit, self.state = dict(self.rule.first), None

    def hears(
        self, at: float, event: Event, owed: NDArray[np.int64] = NOTHING, *, is_moving: bool = False
    ) -> list[Order]:
        """Return what is ordered at a time; it is lit at once."""
        view = View(
            at / 1e3,
            FABRIC,
            self.lit,
            frozenset(),
            light_is_coming=is_moving,
            ordered=self.lit,
            owed=lambda: owed,
        )
        self.state, orders = self.rule.decides.decide(self.state, view, event)  # type: ignore[assignment]
        self.lit |= {
            ocs: circuits
            for order in orders
            if isinstance(order, Reconfigure)
            for ocs, circuits in order.circuits.items()
        }
        return list(orders)

    @property
    def pairs(self) -> Counter[Pair]:
        """How many duplex circuits join two servers."""
        ends = [(a // 2, b // 2) for a, b in self.lit["panel0"]]
        assert Counter(ends) == Counter((b, a) for a, b in ends)
        return Counter(pair for pair in ends if pair[0] < pair[1])


def owes(*entries: tuple[int, int, int]) -> NDArray[np.int64]:
    """Return what servers owe: source, destination and bytes."""
    owed = NOTHING.copy()
    for source, destination, size in entries:
        owed[source, destination] = size
    return owed


def timers(orders: list[Order]) -> list[float]:
    """Return after how many ms timers run out, all that is ordered being these."""
    assert all(isinstance(order, SetTimer) and order.name == LOOK.name for order in orders)
    return [round(order.after_s * 1e3, 6) for order in orders if isinstance(order, SetTimer)]


def test_it_looks_first_after_a_millisecond_then_every_five_delays_while_something_is_sent() -> None:
    played = Played(OcsReconfig(delay_s=10e-3))
    assert played.hears(0, NodeStarted("compute")) == []
    assert timers(played.hears(0, NodeStarted("send"))) == [1]
    assert timers(played.hears(1, LOOK)) == [50]
    assert played.hears(20, Lit(("panel0",))) == []
    assert timers(played.hears(51, LOOK)) == [50]
    assert played.hears(60, NodeDone("send")) == []
    assert played.hears(101, LOOK) == [], "nothing is under way"
    assert played.hears(200, NodeStarted("more")) == []
    assert timers(played.hears(215, NodeStarted("send"))) == [36], "at 251, as if it had gone on"
    assert timers(played.hears(251, LOOK)) == [50]


def test_a_short_delay_is_that_of_the_first_look_and_the_period_can_be_given() -> None:
    played = Played(OcsReconfig(delay_s=1e-5, period_s=3e-3))
    assert timers(played.hears(7, NodeStarted("send"))) == [0.01]
    assert timers(played.hears(7.01, LOOK)) == [3]


def test_circuits_follow_what_is_owed_and_stay_where_that_is_nothing_or_light_still_moves() -> None:
    played = Played(OcsReconfig(delay_s=1e-3, forwards=False))
    first, owed = played.lit, owes((0, 2, 900), (3, 1, 800))
    played.hears(0, NodeStarted("send"))
    assert timers(played.hears(1, LOOK)) == [5], "nothing is owed"
    assert timers(played.hears(6, LOOK, owed, is_moving=True)) == [5]
    assert played.lit == first
    changed, timer = played.hears(11, LOOK, owed + owes((0, 1, 1)))
    assert isinstance(changed, Reconfigure)
    assert changed.deadline_s is None
    assert timers([timer]) == [5]
    assert played.pairs == {(0, 2): 2, (1, 3): 2}
    assert timers(played.hears(16, LOOK, owed)) == [5], "they are lit"


def test_servers_that_forward_stay_connected() -> None:
    played = Played(OcsReconfig(delay_s=1e-3))
    played.hears(0, NodeStarted("send"))
    played.hears(1, LOOK, owes((0, 2, 900), (3, 1, 800)))
    assert played.pairs == {(0, 2): 1, (1, 3): 1, (0, 3): 1, (1, 2): 1}


def test_the_same_circuits_are_ordered_again_once_nothing_has_moved_for_a_period() -> None:
    played, owed = Played(OcsReconfig(delay_s=1e-3)), owes((0, 2, 900))
    played.hears(0, NodeStarted("send"))
    played.hears(1, LOOK, owed)
    lit = played.lit
    again, _ = played.hears(6, LOOK, owed)
    assert again == Reconfigure(lit)
    assert len(played.hears(11, LOOK, owed - owes((0, 2, 1)))) == 1, "something has"


def test_the_first_circuits_are_random_and_the_seed_decides_them() -> None:
    first = [Played(OcsReconfig(), seed).rule.first for seed in range(9)]
    assert first[0] == Played(OcsReconfig()).rule.first
    assert len({each["panel0"] for each in first}) > 2
    assert all(len(each["panel0"]) == 8 for each in first)


# Ports


@settings(max_examples=examples(30, 300))
@given(st.integers(0, 10**6), st.booleans())
def test_circuits_between_the_same_servers_keep_their_ports(seed: int, both_ways: bool) -> None:
    rng = np.random.default_rng(seed)
    servers, degree = 2 + seed % 7, 1 + seed % 4
    ports = [tuple(range(server * degree, (server + 1) * degree)) for server in range(servers)]
    before, after = (random_circuits(servers, degree, rng, duplex=both_ways) for _ in range(2))
    lit = on_ports(before, ports, (), duplex=both_ways)
    then = on_ports(after, ports, lit, duplex=both_ways)
    for circuits, pairs in ((lit, before), (then, after)):
        Circuits(servers * degree, circuits)  # else it raises
        assert not both_ways or set(duplex(circuits)) == set(circuits)
        assert joined(circuits, degree) == Counter(duplex(pairs) if both_ways else pairs)
    kept = set(lit) & set(then)
    assert joined(kept, degree) == joined(lit, degree) & joined(then, degree)
    assert on_ports(after, ports, then, duplex=both_ways) == then


def joined(circuits: set[Circuit] | tuple[Circuit, ...], degree: int) -> Counter[Pair]:
    """Return how many circuits lead from a server to another one."""
    return Counter((a // degree, b // degree) for a, b in circuits)


# What is refused, and SiP-ML


def test_sip_ml_does_not_discount_and_does_not_forward() -> None:
    assert (SIP_ML.delay_s, SIP_ML.every_s, SIP_ML.discount, SIP_ML.forwards) == (
        25e-6,
        125e-6,
        "none",
        False,
    )
    played = Played(replace(SIP_ML, duplex=False))
    played.hears(0, NodeStarted("send"))
    played.hears(0.025, LOOK, owes((0, 1, 9), (1, 2, 9), (2, 3, 9), (3, 0, 9), (0, 2, 8)))
    assert joined(played.lit["panel0"], 2) == dict.fromkeys([(0, 1), (1, 2), (2, 3), (3, 0)], 2)


def test_what_does_not_go_is_refused() -> None:
    with pytest.raises(ScenarioError, match="a delay of 0 s, and a period of 0 s"):
        OcsReconfig(delay_s=0)
    with pytest.raises(ScenarioError, match="unknown discount 'half'"):
        OcsReconfig(discount="half")
    for fabric, rule, said in (
        (replace(FABRIC, servers_forward=False), OcsReconfig(), "are to forward"),
        (patch_panel_fabric(3, nics=1, gpus=1), OcsReconfig(), "servers of 1 NICs"),
        (parallel_ocs_fabric(4, 2), SIP_ML, "not equal, with all NICs on one OCS"),
    ):
        with pytest.raises(ScenarioError, match=said):
            rule.bind(fabric=fabric, job=Nodes(), scale=None, seed=0)
