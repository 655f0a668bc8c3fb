"""The engine over real TCP on loopback: servers 1 and 2 send to server 0, at 127.0.<server>.<NIC + 1>."""

import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.traffic.cases import Work, assigned, permitted_by, work_of
from topologies.errors import MachineError, NetworkError, StuckError
from topologies.fabric import Nic
from topologies.rail import rail_fabric
from traffic.connections import CONGESTION_CONTROL, Connection, Endpoints, connected, source_port
from traffic.engine import Delivery, Engine
from traffic.feeders import Feeder, ProactiveFeeder
from traffic.late_binding import ReactiveFeeder
from traffic.spraying.policy import (
    Assignment,
    Permitted,
    ProactivePolicy,
    QpState,
    QueuePair,
    ReactivePolicy,
)
from traffic.spraying.registry import POLICIES, policy_named
from traffic.transfers import measured_transfers

PROACTIVE = [name for name in POLICIES if isinstance(policy_named(name), ProactivePolicy)]
REACTIVE = [name for name in POLICIES if isinstance(policy_named(name), ReactivePolicy)]
FABRIC = rail_fabric(3, 2, 2)
ONE, OTHER = QueuePair(Nic(1, 0), Nic(0, 0), 1), QueuePair(Nic(2, 1), Nic(0, 1), 2)


def nic_rate_bps(_nic: Nic) -> float:
    """Return the rate of every NIC: what follows takes some milliseconds."""
    return 400e6


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> Endpoints:
    """Make sockets on loopback, with server 0 on a port that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        try:
            free.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_CONTROL)
        except PermissionError:
            pytest.skip(
                "this machine keeps cubic from ordinary users (net.ipv4.tcp_allowed_congestion_control)"
            )
        monkeypatch.setattr("traffic.connections.SERVICE_PORT", free.getsockname()[1])
    return Endpoints(
        lambda _server: socket.socket(), lambda nic: IPv4Address(f"127.0.{nic.server}.{nic.nic + 1}")
    )


def some_work(seed: int) -> Work:
    """Return what the GPUs of servers 1 and 2 owe those of server 0, at random."""
    matrix = np.zeros((6, 6), dtype=np.int64)
    matrix[2:, :2] = np.random.default_rng(seed).integers(1, 300_000, (4, 2))
    matrix[3, 0] = 0
    return work_of(FABRIC, matrix, chunk_bytes=4096)


def by_hand(queue_pairs: Sequence[QueuePair], sizes: Sequence[int]) -> ProactiveFeeder:
    """Return what feeds each queue pair one chunk of its own."""
    chunks = np.arange(len(sizes))
    return ProactiveFeeder(Assignment(tuple(queue_pairs), chunks, chunks), np.array(sizes))


def carry(queue_pairs: Sequence[QueuePair], loopback: Endpoints, feeder: Feeder) -> Delivery:
    """Connect, and run the engine."""
    with connected(queue_pairs, loopback) as connections:
        return Engine(queue_pairs, connections, feeder, nic_rate_bps=nic_rate_bps).run()


def assert_conserved(delivery: Delivery, queue_pairs: Sequence[QueuePair], sizes: NDArray[np.int64]) -> None:
    """Every chunk was posted once, and every byte of every queue pair was sent, then counted."""
    assert sorted(delivery.order.tolist()) == list(range(len(sizes)))
    loads = np.bincount(delivery.chunk_qp, sizes, len(queue_pairs))
    assert [counts[-1] for _, counts in delivery.curves] == loads.tolist()
    assert [counts[-1] for _, counts in delivery.sent_curves] == loads.tolist()
    for times, counts in delivery.sent_curves + delivery.curves:
        assert (times[0], counts[0]) == (0, 0)
        assert (np.diff(times) >= 0).all()
        assert (np.diff(counts) > 0).all()
    for (sent_s, sent), (times, counts) in zip(delivery.sent_curves, delivery.curves, strict=True):
        sent_by_then = sent[np.searchsorted(sent_s, times, side="right") - 1]
        assert (counts <= sent_by_then).all(), "bytes were counted that were not sent yet"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PROACTIVE)
def test_a_proactive_scheme_moves_all_bytes_where_it_said(loopback: Endpoints, name: str, seed: int) -> None:
    work = some_work(seed)
    plan = assigned(name, work, seed)
    delivery = carry(plan.queue_pairs, loopback, ProactiveFeeder(plan, work.chunks.bytes))
    assert_conserved(delivery, plan.queue_pairs, work.chunks.bytes)
    assert delivery.chunk_qp.tolist() == plan.chunk_qp.tolist()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", REACTIVE)
def test_a_reactive_scheme_moves_all_bytes_where_it_may(loopback: Endpoints, name: str, seed: int) -> None:
    work, policy = some_work(seed), policy_named(name)
    assert isinstance(policy, ReactivePolicy)
    permitted = permitted_by(policy, work)
    sizes = work.chunks.bytes
    feeder = ReactiveFeeder(policy, permitted, work.chunks, sizes, nic_rate_bps)
    delivery = carry(permitted.queue_pairs, loopback, feeder)
    assert_conserved(delivery, permitted.queue_pairs, sizes)
    for message, qp in zip(work.chunks.message.tolist(), delivery.chunk_qp.tolist(), strict=True):
        assert qp in permitted.of_message[message]


def test_queue_pairs_of_one_nic_share_it_by_what_they_have_left(loopback: Endpoints) -> None:
    queue_pairs = [QueuePair(Nic(1, 0), Nic(0, 0), entropy) for entropy in (1, 2)]
    rate_bps = 80e6  # so slow that the turns of a busy machine's processes weigh little
    feeder = by_hand(queue_pairs, [2_000_000, 6_000_000])
    with connected(queue_pairs, loopback) as connections:
        curves = Engine(queue_pairs, connections, feeder, nic_rate_bps=lambda _: rate_bps).run().curves
    few, many = (float(times[-1]) for times, _ in curves)
    assert few == pytest.approx(many, rel=0.2)
    assert many == pytest.approx(8e6 * 8 / rate_bps, rel=0.25)


def test_chunks_of_one_send_are_sent_at_one_time(loopback: Endpoints) -> None:
    sizes = np.full(400, 1000)
    plan = Assignment((ONE,), np.zeros(400, dtype=np.int64), np.arange(400))
    delivery = carry([ONE], loopback, ProactiveFeeder(plan, sizes))
    transfers = measured_transfers(
        (ONE,), ((),), sizes, plan.chunk_qp, plan.order, delivery.sent_curves, delivery.curves
    )
    ((_, sent_at, *_), (_, sent, *_)) = delivery.sent_curves[0]
    assert sent_at > 0, "the engine computes windows and paces first"
    assert 1000 < sent < sizes.sum(), "the first window holds several chunks, and not all"
    assert ((transfers.sent_s == sent_at) == (np.arange(400) * 1000 < sent)).all()
    assert np.isin(transfers.delivered_s, delivery.curves[0][0]).all()
    assert (transfers.sent_s < transfers.delivered_s).all()


def test_nothing_to_send_is_done_at_once(loopback: Endpoints) -> None:
    delivery = carry([], loopback, by_hand([], []))
    assert (len(delivery.order), delivery.curves, delivery.retransmits) == (0, [], 0)


def test_connections_are_pinned_and_their_ports_are_free_again_at_once(loopback: Endpoints) -> None:
    for _ in range(2):
        with connected([ONE, OTHER], loopback) as connections:
            for queue_pair, connection in zip([ONE, OTHER], connections, strict=True):
                near = str(loopback.address(queue_pair.source)), source_port(queue_pair)
                far = str(loopback.address(queue_pair.destination))
                assert connection.sender.getsockname() == connection.receiver.getpeername() == near
                assert connection.receiver.getsockname()[0] == far


Cut = Callable[[Connection], None]


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(lambda connection: connection.receiver.shutdown(socket.SHUT_RD), id="receiver"),
        pytest.param(lambda connection: connection.sender.shutdown(socket.SHUT_WR), id="sender"),
    ],
)
def test_a_connection_that_breaks_is_named(loopback: Endpoints, cut: Cut) -> None:
    with connected([ONE, OTHER], loopback) as connections:
        cut(connections[1])
        feeder = by_hand([ONE, OTHER], [1000, 50_000_000])
        engine = Engine([ONE, OTHER], connections, feeder, nic_rate_bps=nic_rate_bps)
        with pytest.raises(StuckError, match=rf"queue pair {OTHER} (broke|was closed)"):
            engine.run()


@contextmanager
def half_deaf(loopback: Endpoints) -> Iterator[list[Connection]]:
    """Connect both queue pairs, and listen for the second at its sending end, where nothing comes out."""
    with connected([ONE, OTHER], loopback) as (one, other), other.sender.dup() as deaf:
        yield [one, Connection(other.sender, deaf)]


def test_a_queue_pair_without_progress_is_named(loopback: Endpoints) -> None:
    feeder = by_hand([ONE, OTHER], [1000, 2000])
    with half_deaf(loopback) as connections:
        engine = Engine([ONE, OTHER], connections, feeder, nic_rate_bps=nic_rate_bps, stuck_s=1.0)
        with pytest.raises(StuckError) as caught:
            engine.run()
    assert caught.value.sentence == (
        f"queue pair {OTHER} made no progress for 1 s (0 of 2,000 bytes arrived; 1 are stuck)"
    )


def test_a_network_that_dies_ends_the_run(loopback: Endpoints) -> None:
    def check() -> None:
        raise NetworkError("the controller ended during the run")

    feeder = by_hand([ONE, OTHER], [1000, 2000])
    with half_deaf(loopback) as connections:
        engine = Engine([ONE, OTHER], connections, feeder, nic_rate_bps=nic_rate_bps, check=check)
        with pytest.raises(NetworkError, match="the controller ended"):
            engine.run()


class NeverChooses:
    """A reactive scheme that waits for ever."""

    name = "never"

    def choose(self, *, message: int, states: Sequence[QpState], now: float) -> int | None:
        """Wait."""

    def acknowledged(self, *, message: int, qp: int, rtt_s: float, now: float) -> None:
        """Nothing is ever sent."""


def test_a_scheme_that_never_chooses_is_told_of(loopback: Endpoints) -> None:
    work, never = some_work(0), NeverChooses()
    permitted = Permitted((ONE,), tuple((0,) for _ in work.crossing.bytes))
    feeder = ReactiveFeeder(never, permitted, work.chunks, work.chunks.bytes, nic_rate_bps)  # type: ignore[arg-type]
    with connected([ONE], loopback) as connections:
        engine = Engine([ONE], connections, feeder, nic_rate_bps=nic_rate_bps, stuck_s=0.1)
        with pytest.raises(StuckError, match=r"left chunks waiting for 0\.1 s"):
            engine.run()


def test_a_port_in_use_is_told_of(loopback: Endpoints) -> None:
    with connected([ONE], loopback), pytest.raises(NetworkError) as caught, connected([OTHER], loopback):
        pass
    assert "of server 0: Address already in use" in caught.value.sentence


def test_a_source_that_is_nowhere_is_named(loopback: Endpoints) -> None:
    abroad = Endpoints(loopback.open_socket, lambda _nic: IPv4Address("192.0.2.1"))
    with pytest.raises(NetworkError) as caught, connected([ONE], abroad):
        pass
    assert caught.value.sentence == f"connect queue pair {ONE}: Cannot assign requested address"


def test_too_many_sockets_are_refused_before_the_first(
    loopback: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (50, 50))
    queue_pairs = [QueuePair(Nic(1, 0), Nic(0, 0), entropy) for entropy in range(25)]
    with (
        pytest.raises(MachineError, match=r"25 queue pairs need .* may have 50"),
        connected(queue_pairs, loopback),
    ):
        pass
