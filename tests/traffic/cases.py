"""What the tests of traffic share: small fabrics and demands, their work, and paths over a rail fabric."""

from collections import deque
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from topologies.fabric import Fabric, Link, Path, Port, Server, Switch
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.messages import Chunks, Messages, chunks_of, crosses_network, messages_of
from traffic.scheme import Choice
from traffic.spraying.policy import (
    Assignment,
    LaneState,
    ProactivePolicy,
    QueuePair,
    ReactivePolicy,
    each_message,
    each_of,
)
from traffic.spraying.rails import rails_of, same_rail
from traffic.spraying.registry import policy_named


@dataclass(frozen=True)
class Work:
    """A demand over a fabric, ready for a policy."""

    fabric: Fabric
    demand: Demand
    messages: Messages
    """All messages."""
    crossing: Messages
    """Those that leave their server."""
    chunks: Chunks
    """The chunks of those that leave their server."""


def work_of(fabric: Fabric, matrix: NDArray[np.int64], chunk_bytes: int = 8) -> Work:
    """Return a matrix as work."""
    demand = Demand("drawn", matrix)
    messages = messages_of(demand)
    crossing = messages.select(crosses_network(messages, fabric))
    return Work(fabric, demand, messages, crossing, chunks_of(crossing, chunk_bytes))


def uneven_fabric(*nics: int) -> Fabric:
    """Return servers with so many NICs and GPUs each, all on one leaf."""
    ports = [Port(f"h{server}", nic) for server, count in enumerate(nics) for nic in range(count)]
    return Fabric(
        "uneven",
        tuple(Server(f"h{server}", count, count, 1e12) for server, count in enumerate(nics)),
        (Switch("leaf0", len(ports)),),
        tuple(Link(port, Port("leaf0", index), 80.0) for index, port in enumerate(ports)),
    )


@st.composite
def works(draw: st.DrawFn, largest: int = 1000) -> Work:
    """Draw a small rail fabric and a sparse demand over it, of messages up to ``largest`` bytes."""
    fabric = rail_fabric(draw(st.integers(2, 4)), draw(st.integers(1, 4)), rate_bps=80.0)
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    up_to = draw(st.sampled_from([1, 8, largest]))
    matrix = rng.integers(1, up_to, (fabric.gpus, fabric.gpus), endpoint=True)
    matrix[rng.random(matrix.shape) < draw(st.sampled_from([0.0, 0.5, 0.9]))] = 0
    return work_of(fabric, matrix)


def rail_paths(
    fabric: Fabric, queue_pairs: tuple[QueuePair, ...], rng: np.random.Generator
) -> tuple[Path, ...]:
    """Return a path over a rail fabric for each queue pair, over a random spine where it needs one."""
    servers, spines = len(fabric.servers), sum(switch.tier == 1 for switch in fabric.switches)
    return tuple(_path(pair, servers, int(rng.integers(spines))) for pair in queue_pairs)


def _path(pair: QueuePair, servers: int, spine: int) -> Path:
    (source, rail), (destination, to_rail) = pair.source, pair.destination
    up = [Port(f"leaf{rail}", servers + spine), Port(f"spine{spine}", to_rail)] if rail != to_rail else []
    return (Port(f"h{source}", rail), *up, Port(f"leaf{to_rail}", destination))


def rates(fabric: Fabric) -> dict[Port, float]:
    """Return the rate of every port that sends."""
    return {port: link.rate_bps for port, link in fabric.link_at.items()}


def lent_for(fabric: Fabric, lent_s: float) -> dict[Port, float]:
    """Return buckets of every port that hold what its link carries in so much time [bytes]."""
    return {port: lent_s * link.rate_bps / 8 for port, link in fabric.link_at.items()}


def assigned(name: str, work: Work, seed: int = 0) -> Assignment:
    """Assign a work's chunks by the policy of that name."""
    policy = policy_named(name)
    assert isinstance(policy, ProactivePolicy)
    return policy.assign(
        fabric=work.fabric, messages=work.crossing, chunks=work.chunks, rng=np.random.default_rng(seed)
    )


def admitted_by(policy: ReactivePolicy, work: Work, seed: int = 0) -> Choice:
    """Return what a policy lets a work's messages use."""
    policy.open(fabric=work.fabric, rng=np.random.default_rng(seed))
    lanes = tuple(policy.admit(message=each) for each in each_message(work.crossing))
    return Choice(policy, 0, lanes, work.chunks)


WINDOW_BYTES = 24
ROUND_S = 0.001


def carried(work: Work, policy: ReactivePolicy, seed: int = 0) -> list[QueuePair]:
    """Return the lane that a policy chose for each chunk.

    A toy engine: all chunks of a random lane in flight are acknowledged per round, at random RTTs.
    """
    rng = np.random.default_rng(seed)
    lanes = [each_of(among) for among in admitted_by(policy, work, seed).lanes]
    states = {lane: LaneState(0, 0.0, True) for among in lanes for lane in among}
    flying: dict[QueuePair, list[int]] = {lane: [] for lane in states}
    left = {message: deque[int]() for message in range(len(work.crossing))}
    for chunk, message in enumerate(work.chunks.message.tolist()):
        left[message].append(chunk)
    chosen, now = dict[int, QueuePair](), 0.0
    while any(left.values()) or any(flying.values()):
        for message, waiting in left.items():
            while waiting:
                mine = [states[lane] for lane in lanes[message]]
                index = policy.choose(message=message, states=mine, now=now)
                if index is None:
                    break
                assert mine[index].room, "a lane without room was chosen"
                lane = chosen[waiting[0]] = lanes[message][index]
                flying[lane].append(waiting.popleft())
                states[lane].backlog_bytes += int(work.chunks.bytes[flying[lane][-1]])
                states[lane].room = states[lane].backlog_bytes < WINDOW_BYTES
        busy = [lane for lane, chunks in flying.items() if chunks]
        assert busy, "nothing is in flight and nothing was chosen"
        now += ROUND_S
        lane = busy[int(rng.integers(len(busy)))]
        states[lane] = LaneState(0, float(rng.uniform(ROUND_S, 4 * ROUND_S)), True)
        for chunk in flying[lane]:
            message = int(work.chunks.message[chunk])
            policy.acknowledged(
                message=message,
                lane=lanes[message].index(lane),
                rtt_s=states[lane].rtt_s,
                marked=bool(rng.integers(2)),
                now=now,
            )
        flying[lane].clear()
    for message in left:
        policy.withdraw(message=message)
    return [chosen[chunk] for chunk in range(len(work.chunks))]


class Turning:
    """A user's own scheme: every collective on the rail after that of the one before."""

    name = "turning"

    def __init__(self) -> None:
        self._turn = -1

    def assign(
        self, *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
    ) -> Assignment:
        """Return every chunk on one rail."""
        self._turn += 1
        rail = np.full(len(chunks), self._turn % rails_of(fabric))
        return same_rail(fabric, messages, chunks, rail)
