"""Policies: what holds for every one of them, and what ECMP and RailS promise beyond."""

import heapq
import itertools
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.examples import examples
from tests.traffic.cases import Work, assigned, uneven_fabric, work_of, works
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic
from topologies.leaf_spine import leaf_spine_fabric
from topologies.packet_part import packet_part
from topologies.rail import rail_fabric
from traffic.bounds import lower_bound_s
from traffic.messages import Chunks, Messages, chunks_of
from traffic.spraying.checks import choice
from traffic.spraying.entropies import KeptEntropies, distinct_entropies
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.policy import (
    ENTROPIES,
    Assignment,
    Lanes,
    LaneState,
    Message,
    ProactivePolicy,
    QueuePair,
    ReactivePolicy,
)
from traffic.spraying.rails import Rails, lpt, lpt_among
from traffic.spraying.registry import POLICIES, policy_named

PROACTIVE = [
    name
    for name in (*POLICIES, "ecmp:3", "pxn:3", "rails:3")
    if isinstance(policy_named(name), ProactivePolicy)
]
weights = st.lists(st.integers(0, 12), max_size=200) | st.lists(st.integers(1, 1 << 40), max_size=50)


def heap_lpt(sizes: list[int], bins: int) -> list[int]:
    """LPT as a textbook has it: an independent few lines."""
    chosen, heap = [0] * len(sizes), [(0, index) for index in range(bins)]
    for item in sorted(range(len(sizes)), key=lambda item: -sizes[item]):
        load, index = heapq.heappop(heap)
        heapq.heappush(heap, (load + sizes[item], index))
        chosen[item] = index
    return chosen


def loads(sizes: list[int], chosen: NDArray[np.int64], bins: int) -> NDArray[np.float64]:
    return np.bincount(chosen, np.array(sizes, dtype=float), bins).astype(float)


@pytest.mark.parametrize("name", PROACTIVE)
@given(work=works())
def test_every_chunk_is_carried_once_between_the_right_servers(name: str, work: Work) -> None:
    assignment = assigned(name, work)
    servers = np.asarray(work.fabric.gpu_servers)
    assert assignment.chunk_qp.shape == (len(work.chunks),)
    assert sorted(assignment.order.tolist()) == list(range(len(work.chunks)))
    assert len(set(assignment.queue_pairs)) == len(assignment.queue_pairs)
    assert set(assignment.chunk_qp.tolist()) == set(range(len(assignment.queue_pairs)))
    for message, qp in zip(work.chunks.message, assignment.chunk_qp, strict=True):
        pair = assignment.queue_pairs[qp]
        assert pair.source.server == servers[work.crossing.source[message]]
        assert pair.destination.server == servers[work.crossing.destination[message]]
        assert max(pair.source.nic, pair.destination.nic) < work.fabric.servers[0].nics


@pytest.mark.parametrize("name", PROACTIVE)
@given(work=works())
def test_a_seed_gives_one_assignment(name: str, work: Work) -> None:
    one, other = assigned(name, work, seed=7), assigned(name, work, seed=7)
    assert one.queue_pairs == other.queue_pairs
    assert one.chunk_qp.tolist() == other.chunk_qp.tolist()
    assert one.order.tolist() == other.order.tolist()


@given(work=works())
def test_messages_take_turns_on_a_queue_pair(work: Work) -> None:
    order = assigned("rails", work).order
    turns = [0] * len(work.crossing)
    seen = []
    for message in work.chunks.message[order]:
        seen.append(turns[message])
        turns[message] += 1
    assert seen == sorted(seen)


def test_chunks_of_rails_go_round_entropies_where_several_switches_join_two_nics() -> None:
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 1] = matrix[0, 2] = 8  # servers 0 and 1 are on one leaf, 0 and 2 are not
    work = work_of(leaf_spine_fabric(4, 2, 2), matrix, chunk_bytes=1)
    found = assigned("rails:4", work)
    carried = Counter(str(found.queue_pairs[qp]) for qp in found.chunk_qp)
    assert carried == {"0.0>1.0#0": 8, "0.0>2.0#0": 2, "0.0>2.0#1": 2, "0.0>2.0#2": 2, "0.0>2.0#3": 2}
    assert {str(each) for each in assigned("rails", work).queue_pairs} == {"0.0>1.0#0", "0.0>2.0#0"}


@given(work=works())
def test_ecmp_keeps_a_message_on_one_queue_pair_between_its_gpus_nics(work: Work) -> None:
    assignment = assigned("ecmp", work)
    assert assignment.chunk_qp.tolist() == work.chunks.message.tolist()
    ends = [(pair.source, pair.destination) for pair in assignment.queue_pairs]
    assert ends == [
        (work.fabric.pinned_nic(source), work.fabric.pinned_nic(destination))
        for source, destination in zip(work.crossing.source, work.crossing.destination, strict=True)
    ]


def test_ecmp_gives_messages_of_shared_nics_entropies_of_their_own() -> None:
    work = work_of(big_switch_fabric(2, gpus=20), np.ones((40, 40), dtype=np.int64))
    pairs = assigned("ecmp", work).queue_pairs
    assert len(set(pairs)) == len(pairs) == 2 * 20 * 20


def test_entropies_are_refused_when_there_are_too_few() -> None:
    with pytest.raises(ScenarioError, match="4097 queue pairs join the same two NICs"):
        distinct_entropies(np.zeros(ENTROPIES + 1, dtype=np.int64), np.random.default_rng(0))


def test_many_entropies_are_all_distinct() -> None:
    entropy = distinct_entropies(np.zeros(ENTROPIES // 2, dtype=np.int64), np.random.default_rng(0))
    assert len(set(entropy.tolist())) == ENTROPIES // 2
    assert set(entropy.tolist()) <= set(range(ENTROPIES))


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=4))
def test_entropies_stay_and_are_all_distinct_between_two_nics(counts: list[tuple[int, int]]) -> None:
    kept, rng = KeptEntropies(), np.random.default_rng(0)
    ends = (Nic(0, 0), Nic(1, 0)), (Nic(0, 0), Nic(2, 0))
    known: dict[tuple[Nic, Nic], list[int]] = {end: [] for end in ends}
    for count in counts:
        each = [
            end for pair in itertools.zip_longest(*map(itertools.repeat, ends, count)) for end in pair if end
        ]
        values = kept.one_each(each, rng)
        for end in ends:
            own = [value for value, at in zip(values, each, strict=True) if at == end]
            assert len(set(own)) == len(own)
            assert own[: len(known[end])] == known[end][: len(own)]
            known[end] = max(known[end], own, key=len)


@given(work=works(), qps=st.integers(1, 5))
def test_chunks_of_a_connection_go_round_its_queue_pairs(work: Work, qps: int) -> None:
    assignment = assigned(f"ecmp:{qps}", work)
    leaf = work.fabric.pinned_nic  # NIC n is on leaf n
    for message in range(len(work.crossing)):
        own = np.flatnonzero(work.chunks.message == message)
        source, destination = work.crossing.source[message], work.crossing.destination[message]
        ways = 1 if leaf(source).nic == leaf(destination).nic else qps
        counts = np.bincount(assignment.chunk_qp[own])
        counts = counts[counts > 0]
        assert len(counts) == min(ways, len(own))
        assert counts.max() - counts.min() <= 1
        assert {assignment.queue_pairs[qp].source for qp in assignment.chunk_qp[own]} == {leaf(source)}


@given(work=works())
def test_pxn_leaves_on_the_destinations_rail_by_one_connection_to_a_gpu(work: Work) -> None:
    assignment = assigned("pxn", work)
    connections: dict[tuple[int, int], int] = {}
    for message, qp in zip(work.chunks.message.tolist(), assignment.chunk_qp.tolist(), strict=True):
        pair, destination = assignment.queue_pairs[qp], int(work.crossing.destination[message])
        assert pair.destination == work.fabric.pinned_nic(destination)
        assert pair.source.nic == pair.destination.nic
        assert connections.setdefault((pair.source.server, destination), qp) == qp
    assert len(connections) == len(assignment.queue_pairs)


def test_pxn_leaves_by_the_nic_beside_a_gpu_where_the_rail_has_failed() -> None:
    whole = rail_fabric(2, 2)
    part = packet_part(whole, frozenset({whole.nic_port(Nic(0, 1))}))
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 3] = matrix[1, 3] = matrix[2, 1] = 24
    work = work_of(part.fabric, matrix)
    ends = {
        (message, part.nics[qp.source], part.nics[qp.destination])
        for message, qp in zip(
            work.chunks.message.tolist(),
            (assigned("pxn", work).queue_pairs[qp] for qp in assigned("pxn", work).chunk_qp),
            strict=True,
        )
    }
    assert ends == {
        (0, Nic(0, 0), Nic(1, 1)),
        (1, Nic(0, 0), Nic(1, 1)),
        (2, Nic(1, 0), Nic(0, 0)),
    }


@pytest.mark.parametrize("name", ["ecmp:1", "ecmp:4", "reps:8", "pxn:2", f"pxn:{ENTROPIES}"])
def test_a_name_says_how_many_entropies(name: str) -> None:
    policy = policy_named(name)
    assert policy.name == name
    assert str(getattr(policy, "per_nic", getattr(policy, "qps", None))) == name.partition(":")[2]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(
            (f"ecmp:{count}", f"the scheme 'ecmp:{count}' asks for '{count}' entropies; give a whole number")
            for count in ("", "0", "x", "-1", "04", "1.5", "4:4", "+4", " 4", "4\n", "٤", "4097", "9" * 30)
        ),
        ("reps:0", "the scheme 'reps:0' asks for '0' entropies"),
        ("optimal:4", "the scheme 'optimal' takes nothing behind a colon"),
    ],
)
def test_a_name_of_no_entropies_is_refused(name: str, said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        policy_named(name)
    assert str(refused.value).startswith(said.replace("\n", "\\n"))


@given(sizes=weights, bins=st.integers(1, 9))
def test_lpt_chooses_what_the_plain_heap_chooses(sizes: list[int], bins: int) -> None:
    assert lpt(np.array(sizes, dtype=np.int64), bins).tolist() == heap_lpt(sizes, bins)


@given(
    runs=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 400)), min_size=1, max_size=6),
    bins=st.integers(1, 9),
)
def test_lpt_chooses_what_the_plain_heap_chooses_over_long_runs(
    runs: list[tuple[int, int]], bins: int
) -> None:
    sizes = [size for size, count in runs for _ in range(count)]
    assert lpt(np.array(sizes, dtype=np.int64), bins).tolist() == heap_lpt(sizes, bins)


@given(start=st.lists(st.integers(0, 300), min_size=1, max_size=6), count=st.integers(0, 300))
def test_lpt_goes_on_from_what_is_in_the_bins(start: list[int], count: int) -> None:
    bins = len(start)
    chosen = lpt(np.full(count, 3, dtype=np.int64), bins, np.array(start))
    filled = list(start)
    for index in chosen:
        assert index == filled.index(min(filled))
        filled[index] += 3


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=7), bins=st.integers(1, 3))
def test_lpt_is_within_its_bound_of_the_best(sizes: list[int], bins: int) -> None:
    longest = loads(sizes, lpt(np.array(sizes), bins), bins).max()
    best = min(
        loads(sizes, np.array(chosen), bins).max()
        for chosen in itertools.product(range(bins), repeat=len(sizes))
    )
    assert longest <= (4 / 3 - 1 / (3 * bins)) * best + 1e-9


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=200), bins=st.integers(1, 8))
def test_lpt_mse_is_at_most_the_largest_weight_squared(sizes: list[int], bins: int) -> None:
    assert np.var(loads(sizes, lpt(np.array(sizes), bins), bins)) <= max(sizes) ** 2


@given(sizes=st.lists(st.integers(0, 1000), max_size=100), bins=st.integers(1, 8))
def test_lpt_among_all_bins_is_lpt(sizes: list[int], bins: int) -> None:
    weights = np.array(sizes, dtype=np.int64)
    assert lpt_among(weights, np.ones((len(sizes), bins), dtype=np.bool_)).tolist() == heap_lpt(sizes, bins)


@given(
    st.lists(st.tuples(st.integers(0, 99), st.sets(st.integers(0, 3), min_size=1)), min_size=4, max_size=40),
    st.lists(st.integers(0, 300), min_size=4, max_size=4),
)
@example([(5, {0, 1}), (5, {0, 1})], [8, 0, 0, 0])
def test_lpt_among_some_bins_keeps_to_them_and_takes_the_least_loaded(
    flows: list[tuple[int, set[int]]], held: list[int]
) -> None:
    weights = np.array([weight for weight, _ in flows], dtype=np.int64)
    usable = np.array([[index in bins for index in range(4)] for _, bins in flows]).reshape(-1, 4)
    start, load = np.array(held), np.array(held)
    chosen = lpt_among(weights, usable, start)
    for flow in np.argsort(-weights, kind="stable").tolist():
        assert usable[flow, chosen[flow]]
        assert load[chosen[flow]] == load[usable[flow]].min()
        load[chosen[flow]] += weights[flow]
    assert start.tolist() == held


def test_a_flow_that_may_use_no_bin_is_refused() -> None:
    with pytest.raises(ScenarioError, match="no rail in common"):
        lpt_among(np.array([1]), np.zeros((1, 2), dtype=np.bool_))


def sent_by_rail(assignment: Assignment, work: Work) -> NDArray[np.int64]:
    """Return what each server sends on each rail, shape (servers, rails)."""
    sent = np.zeros((len(work.fabric.servers), work.fabric.servers[0].nics), dtype=np.int64)
    for size, qp in zip(work.chunks.bytes, assignment.chunk_qp, strict=True):
        sent[assignment.queue_pairs[qp].source] += size
    return sent


@given(work=works())
def test_rails_keeps_to_one_rail_and_is_even_but_for_a_chunk(work: Work) -> None:
    policy = Rails()
    assignment = policy.assign(
        fabric=work.fabric, messages=work.crossing, chunks=work.chunks, rng=np.random.default_rng()
    )
    assert all(pair.source.nic == pair.destination.nic for pair in assignment.queue_pairs)
    sent = sent_by_rail(assignment, work)
    assert (sent.max(axis=1) - sent.min(axis=1) <= work.chunks.bytes.max(initial=0)).all()


@given(work=works(), data=st.data())
def test_rails_puts_chunks_longest_first_where_least_is_left_of_what_works(
    work: Work, data: st.DataObject
) -> None:
    """Some NICs of all rails but the first have failed, and messages come in any order."""
    some = data.draw(st.sets(st.sampled_from(work.fabric.nics)))
    failed = frozenset(work.fabric.nic_port(nic) for nic in some if nic.nic)
    fabric = packet_part(work.fabric, failed).fabric
    turned = np.array(data.draw(st.permutations(range(len(work.crossing)))), dtype=np.int64)
    columns = work.crossing.source, work.crossing.destination, work.crossing.bytes
    messages = Messages(*(column[turned] for column in columns))
    chunks = chunks_of(messages, 8)
    held = {nic: data.draw(st.integers(0, 50)) for nic in fabric.nics}
    policy = Rails()
    policy.goes_on_from(held.__getitem__)
    found = policy.assign(fabric=fabric, messages=messages, chunks=chunks, rng=np.random.default_rng())
    left = {(nic.server, rail): held[nic] for nic, rail in rails_of_nics(fabric).items()}
    sizes, of = chunks.bytes.tolist(), chunks.message.tolist()
    for chunk in sorted(range(len(chunks)), key=lambda chunk: (-sizes[chunk], messages.source[of[chunk]])):
        pair = found.queue_pairs[found.chunk_qp[chunk]]
        servers = [fabric.gpu_servers[ends[of[chunk]]] for ends in (messages.source, messages.destination)]
        assert [pair.source.server, pair.destination.server] == servers
        rails = set(fabric.rails(servers[0])) & set(fabric.rails(servers[1]))
        least = min(rails, key=lambda rail: (left[servers[0], rail], rail))
        assert {rails_of_nics(fabric)[nic] for nic in (pair.source, pair.destination)} == {least}
        left[servers[0], least] += sizes[chunk]


def rails_of_nics(fabric: Fabric) -> dict[Nic, int]:
    """Return the rail of each NIC."""
    servers = range(len(fabric.servers))
    return {Nic(server, nic): rail for server in servers for rail, nic in fabric.rails(server).items()}


def test_rails_deals_equal_chunks_gpu_by_gpu_in_turn() -> None:
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 2], matrix[1, 3] = 24, 16  # three and two chunks of 8 bytes, both from server 0
    assignment = assigned("rails", work_of(rail_fabric(2, 2), matrix))
    assert [assignment.queue_pairs[qp].source.nic for qp in assignment.chunk_qp] == [0, 1, 0, 1, 0]


def test_rails_forgets_the_collective_before() -> None:
    policy = policy_named("rails")
    assert isinstance(policy, Rails)
    for size in (64, 8):
        work = work_of(rail_fabric(2, 2), np.full((4, 4), size))
        assignment = policy.assign(
            fabric=work.fabric, messages=work.crossing, chunks=work.chunks, rng=np.random.default_rng()
        )
        assert sent_by_rail(assignment, work).tolist() == [[2 * size, 2 * size]] * 2


def test_rails_goes_on_from_a_backlog_once() -> None:
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 2] = 32  # four chunks
    work, policy = work_of(rail_fabric(2, 2), matrix), Rails()
    policy.goes_on_from({Nic(0, 0): 16, Nic(0, 1): 0}.__getitem__)
    for sent in ([8, 24], [16, 16]):
        found = policy.assign(
            fabric=work.fabric, messages=work.crossing, chunks=work.chunks, rng=np.random.default_rng()
        )
        assert sent_by_rail(found, work)[0].tolist() == sent


def with_a_fast_rail(fabric: Fabric) -> Fabric:
    """Return the fabric with rail 0 three times as fast."""
    links = (
        replace(link, rate_bps=3 * link.rate_bps) if "leaf0" in (link.a.node, link.b.node) else link
        for link in fabric.links
    )
    return replace(fabric, links=tuple(links))


@pytest.mark.parametrize(("name", "over_the_bound"), [("rails", 2.0), ("optimal", 1.0)])
def test_the_optimum_knows_which_rail_is_fast(name: str, over_the_bound: float) -> None:
    matrix = np.random.default_rng(0).integers(100, 900, (6, 6))
    work = work_of(with_a_fast_rail(rail_fabric(3, 2, rate_bps=80.0)), matrix)
    assignment = assigned(name, work)
    busy_s: dict[tuple[str, Nic], float] = {}
    for size, qp in zip(work.chunks.bytes.tolist(), assignment.chunk_qp, strict=True):
        pair = assignment.queue_pairs[qp]
        for end in (("sends", pair.source), ("receives", pair.destination)):
            busy_s[end] = busy_s.get(end, 0.0) + 8 * size / work.fabric.nic_rate_bps(end[1])
    bound_s = lower_bound_s(work.messages, work.fabric)
    assert max(busy_s.values()) == pytest.approx(over_the_bound * bound_s, rel=0.01)


@settings(max_examples=examples(100, 300))  # few works have pairs whose remainders add up
@given(work=works())
def test_the_optimum_splits_every_pair_evenly_where_rails_are_alike(work: Work) -> None:
    assignment, servers = assigned("optimal", work), len(work.fabric.servers)
    load = np.zeros((servers, servers, work.fabric.servers[0].nics))
    for size, qp in zip(work.chunks.bytes.tolist(), assignment.chunk_qp, strict=True):
        pair = assignment.queue_pairs[qp]
        load[pair.source.server, pair.destination.server, pair.source.nic] += size
    largest = work.chunks.bytes.max(initial=0)
    for per_nic in (load.sum(axis=1), load.sum(axis=0)):  # sent, received
        assert np.ptp(per_nic, axis=1).max() <= servers * largest


def test_rails_needs_rails() -> None:
    with pytest.raises(ScenarioError, match="'uneven' have 1 to 2 NICs"):
        assigned("rails", work_of(uneven_fabric(1, 2), np.ones((3, 3), dtype=np.int64)))


def test_an_unknown_scheme_is_answered_with_the_names() -> None:
    with pytest.raises(ScenarioError, match=r"'spry'; choose among ecmp, .*rails"):
        policy_named("spry")


def test_each_caller_gets_a_policy_of_its_own() -> None:
    assert policy_named("rails") is not policy_named("rails")


def last_nic(*, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator) -> Assignment:
    """A user's own scheme for two servers: everything from server 0's NIC 0 to server 1's."""
    nothing = np.zeros(len(chunks), dtype=np.int64)
    return Assignment((QueuePair(Nic(0, 0), Nic(1, 0)),), nothing, np.arange(len(chunks)))


def test_a_users_own_function_is_a_policy() -> None:
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 2] = 24
    name = f"{__name__}:last_nic"
    assert policy_named(name).name == name
    assert assigned(name, work_of(rail_fabric(2, 2), matrix)).chunk_qp.tolist() == [0, 0, 0]


class Named(Rails):
    """A user's own class that has a name of its own."""

    name = "mine"


class Raising(MinRtt):
    """A user's own class whose methods raise."""

    name = "raising"
    settles = True

    def admit(self, *, message: Message) -> Lanes:
        """Raise."""
        raise KeyError("admit")

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Choose a lane that there is not."""
        return len(states) + message

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Leave."""
        sys.exit(0)


def test_a_users_own_class_is_a_policy_by_its_name_unless_it_is_one_of_ours() -> None:
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 2] = 24
    for own, name in (
        ("traffic.spraying.rails:Rails", "traffic.spraying.rails:Rails"),
        (f"{__name__}:Named", "mine"),
    ):
        assert policy_named(own).name == name
        mine, ours = (assigned(each, work_of(rail_fabric(2, 2), matrix)) for each in (own, "rails"))
        assert mine.chunk_qp.tolist() == ours.chunk_qp.tolist()


def test_what_a_users_own_class_raises_is_a_sentence() -> None:
    policy = policy_named(f"{__name__}:Raising")
    assert isinstance(policy, ReactivePolicy)
    assert (policy.name, getattr(policy, "settles", False)) == ("raising", True)
    where = r"at .*test_spraying\.py:\d+"
    with pytest.raises(ScenarioError, match=f"your scheme raised KeyError {where}: 'admit'; --debug"):
        policy.admit(message=Message(0, 0, 2, 1))
    with pytest.raises(ScenarioError, match=f"your scheme raised SystemExit {where}: 0; --debug"):
        policy.acknowledged(message=0, lane=0, rtt_s=0.0, marked=False, now=0.0)
    with pytest.raises(ScenarioError, match="'raising' chose 5 for message 3, which has 2 lanes; return"):
        choice(policy, 3, [LaneState(0, 0.0, True)] * 2, 0.0)


def nothing(**_: object) -> None:
    """What takes everything, and assigns nothing."""


class Halfway:
    """What chooses, and is asked nothing else."""

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Wait."""

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Record nothing."""


class Deaf(MinRtt):
    """A reactive policy that is not told when something happens."""

    def acknowledged(self, *, message: int, lane: int) -> None:  # type: ignore[override]
        """Record nothing."""


def test_a_users_own_function_that_returns_no_assignment_is_refused() -> None:
    with pytest.raises(ScenarioError, match="nothing' returned an object of type NoneType; return an Assign"):
        assigned(f"{__name__}:nothing", work_of(rail_fabric(2, 2), np.zeros((4, 4), dtype=np.int64)))


written_in_c = max


class Costly(Rails):
    """A policy that cannot be made without an argument."""

    def __init__(self, price: int) -> None:
        self.price = price


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("os:getcwd", "cannot be loaded: os is a module of Python itself; name it as module:function"),
        ("builtins:max", "cannot be loaded: builtins is a module of Python itself"),
        (
            "topologies.rail:rail_fabric",
            r"the arguments fabric, .* rng; write it as: def rail_fabric\(\*, fabric, .*/own_scheme",
        ),
        (f"{__name__}:written_in_c", f"cannot be loaded: {__name__} has it from builtins"),
        (
            f"{__name__}:Deaf",
            r"Deaf.acknowledged' .* message, lane, rtt_s, marked, now; write it as: def acknowl",
        ),
        ("no_such_module:scheme", "cannot be imported"),
        ("traffic.spraying.rails:no_such", "cannot be imported"),
        (":scheme", "cannot be imported"),
        ("traffic.spraying.rails:SHORT_RUN", "is not a spraying policy"),
        ("topologies.fabric:Fabric", "is not a spraying policy"),
        (
            f"{__name__}:Halfway",
            "Halfway' is not a spraying policy: it has no open, admit, withdraw, name; give",
        ),
        (f"{__name__}:Costly", "your scheme raised TypeError"),
    ],
)
def test_what_is_no_policy_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        policy_named(name)
