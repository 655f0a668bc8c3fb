"""Fluids that start at any time over links that change: max-min at every event, and closed forms."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from tests.examples import examples
from tests.traffic.test_maxmin import assert_max_min, meshes
from topologies.errors import FabricError
from traffic.clock import NEVER, SECOND, in_seconds, ps
from traffic.fluid.network import FluidNetwork

BYTE_PER_S = 8.0
ROUNDED_BYTES = 0.0125
"""What the fastest link moves in the picosecond to which arrivals are rounded."""


@dataclass(frozen=True)
class Change:
    """A change by the caller: bytes for a flow, the links it crosses, or the rate of a link."""

    at_s: float
    flow: int
    size: float
    path: tuple[int, ...]
    link: int
    rate_bps: float

    def apply(self, network: FluidNetwork, number: int) -> None:
        if self.size:
            network.post(self.flow, self.size, number)
        elif self.path:
            network.set_path(self.flow, self.path)
        else:
            network.set_rates(self.link, self.rate_bps)


@st.composite
def histories(
    draw: st.DrawFn,
) -> tuple[NDArray[np.int64], NDArray[np.float64], list[Change]]:
    """Draw a mesh, and changes in the order of their times; in the end all links are lit again."""
    paths, rate_bps = draw(meshes())
    flow, link = st.integers(0, len(paths) - 1), st.integers(0, len(rate_bps) - 1)
    size, rate = st.sampled_from([0.0, 0.0, 1.0, 5.0]), st.sampled_from([0.0, 0.0, 1.0, 20.0])
    time, path = (
        st.floats(0.0, 10.0, width=16),
        st.just(()) | st.lists(link, max_size=4, unique=True).map(tuple),
    )
    changes = draw(st.lists(st.builds(Change, time, flow, size, path, link, rate), max_size=12))
    lit = [Change(11.0, 0, 0.0, (), number, float(rate)) for number, rate in enumerate(rate_bps)]
    return paths, rate_bps, sorted(changes, key=lambda change: change.at_s) + lit


def led(paths: NDArray[np.int64], flow: int, path: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the paths of flows, of which one is led over others: nothing of its old one is left."""
    rows = np.pad(paths, ((0, 0), (0, max(len(path) - paths.shape[1], 0))), constant_values=-1)
    rows[flow] = -1
    rows[flow, : len(path)] = path
    return rows


def network_of(
    rate_bps: ArrayLike, paths: ArrayLike, *, by_bytes: bool = False, **of_flows: ArrayLike
) -> FluidNetwork:
    """Return a network with flows over paths, shape (flows, hops) with -1 behind shorter ones."""
    network = FluidNetwork(rate_bps, by_bytes=by_bytes)
    used = [[link for link in path if link >= 0] for path in np.asarray(paths).tolist()]
    network.add_flows(used, **of_flows)  # type: ignore[arg-type]  # coupled_weight is not among them
    return network


def arrivals(network: FluidNetwork, until_s: float = np.inf) -> dict[int, float]:
    """Return when each tag arrived until a time."""
    found: dict[int, float] = {}
    while parcels := network.advance(ps(until_s)):
        found |= {each.message: in_seconds(each.at_ps) for each in parcels}
    return found


@given(histories())
def test_rates_are_max_min_fair_at_every_event(
    history: tuple[NDArray[np.int64], NDArray[np.float64], list[Change]],
) -> None:
    paths, rate_bps, changes = history
    network, lit_bps, paths = network_of(rate_bps, paths), rate_bps.copy(), paths.copy()
    waiting: dict[int, int] = {}
    for number, change in enumerate([*changes, None]):
        while True:
            busy = np.isin(np.arange(len(paths)), list(waiting.values()))
            lit = np.array([(lit_bps[row[row >= 0]] > 0).all() for row in paths])
            got, flows = network.rates_bps(), busy & lit
            assert (got[~flows] == 0).all()
            crossed = [bool((paths[busy] == link).any()) for link in range(len(rate_bps))]
            assert [network.uses([link]) for link in range(len(rate_bps))] == crossed
            assert_max_min(paths[flows], lit_bps, got[flows], np.ones(flows.sum()))
            arrived = network.advance(ps(change.at_s) if change else NEVER)
            for each in arrived:
                del waiting[each.message]
            if not arrived:
                break
        if change:
            change.apply(network, number)
            if change.size:
                waiting[number] = change.flow
            elif change.path:
                paths = led(paths, change.flow, change.path)
            else:
                lit_bps[change.link] = change.rate_bps
    assert not waiting


@settings(max_examples=examples(60, 200))
@given(meshes(), st.data())
def test_rates_are_max_min_fair_wherever_flows_are_led(
    mesh: tuple[NDArray[np.int64], NDArray[np.float64]], data: st.DataObject
) -> None:
    """Flows come, with bytes for ever, are led over other links, withdrawn and filled, and links change."""
    paths, rate_bps = mesh
    network, known, busy = FluidNetwork(rate_bps), paths[:0], np.zeros(0, dtype=bool)
    new = [tuple(link for link in row if link >= 0) for row in paths.tolist()]
    link, steps = (
        st.integers(0, len(rate_bps) - 1),
        ["comes", "is led", "is led", "stops or goes on", "changes"],
    )
    for step in data.draw(st.lists(st.sampled_from(steps), min_size=10, max_size=20)):
        flow = data.draw(st.integers(0, len(known) - 1)) if len(known) else 0
        if step == "changes":
            number = data.draw(link)
            rate_bps[number] = data.draw(st.sampled_from([1.0, 5.0, 20.0]))
            network.set_rates(number, rate_bps[number])
        elif step == "is led" and len(known):
            path = tuple(data.draw(st.lists(link, min_size=1, max_size=4, unique=True)))
            network.set_path(flow, path)
            known = led(known, flow, path)
        elif step == "stops or goes on" and len(known):
            if busy[flow]:
                network.withdraw(flow)
            else:
                network.post(flow, 1e15, flow)
            busy[flow] = not busy[flow]
        elif len(known) < len(new):
            (flow,) = network.add_flows([new[len(known)]])
            network.post(flow, 1e15, flow)
            known, busy = led(np.pad(known, ((0, 1), (0, 0))), flow, new[flow]), np.append(busy, True)
        got = network.rates_bps()
        assert not got[~busy].any()
        assert_max_min(known[busy], rate_bps, got[busy], np.ones(busy.sum()))


@given(meshes(), st.data())
def test_rates_of_coupled_flows_are_max_min_fair_as_links_change(
    mesh: tuple[NDArray[np.int64], NDArray[np.float64]], data: st.DataObject
) -> None:
    """A link that holds one of them back holds all back, over whichever links the others go."""
    paths, rate_bps = mesh
    network, count = FluidNetwork(rate_bps), len(paths)
    used = [[link for link in row if link >= 0] for row in paths.tolist()]
    ring = data.draw(st.integers(1, count))
    network.add_flows(used[:ring], coupled_weight=1.0)
    network.add_flows(used[ring:])
    network.post(np.arange(count), np.full(count, 1e15), np.arange(count))
    coupled = np.maximum(np.arange(count), ring - 1)
    for link, rate in data.draw(st.lists(st.tuples(st.integers(0, len(rate_bps) - 1), st.floats(0.5, 50)))):
        assert_max_min(paths, rate_bps, network.rates_bps(), np.ones(count), coupled)
        rate_bps[link] = rate
        network.set_rates(link, rate)
    assert_max_min(paths, rate_bps, network.rates_bps(), np.ones(count), coupled)


@given(histories())
def test_what_was_posted_was_delivered_or_is_left(
    history: tuple[NDArray[np.int64], NDArray[np.float64], list[Change]],
) -> None:
    paths, rate_bps, changes = history
    network, flows = network_of(rate_bps, paths), range(len(paths))
    posted, waiting = np.zeros(len(paths)), dict[int, int]()
    for number, change in enumerate(changes):
        for arrived in iter(partial(network.advance, ps(change.at_s)), []):
            for each in arrived:
                assert waiting.pop(each.message) == each.pool
        change.apply(network, number)
        if change.size:
            posted[change.flow] += change.size
            waiting[number] = change.flow
        lacking = np.array([network.held_bytes([flow]) for flow in flows])
        assert network.delivered_bytes(flows) + lacking == pytest.approx(posted, abs=ROUNDED_BYTES)
        assert network.filled(flows) == sorted(set(waiting.values()))
        assert network.quiet == (not waiting)
        for flow in flows:
            assert network.held(flow) == {number for number, pool in waiting.items() if pool == flow}
            assert sum(network.left(flow).values()) == pytest.approx(lacking[flow])
            assert network.left(flow).keys() <= network.held(flow)
            assert network.quiet_but([flow]) == (set(waiting.values()) <= {flow})
    for each in network.advance(network.now_ps + SECOND // 8):
        del waiting[each.message]
    for flow in flows:
        delivered = float(network.delivered_bytes([flow])[0])
        back = network.withdraw(flow)
        assert [message for message, _ in back] == [each for each in sorted(waiting) if waiting[each] == flow]
        assert sum(size for _, size in back) + delivered == pytest.approx(posted[flow], abs=ROUNDED_BYTES)
        assert network.held_bytes([flow]) == 0.0
        assert network.delivered_bytes([flow]) == pytest.approx(delivered)
    assert network.quiet
    assert network.next_ps == NEVER


@settings(max_examples=examples(9, 30))
@given(histories(), st.booleans())
def test_parcels_arrive_when_small_steps_of_time_say(
    history: tuple[NDArray[np.int64], NDArray[np.float64], list[Change]], delayed: bool
) -> None:
    paths, rate_bps, changes = history
    # What a step is late with rates of 20 would be 20 steps with rates of 1.
    rate_bps = np.clip(rate_bps, 2.0, 6.0)
    changes = [replace(change, rate_bps=min(change.rate_bps * 4, 4.0)) for change in changes]
    delay_s = np.full(len(paths), 0.5 if delayed else 0.0)
    network = network_of(rate_bps, paths, delay_s=delay_s)
    found: dict[int, float] = {}
    for number, change in enumerate(changes):
        found |= arrivals(network, change.at_s)
        change.apply(network, number)
    found |= arrivals(network, 40.0)
    step_s = 0.04
    expected = stepped(rate_bps, paths, changes, step_s, 40.0)
    for tag, at_s in expected.items():
        if at_s < 39:
            # A step changes nothing until it is over, and an event may fall into each.
            assert found[tag] - delay_s[0] == pytest.approx(at_s, abs=step_s * (len(changes) + 2))


def stepped(
    rate_bps: NDArray[np.float64],
    paths: NDArray[np.int64],
    changes: list[Change],
    step_s: float,
    until_s: float,
) -> dict[int, float]:
    """Return when parcels leave if time goes in small steps: a flow's rate grows until a link is full."""
    rates, left = rate_bps.copy(), list(changes)
    done: dict[int, float] = {}
    queues: list[list[list[float]]] = [[] for _ in paths]
    for step in range(round(until_s / step_s)):
        while left and left[0].at_s <= step * step_s:
            change = left.pop(0)
            if change.size:
                queues[change.flow].append([len(changes) - len(left) - 1, change.size])
            elif change.path:
                paths = led(paths, change.flow, change.path)
            else:
                rates[change.link] = change.rate_bps
        for flow, rate in filled(rates, paths, [bool(queue) for queue in queues]).items():
            room = rate * step_s / 8
            while room > 0 and queues[flow]:
                taken = min(room, queues[flow][0][1])
                room -= taken
                queues[flow][0][1] -= taken
                if queues[flow][0][1] <= 1e-12:
                    done[int(queues[flow].pop(0)[0])] = (step + 1) * step_s
    return done


def filled(rates: NDArray[np.float64], paths: NDArray[np.int64], busy: list[bool]) -> dict[int, float]:
    """Return max-min rates by the textbook: raise all together, freeze those on the first full link."""
    over = {flow: set(row[row >= 0].tolist()) for flow, row in enumerate(paths) if busy[flow]}
    free, got = rates.copy(), dict.fromkeys(over, 0.0)
    rising = set(over)
    while rising:
        users = {link: [flow for flow in rising if link in over[flow]] for link in range(len(rates))}
        rise, full = min((free[link] / len(flows), link) for link, flows in users.items() if flows)
        for flow in rising:
            got[flow] += rise
            for link in over[flow]:
                free[link] -= rise
        rising -= set(users[full])
    return got


def test_a_flow_stands_while_its_link_is_dark() -> None:
    network = network_of([BYTE_PER_S], [[0]])
    network.post(0, 10.0, 7)
    assert arrivals(network, 4.0) == {}
    network.set_rates(0, 0.0)
    assert arrivals(network, 9.0) == {}
    network.set_rates(0, BYTE_PER_S)
    assert arrivals(network) == {7: 15.0}


def test_what_a_short_flow_leaves_goes_to_whichever_can_use_it() -> None:
    # a alone on y, b over both, c alone on x: b is held back by x, so a has the rest of y.
    network = network_of([BYTE_PER_S, 3 * BYTE_PER_S], [[1, -1], [0, 1], [0, -1]])
    network.post([0, 1, 2], [10.0, 4.0, 4.0], [0, 1, 2])
    assert arrivals(network) == pytest.approx({0: 4.0, 1: 8.0, 2: 8.0})


def test_an_incast_takes_its_bytes_over_the_receivers_rate() -> None:
    senders = 5
    paths = np.stack([np.arange(senders), np.full(senders, senders)], axis=1)
    network = network_of(np.full(senders + 1, BYTE_PER_S), paths)
    for sender in range(senders):
        network.post(sender, 3.0, sender)
    assert arrivals(network) == dict.fromkeys(range(senders), pytest.approx(15.0))


def test_parcels_of_a_pool_leave_in_order_and_arrive_later_by_its_delay() -> None:
    network = network_of([BYTE_PER_S], [[0]], delay_s=[10.0])
    network.post(0, 2.0, 1)
    network.post(0, 3.0, 2)
    assert arrivals(network) == {1: 12.0, 2: 15.0}


def test_flows_of_one_pool_drain_it_together() -> None:
    network = network_of([BYTE_PER_S, 3 * BYTE_PER_S], [[0], [1]], pool=[0, 0])
    network.post(0, 8.0, 7)
    assert arrivals(network) == {7: 2.0}


def test_a_queue_pair_serves_the_pools_that_may_use_it_evenly() -> None:
    # The first drains by a and half of b until 4 s; the second has then 6 left, all of b.
    network = network_of([BYTE_PER_S] * 2, [[0], [1], [1]], pool=[0, 0, 1], part_of=[0, 1, 1])
    network.post([0, 1], [6.0, 8.0], [0, 1])
    assert arrivals(network) == pytest.approx({0: 4.0, 1: 10.0})
    assert network.delivered_bytes(range(3)).tolist() == pytest.approx([4.0, 2.0, 8.0])


def test_a_queue_pair_of_many_pools_counts_as_one_on_a_link() -> None:
    # Two are on link a, half of it each. The first gives a quarter to each of two pools until 1.6 s,
    # when one of them ends by way of c, and then its half to the other until 2.8 s.
    network = network_of([BYTE_PER_S] * 2, [[0], [0], [1], [0]], pool=[0, 1, 1, 2], part_of=[0, 0, 2, 1])
    network.post([0, 1, 2], [1.0, 2.0, 3.0], [0, 1, 2])
    assert arrivals(network) == pytest.approx({0: 2.8, 1: 1.6, 2: 4.4})


def test_what_is_lost_is_sent_again() -> None:
    network = network_of([BYTE_PER_S], [[0]], delivered=[0.5])
    network.post(0, 3.0, 7)
    assert arrivals(network) == {7: 6.0}


def test_what_is_withdrawn_had_not_left_and_can_be_led_elsewhere() -> None:
    network = network_of([BYTE_PER_S, BYTE_PER_S], [[0]])
    network.post(0, 4.0, 1)
    network.post(0, 4.0, 2)
    assert arrivals(network, 3.0) == {}
    assert network.withdraw(0) == [(1, 1.0), (2, 4.0)]
    assert network.next_ps == NEVER
    network.set_path(0, [1])
    network.post(0, 5.0, 3)
    assert arrivals(network) == {3: 8.0}


def test_a_flow_led_elsewhere_leaves_its_old_links_to_others() -> None:
    network = network_of([BYTE_PER_S] * 2, [[0], [0]])
    network.post([0, 1], [1.0, 1.0], [0, 1])
    assert arrivals(network, 1.0) == {}
    network.set_path(1, [1])
    assert arrivals(network) == {0: 1.5, 1: 1.5}


def test_links_and_flows_can_be_added() -> None:
    network = network_of([BYTE_PER_S], [[0]])
    network.post(0, 4.0, 1)
    assert arrivals(network, 2.0) == {}
    link = network.add_link(BYTE_PER_S)
    flow = network.add_flows([[0, link]])[0]
    network.post(flow, 1.0, 2)
    assert arrivals(network) == {2: 4.0, 1: 5.0}


def test_bytes_weigh_where_the_transport_knows_them() -> None:
    network = network_of([BYTE_PER_S], [[0], [0]], by_bytes=True)
    network.post(0, 9.0, 1)
    network.post(1, 3.0, 2)
    assert arrivals(network) == {1: 12.0, 2: 12.0}


def coupled_network(
    rate_bps: ArrayLike, ring: list[list[int]], *others: list[int], by_bytes: bool = False
) -> FluidNetwork:
    """Return a network with coupled flows over some paths, and others behind them."""
    network = FluidNetwork(rate_bps, by_bytes=by_bytes)
    network.add_flows(ring, coupled_weight=1.0)
    network.add_flows(others)
    return network


def test_coupled_flows_end_together_when_the_slowest_could() -> None:
    network = coupled_network([4 * BYTE_PER_S, BYTE_PER_S, 2 * BYTE_PER_S], [[0], [1], [2]])
    network.post([0, 1, 2], [4.0, 3.0, 12.0], [0, 1, 2])
    assert arrivals(network) == pytest.approx({0: 6.0, 1: 6.0, 2: 6.0})
    assert network.delivered_bytes(range(3)).tolist() == pytest.approx([4.0, 3.0, 12.0])


def test_coupled_flows_that_cross_a_link_twice_take_twice_their_rate_of_it() -> None:
    # Three shares of link 0, two of them the ring's; when the other has ended the ring has all of it.
    network = coupled_network([3 * BYTE_PER_S, 9 * BYTE_PER_S], [[0], [0, 1], [1]], [0])
    network.post([0, 1, 2, 3], [6.0, 6.0, 6.0, 2.0], [0, 1, 2, 3])
    assert network.rates_bps().tolist() == pytest.approx([BYTE_PER_S] * 4)
    assert arrivals(network) == pytest.approx({3: 2.0, **dict.fromkeys(range(3), 2.0 + 8.0 / 3)})


def test_rings_share_a_link_and_leave_to_others_what_holds_one_back() -> None:
    # Link 0 is shared by two rings and a flow; the first ring gets a half only, by its slow link 1.
    network = FluidNetwork([4.5 * BYTE_PER_S, 0.5 * BYTE_PER_S, 9 * BYTE_PER_S])
    network.add_flows([[0], [1]], coupled_weight=1.0)
    network.add_flows([[0], [2]], coupled_weight=1.0)
    network.add_flows([[0]])
    network.post(np.arange(5), np.full(5, 4.0), np.arange(5))
    assert (network.rates_bps() / BYTE_PER_S).tolist() == pytest.approx([0.5, 0.5, 2.0, 2.0, 2.0])
    assert arrivals(network) == pytest.approx({0: 8.0, 1: 8.0, 2: 2.0, 3: 2.0, 4: 2.0})


def test_a_ring_that_weighs_by_its_bytes_ends_with_what_shares_its_link() -> None:
    network = coupled_network([BYTE_PER_S, 9 * BYTE_PER_S], [[0], [1]], [0], by_bytes=True)
    network.post([0, 1, 2], [6.0, 6.0, 2.0], [0, 1, 2])
    assert arrivals(network) == pytest.approx({0: 8.0, 1: 8.0, 2: 8.0})


def test_coupled_flows_stand_while_one_of_them_is_in_the_dark() -> None:
    network = coupled_network([BYTE_PER_S, BYTE_PER_S], [[0], [1]], [1])
    network.post([0, 1, 2], [4.0, 4.0, 1.0], [0, 1, 2])
    network.set_rates(0, 0.0)
    assert arrivals(network, 3.0) == {2: 1.0}
    network.set_rates(0, BYTE_PER_S)
    assert arrivals(network) == pytest.approx({0: 7.0, 1: 7.0})


def test_coupled_flows_weigh_what_they_are_given() -> None:
    network = coupled_network([4 * BYTE_PER_S, 9 * BYTE_PER_S], [[0], [1]], [0])
    network.post([0, 1, 2], [6.0, 3.0, 2.0], [0, 1, 2])
    for weight, rates in ((1.0, [2.0, 1.0, 2.0]), (3.0, [3.0, 1.5, 1.0])):
        network.weigh(0, weight)
        assert (network.rates_bps() / BYTE_PER_S).tolist() == pytest.approx(rates)


def test_a_path_of_no_link_is_refused() -> None:
    with pytest.raises(FabricError, match="crosses no link"):
        network_of([1.0], [[-1]])
    with pytest.raises(FabricError, match="does not exist"):
        network_of([1.0], [[1]])
    network = network_of([1.0], [[0]])
    for links, said in (([], "crosses no link"), ([1], "does not exist")):
        with pytest.raises(FabricError, match=said):
            network.set_path(0, links)
    network.post(0, 1.0, 7)
    assert arrivals(network) == {7: 8.0}


@given(size=st.integers(1, 10_000), rate=st.floats(1.0, 1e4), share=st.floats(0.0, 2.0))
def test_a_message_arrives_earlier_by_what_was_lent(size: int, rate: float, share: float) -> None:
    network, takes_s = FluidNetwork([rate, 2 * rate]), 8 * size / rate
    network.add_flows([[0, 1]])
    network.advance(SECOND)
    network.post(0, size, 7)
    network.lend(np.array([rate, 2 * rate]) * share * takes_s / 8)
    assert network.now_ps == SECOND
    ((at_ps, message, pool),) = network.advance(NEVER)
    assert (message, pool) == (7, 0)
    assert in_seconds(at_ps) == pytest.approx(1.0 + max(1.0 - share, 0.0) * takes_s)
    assert network.quiet


def test_what_leaves_on_credit_still_takes_the_links_delay() -> None:
    network = FluidNetwork([8.0])
    network.add_flows([[0]], delay_s=0.5)
    network.post([0, 0], [10, 10], [1, 2])
    network.lend([12.0])
    assert [network.advance(NEVER) for _ in range(2)] == [[(ps(0.5), 1, 0)], [(ps(8.5), 2, 0)]]


def test_flows_share_what_is_lent_as_they_share_links() -> None:
    network = FluidNetwork([8.0])
    flows = network.add_flows([[0], [0]])
    network.post([0, 1], [10, 30], [1, 2])
    network.lend([10.0])
    assert network.delivered_bytes(flows).tolist() == [5.0, 5.0]
    assert [network.advance(NEVER) for _ in range(2)] == [[(ps(10.0), 1, 0)], [(ps(30.0), 2, 1)]]


def test_each_bucket_lends_what_it_holds() -> None:
    """A flow over a slow and a fast link, one over the fast one alone, and one whose link has no bucket."""
    network = FluidNetwork([8.0, 80.0, 8.0])
    flows = network.add_flows([[0, 1], [1], [2]])
    network.post([0, 1, 2], [50, 500, 50], [1, 2, 3])
    network.lend([20.0, 50.0, np.inf])
    # The slow link's 20 bytes are empty together with all others' after 20 s at its rate.
    assert network.delivered_bytes(flows).tolist() == pytest.approx([20.0, 30.0, 20.0])
    assert network.link_bps.tolist() == [8.0, 80.0, 8.0]
    # From then on 1, 9 and 1 bytes a second, and 10 when the slow link's flow has ended.
    assert arrivals(network) == pytest.approx({1: 30.0, 3: 30.0, 2: 50.0})


def test_a_dark_link_lends_nothing() -> None:
    network = FluidNetwork([0.0, 8.0])
    flows = network.add_flows([[0], [1]])
    network.post([0, 1], [10, 10], [1, 2])
    network.lend([5.0, 5.0])
    assert network.delivered_bytes(flows).tolist() == [0.0, 5.0]
    network.set_rates(0, 8.0)
    assert arrivals(network) == {2: 5.0, 1: 10.0}


@given(histories())
def test_flows_that_come_later_move_as_if_they_had_always_been_there(
    history: tuple[NDArray[np.int64], NDArray[np.float64], list[Change]],
) -> None:
    paths, rate_bps, changes = history
    whole, growing = network_of(rate_bps, paths), network_of(rate_bps, paths[:1])
    growing.advance(0)
    known, found = 1, dict[int, float]()
    for number, change in enumerate(changes):
        found |= arrivals(growing, change.at_s)
        if change.flow >= known:
            growing.add_flows([path[path >= 0].tolist() for path in paths[known : change.flow + 1]])
            known = change.flow + 1
        change.apply(growing, number)
    found |= arrivals(growing)
    expected = dict[int, float]()
    for number, change in enumerate(changes):
        expected |= arrivals(whole, change.at_s)
        change.apply(whole, number)
    assert found == expected | arrivals(whole)
