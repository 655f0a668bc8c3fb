"""The engine over real TCP on loopback: servers 1 and 2 send to server 0, at 127.0.<server>.<NIC + 1>."""

import os
import resource
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import chain

import numpy as np
import pytest

from tests.traffic.cases import Work, admitted_by, assigned, work_of
from topologies.errors import MachineError, NetworkError, StuckError
from topologies.fabric import Nic
from topologies.rail import rail_fabric
from traffic.scheme import Choice
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.policy import LaneState, ProactivePolicy, QueuePair, ReactivePolicy, each_of
from traffic.spraying.registry import POLICIES, policy_named
from traffic.transports.connections import (
    SPARE_DESCRIPTORS,
    Endpoints,
    accept,
    dial,
    ends,
    listening,
    ports,
)
from traffic.transports.engine import Engine
from traffic.transports.late_binding import ReactiveFeeder
from traffic.transports.loop import Health
from traffic.transports.round_trips import Crossing
from traffic.transports.transport import PACKET_BYTES

PROACTIVE = [name for name in POLICIES if isinstance(policy_named(name), ProactivePolicy)]
REACTIVE = [name for name in POLICIES if isinstance(policy_named(name), ReactivePolicy)]
FABRIC = rail_fabric(3, 2, 2)
MANY = 60_000_000
"""More bytes than sockets on loopback hold."""
ONE, OTHER = QueuePair(Nic(1, 0), Nic(0, 0), 1), QueuePair(Nic(2, 1), Nic(0, 1), 2)


def nic_rate_bps(_nic: Nic) -> float:
    """Return the rate of every NIC: what follows takes some milliseconds."""
    return 400e6


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> Endpoints:
    """Make sockets on loopback, with server 0 on a port that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        try:
            free.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        except PermissionError:
            pytest.skip(
                "this machine keeps cubic from ordinary users (net.ipv4.tcp_allowed_congestion_control)"
            )
        monkeypatch.setattr("traffic.transports.connections.SERVICE_PORT", free.getsockname()[1])
    return Endpoints(
        lambda _server: socket.socket(), lambda nic: IPv4Address(f"127.0.{nic.server}.{nic.nic + 1}")
    )


def some_work(seed: int) -> Work:
    """Return what the GPUs of servers 1 and 2 owe those of server 0, at random."""
    matrix = np.zeros((6, 6), dtype=np.int64)
    matrix[2:, :2] = np.random.default_rng(seed).integers(1, 300_000, (4, 2))
    matrix[3, 0] = 0
    return work_of(FABRIC, matrix, chunk_bytes=4096)


@dataclass
class Carried:
    """What an engine saw."""

    health: Health
    at_s: dict[int, float]
    """When each message arrived, since the start [s]."""
    counted: dict[QueuePair, int]


def carry(
    loopback: Endpoints,
    queue_pairs: Sequence[QueuePair],
    sizes: Sequence[int],
) -> Carried:
    """Carry a message of its own over each queue pair."""
    with Engine(loopback) as engine:
        numbers = connect(engine, queue_pairs)
        engine.post(np.array(numbers), np.array(sizes), np.arange(len(sizes)))
        return served(engine, dict(zip(queue_pairs, numbers, strict=True)))


def connect(engine: Engine, queue_pairs: Sequence[QueuePair]) -> list[int]:
    """Return the numbers of queue pairs that are connected."""
    numbers = [engine.add(queue_pair) for queue_pair in queue_pairs]
    engine.connect(numbers)
    return numbers


def served(engine: Engine, numbers: Mapping[QueuePair, int]) -> Carried:
    """Serve until all has arrived."""
    began, at_s = time.monotonic(), dict[int, float]()
    while not engine.quiet:
        for message, at, _ in engine.serve(1.0):
            assert message not in at_s, "a message arrived twice"
            at_s[message] = at - began
    assert all(engine.drained(number) for number in numbers.values())
    return Carried(engine.health, at_s, {qp: engine.counted(number) for qp, number in numbers.items()})


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", PROACTIVE)
def test_a_proactive_scheme_moves_all_bytes_where_it_said(loopback: Endpoints, name: str, seed: int) -> None:
    work = some_work(seed)
    plan = assigned(name, work, seed)
    with Engine(loopback) as engine:
        numbers = np.array(connect(engine, plan.queue_pairs))
        engine.post(
            numbers[plan.chunk_qp[plan.order]],
            work.chunks.bytes[plan.order],
            work.chunks.message[plan.order],
        )
        seen = Counter[int]()
        while not engine.quiet:
            seen.update(message for message, *_ in engine.serve(1.0))
        loads = np.bincount(plan.chunk_qp, work.chunks.bytes, len(numbers))
        assert [engine.counted(number) for number in numbers.tolist()] == loads.tolist()
        assert engine.health.payload_bytes == work.crossing.bytes.sum()
    on = zip(work.chunks.message.tolist(), plan.chunk_qp.tolist(), strict=True)
    assert seen == Counter(message for message, _ in set(on)), "once for each queue pair that carries of it"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", REACTIVE)
def test_a_reactive_scheme_moves_all_bytes_where_it_may(loopback: Endpoints, name: str, seed: int) -> None:
    work, policy = some_work(seed), policy_named(name)
    assert isinstance(policy, ReactivePolicy)
    choice = admitted_by(policy, work)
    names, numbers = range(7, 7 + len(work.crossing)), dict[QueuePair, int]()
    with Engine(loopback) as engine:
        feeder = feeder_of(engine, choice, names, numbers)
        engine.feed(feeder)
        seen = served(engine, numbers)
    assert sorted(seen.at_s) == list(names)
    counted = dict.fromkeys(numbers.values(), 0)
    for message, size in enumerate(work.crossing.bytes.tolist()):
        parts = feeder.carried(7 + message)
        assert sum(parts.values()) == size
        assert set(parts) <= {(numbers[pair], None) for pair in each_of(choice.lanes[message])}
        for (number, _), part in parts.items():
            counted[number] += part
    assert list(seen.counted.values()) == list(counted.values())


def test_messages_of_one_queue_pair_arrive_in_the_order_in_which_they_were_posted(
    loopback: Endpoints,
) -> None:
    with Engine(loopback) as engine:
        (number,) = connect(engine, [ONE])
        engine.post(np.full(4, number), np.full(4, 100_000), np.array([3, 1, 3, 2]))
        engine.post(np.array([number]), np.array([100_000]), np.array([9]))
        seen = served(engine, {ONE: number})
    assert list(seen.at_s) == [1, 3, 2, 9], "a message that was posted in two parts ends with the second"
    assert list(seen.at_s.values()) == sorted(seen.at_s.values())


def test_what_is_posted_later_goes_over_the_same_connection(loopback: Endpoints) -> None:
    with Engine(loopback) as engine:
        (number,) = connect(engine, [ONE])
        for message in range(5):
            engine.post(np.array([number]), np.array([50_000]), np.array([message]))
            assert list(served(engine, {ONE: number}).at_s) == [message]
        assert engine.counted(number) == 250_000


def test_a_queue_pair_that_is_held_sends_nothing_more(loopback: Endpoints) -> None:
    with Engine(loopback) as engine:
        one, other = connect(engine, [ONE, OTHER])
        engine.post(np.array([one, other]), np.array([MANY, 500_000]), np.array([0, 1]))
        while not engine.counted(one):
            engine.serve(1.0)
        engine.hold([one])
        while engine.counted(other) < 500_000 or not engine.drained(one):
            engine.serve(1.0)
        stood = engine.counted(one)
        engine.post(np.array([other]), np.array([MANY]), np.array([2]))
        while engine.counted(other) < 500_000 + MANY:  # so long the one could have sent as much
            engine.serve(1.0)
        assert engine.counted(one) == stood < MANY
        engine.resume([one])
        assert list(served(engine, {ONE: one}).at_s) == [0]


def test_what_was_not_delivered_is_given_back_and_its_ports_are_free(
    loopback: Endpoints,
) -> None:
    with Engine(loopback) as engine:
        (number,) = connect(engine, [ONE])
        engine.post(np.full(2, number), np.array([400_000, MANY]), np.array([4, 5]))
        assert engine.carried(number) == {4, 5}
        while engine.counted(number) < 400_000:
            engine.serve(1.0)
        counted = engine.counted(number)
        assert engine.withdraw(number) == [(5, 400_000 + MANY - counted)]
        assert engine.quiet
        (again,) = connect(engine, [ONE])
        engine.post(np.array([again]), np.array([400_000 + MANY - counted]), np.array([5]))
        assert list(served(engine, {ONE: again}).at_s) == [5]
        assert engine.health.payload_bytes == 400_000 + MANY


def test_an_old_connection_that_was_reset_before_it_was_accepted_stands_for_no_queue_pair(
    loopback: Endpoints,
) -> None:
    with Engine(loopback) as engine, ExitStack() as stack:
        connect(engine, [OTHER])  # so that its server listens
        old = dial(stack, loopback, ONE)
        assert select.select([], [old], [], 5.0)[1]
        old.close()
        (number,) = connect(engine, [ONE])
        engine.post(np.array([number]), np.array([1000]), np.array([5]))
        assert list(served(engine, {ONE: number}).at_s) == [5]


def test_what_is_retracted_before_it_is_sent_is_owed_no_more(loopback: Endpoints) -> None:
    with Engine(loopback) as engine:
        (number,) = connect(engine, [ONE])
        engine.hold([number])
        engine.post(np.array([number, number]), np.array([1000, 500]), np.array([3, 4]))
        assert (engine.quiet, engine.owed(number)) == (False, 1500)
        assert engine.retract(number) == [(3, 1000, True), (4, 500, True)]
        assert (engine.quiet, engine.owed(number)) == (True, 0)
        engine.resume([number])
        engine.post(np.array([number]), np.array([700]), np.array([5]))
        assert list(served(engine, {ONE: number}).at_s) == [5]


def test_nothing_to_send_is_done_at_once(loopback: Endpoints) -> None:
    seen = carry(loopback, [], [])
    assert (seen.at_s, seen.health) == ({}, Health())


def test_connections_are_pinned_and_their_ports_are_free_again_at_once(loopback: Endpoints) -> None:
    for _ in range(2):
        with ExitStack() as stack:
            listener = listening(stack, loopback, 0, ports(ONE)[1])
            sender = dial(stack, loopback, ONE)
            assert select.select([listener], [], [], 5.0)[0]
            receiver, between = accept(stack, listener)
            assert between == ends(ONE, loopback)
            assert sender.getsockname() == receiver.getpeername() == between[:2]
            source_port, service_port = ports(ONE)
            assert between == (str(loopback.address(ONE.source)), source_port, "127.0.0.1", service_port)


Cut = Callable[[socket.socket], None]


@pytest.mark.parametrize(
    ("end", "cut"),
    [
        pytest.param("receiver", lambda end: end.shutdown(socket.SHUT_RDWR), id="receiver"),
        pytest.param("sender", lambda end: end.shutdown(socket.SHUT_WR), id="sender"),
    ],
)
def test_a_connection_that_breaks_is_named(loopback: Endpoints, end: str, cut: Cut) -> None:
    with Engine(loopback) as engine:
        numbers = connect(engine, [ONE, OTHER])
        engine.post(np.array(numbers), np.array([1000, 50_000_000]), np.arange(2))
        cut(getattr(engine._pairs[numbers[1]], end))
        with pytest.raises(StuckError, match=rf"queue pair {OTHER} (broke|was closed)"):
            served(engine, {})


def deaf(engine: Engine) -> None:
    """Connect both queue pairs and post on them, but listen to the first only."""
    numbers = connect(engine, [ONE, OTHER])
    receiver = engine._pairs[numbers[1]].receiver
    assert receiver is not None
    engine.loop.modify(receiver.fileno(), 0)
    engine.post(np.array(numbers), np.array([1000, 2000]), np.arange(2))


def test_a_queue_pair_without_progress_is_named(loopback: Endpoints) -> None:
    with Engine(loopback, stuck_s=1.0) as engine:
        deaf(engine)
        with pytest.raises(StuckError) as caught:
            served(engine, {})
    assert caught.value.sentence == (
        f"queue pair {OTHER} made no progress for 1 s (0 of 2,000 bytes arrived; 1 are stuck)"
    )


def test_a_network_that_dies_ends_the_run(loopback: Endpoints) -> None:
    def check() -> None:
        raise NetworkError("the controller ended during the run")

    with Engine(loopback, check=check) as engine:
        deaf(engine)
        with pytest.raises(NetworkError, match="the controller ended"):
            served(engine, {})


def test_two_collectives_share_queue_pairs_and_one_ends_first(loopback: Endpoints) -> None:
    with Engine(loopback) as engine:
        numbers, sizes = dict[QueuePair, int](), dict[int, int]()
        for seed in (0, 1):
            work, policy = some_work(seed), policy_named("reps")
            assert isinstance(policy, ReactivePolicy)
            own = range(100 * seed, 100 * seed + len(work.crossing))
            engine.feed(feeder_of(engine, admitted_by(policy, work), own, numbers))
            sizes |= dict(zip(own, work.crossing.bytes.tolist(), strict=True))
        seen = served(engine, numbers)
        assert sorted(seen.at_s) == sorted(sizes)
        assert sum(seen.counted.values()) == sum(sizes.values())


def feeder_of(
    engine: Engine, choice: Choice, names: Sequence[int], numbers: dict[QueuePair, int]
) -> ReactiveFeeder:
    """Return what feeds chunks; queue pairs that have no number yet are connected."""
    lanes = [each_of(among) for among in choice.lanes]
    new = [pair for pair in dict.fromkeys(chain.from_iterable(lanes)) if pair not in numbers]
    numbers |= dict(zip(new, connect(engine, new), strict=True))
    return ReactiveFeeder(
        choice,
        choice.chunks.bytes,
        nic_rate_bps,
        numbers=[tuple(numbers[pair] for pair in among) for among in lanes],
        names=names,
        began_at=time.monotonic(),
        real_s=lambda at: at,
        packet=PACKET_BYTES,
        crossing=lambda pair: Crossing(pair.source, nic_rate_bps(pair.source), nic_rate_bps(pair.source)),
    )


class NeverChooses(MinRtt):
    """A reactive scheme that waits for ever."""

    name = "never"

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Wait."""


def test_a_scheme_that_never_chooses_is_told_of(loopback: Endpoints) -> None:
    work = some_work(0)
    with Engine(loopback, stuck_s=0.1) as engine:
        choice = admitted_by(NeverChooses(), work)
        engine.feed(feeder_of(engine, choice, range(len(work.crossing)), {}))
        with pytest.raises(StuckError, match=r"chunks waited for 0\.1 s"):
            served(engine, {})


def test_a_port_in_use_is_told_of(loopback: Endpoints) -> None:
    with (
        Engine(loopback) as one,
        Engine(loopback) as other,
    ):
        connect(one, [ONE])
        with pytest.raises(NetworkError) as caught:
            connect(other, [OTHER])
    assert "of server 0: Address already in use" in caught.value.sentence


def test_a_source_that_is_nowhere_is_named(loopback: Endpoints) -> None:
    abroad = Endpoints(loopback.open_socket, lambda _nic: IPv4Address("192.0.2.1"))
    with Engine(abroad) as engine, pytest.raises(NetworkError) as caught:
        connect(engine, [ONE])
    assert caught.value.sentence == f"connect queue pair {ONE}: Cannot assign requested address"


def test_a_queue_pair_that_nobody_answers_is_named(
    loopback: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traffic.transports.connections.CONNECT_S", 0.2)
    monkeypatch.setattr("traffic.transports.connections.accept", lambda *of: (accept(*of)[0], ("", 0, "", 0)))
    with Engine(loopback) as engine, pytest.raises(NetworkError) as caught:
        connect(engine, [ONE])
    assert caught.value.sentence == f"queue pair {ONE} did not connect within 0.2 s (1 of 1 did not)"


def test_too_many_sockets_are_refused_before_the_first(
    loopback: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (50, 50))
    queue_pairs = [QueuePair(Nic(1, 0), Nic(0, 0), entropy) for entropy in range(25)]
    with (
        Engine(loopback) as engine,
        pytest.raises(MachineError, match=r"25 queue pairs more need .* may have 50"),
    ):
        connect(engine, queue_pairs)


@pytest.mark.parametrize("short", [0, 1])
def test_a_limit_that_leaves_room_for_the_sockets_and_a_few_files_is_enough(
    loopback: Endpoints, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    queue_pairs = [QueuePair(Nic(1, 0), Nic(0, 0), entropy) for entropy in range(25)]
    with Engine(loopback) as engine:
        there = len(os.listdir("/proc/self/fd"))
        most = there + 2 * len(queue_pairs) + 1 + SPARE_DESCRIPTORS - short
        monkeypatch.setattr(resource, "getrlimit", lambda _what: (most, most))
        with pytest.raises(MachineError) if short else nullcontext():
            connect(engine, queue_pairs)
            assert there < len(os.listdir("/proc/self/fd")) <= most
