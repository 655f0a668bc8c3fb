"""Memory that predictions take, from what their jobs send and how their schemes place it, before any is made.

No operation is made for it: a ring says its steps and its edges (`Ops.coupled`), and a scheme places the
messages between two servers. The constants are of fresh processes, their largest resident set less what they
had before the prediction: of all-to-alls under each scheme, rings, training steps, schedules and faults the
estimate is 0.5 to 2 times what was measured (`bench.py memory_estimate`).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from math import floor
from typing import NamedTuple

import networkx as nx
import numpy as np

from testbed.core.together import moves_of
from testbed.experiment.experiment import Experiment
from testbed.machine.shortage import RAISE_MEMORY, machine_bytes, process_bytes
from topologies.addresses import ENTROPIES
from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Fabric
from traffic.collectives.pattern import Pattern
from traffic.job import Collective
from traffic.messages import Messages, crosses_network
from traffic.placing import placed_by
from traffic.scheme import Choice, Lowers, Placement
from traffic.sections import sections
from traffic.spraying.policy import QueuePair, between_nics, entropies_between

START_BYTES = 25e6
"""Of a prediction of nothing: modules that are imported late, tables of no rows [bytes]."""
MESSAGE_BYTES = 1.35e3
"""Of a message: its operation, what waits for it, one leg, its rows and their text [bytes]."""
LEG_BYTES = 1.05e3
"""Of each leg after a message's first [bytes]."""
LANE_BYTES, WAY_BYTES = 4.8e3, 1.3e3
"""Of a queue pair: its path, its flow, its links; and of each path more that its entropies take [bytes]."""
ROW_BYTES = 0.55e3
"""Of a message or a leg that a section repeats which was solved before [bytes]."""
CHUNK_BYTES, PARCEL_BYTES = 0.07e3, 0.18e3
"""Of a chunk, and of a parcel, while the messages are placed that start together [bytes]."""


@dataclass(frozen=True)
class _Sent:
    """A collective as a prediction holds it."""

    messages: float
    legs: float
    """Of these messages together."""
    lanes: float
    ways: float
    """The paths of all lanes."""
    chunks: float
    parcels: float
    """Of the messages that start together."""

    @property
    def solved_bytes(self) -> float:
        """Memory of its messages, solved [bytes]."""
        return MESSAGE_BYTES * self.messages + LEG_BYTES * max(self.legs - self.messages, 0)

    @property
    def lanes_bytes(self) -> float:
        """Memory of its lanes [bytes]."""
        return LANE_BYTES * self.lanes + WAY_BYTES * max(self.ways - self.lanes, 0)

    @property
    def placed_bytes(self) -> float:
        """Memory while its messages are placed [bytes]."""
        return CHUNK_BYTES * self.chunks + PARCEL_BYTES * self.parcels


def messages_of(experiment: Experiment) -> int:
    """Return the number of messages of an experiment's job, step by step."""
    of_each = {
        id(each): round(len(first) * steps)
        for each in _patterns(experiment)
        for first, steps in [_steps(each)]
    }
    return sum(of_each[id(node.pattern)] for node in experiment.job.collectives)


def prediction_bytes(experiment: Experiment) -> float:
    """Return the memory that the prediction of an experiment takes at its peak [bytes]."""
    sent = _all_sent(experiment)
    needed_bytes, seen = START_BYTES, set[object]()
    is_solved_once = not (experiment.rule or experiment.faults or experiment.job.has_starts)
    lanes = defaultdict[int, float](float)
    communicators = experiment.communicators
    for section in sections(experiment.job) if is_solved_once else [experiment.job.nodes]:
        mine = [node for node in section if isinstance(node, Collective)]
        found = [sent[id(node.pattern)] for node in mine]
        content = _content(mine)
        if content in seen:
            needed_bytes += ROW_BYTES * sum(each.messages + each.legs for each in found)
        else:
            needed_bytes += sum(each.solved_bytes for each in found)
        seen.add(content)
        for node, each in zip(mine, found, strict=True):
            number = communicators.number(node)
            lanes[number] = max(lanes[number], each.lanes_bytes)
    placed_bytes = max((each.placed_bytes for each in sent.values()), default=0.0)
    return needed_bytes + sum(lanes.values()) + placed_bytes


def check_memory(experiments: Sequence[Experiment], jobs: int = 1, more_bytes: float = 0) -> float:
    """Return the memory that predictions take at their peak, by so many processes at once [bytes].

    Parameters
    ----------
    experiments
        All that is predicted.
    jobs
        How many processes predict.
    more_bytes
        Memory of an emulation beside the prediction of its point, of each message [bytes].

    Raises
    ------
    ScenarioError
        If this machine, its cgroup or a limit of this process leaves less.
    """
    alike = {_alike(each): each for each in experiments}
    of_each = {key: prediction_bytes(each) for key, each in alike.items()}
    predicting = sorted((of_each[_alike(each)] for each in experiments), reverse=True)[:jobs]
    worst = alike[max(of_each, key=of_each.__getitem__)]
    _check(worst, predicting)
    if not more_bytes:
        return sum(predicting)
    emulating = max(of_each[key] + more_bytes * messages_of(each) for key, each in alike.items())
    _check(worst, [emulating])
    return max(sum(predicting), emulating)


def _check(worst: Experiment, largest: Sequence[float]) -> None:
    """Refuse what processes take, the most first, of which an experiment takes most."""
    needed_bytes, free_bytes, own_bytes = list(accumulate(largest)), machine_bytes(), process_bytes()
    if needed_bytes[-1] <= free_bytes and largest[0] <= own_bytes:
        return
    messages = messages_of(worst)
    what = f"{worst.job.name!r} has {messages:,} messages, which take about {_gb(largest[0])} of memory"
    if largest[0] > own_bytes:
        raise ScenarioError(f"{what}, and this process may have {_gb(own_bytes)} more", RAISE_MEMORY)
    if largest[0] > free_bytes:
        share = max(free_bytes - START_BYTES, 0) / (largest[0] - START_BYTES)
        smaller = f"of at most {floor(messages * share):,} messages"
        raise ScenarioError(
            f"{what}, and {_gb(free_bytes)} are free", f"take fewer GPUs or a smaller workload, {smaller}"
        )
    raise ScenarioError(
        f"{what}, those of {len(largest)} processes {_gb(needed_bytes[-1])}, and {_gb(free_bytes)} are free",
        f"take --jobs {bisect_right(needed_bytes, free_bytes)}",
    )


def _alike(experiment: Experiment) -> tuple[object, ...]:
    """Return a value that experiments share which take about as much, as jobs of one name do of all seeds."""
    return experiment.fabric, experiment.job.name, experiment.name


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"


def _patterns(experiment: Experiment) -> list[Pattern]:
    return list({id(node.pattern): node.pattern for node in experiment.job.collectives}.values())


def _content(section: Sequence[Collective]) -> object:
    """Return the patterns and communicators of a section: equal sections have equal ones."""
    return tuple((node.pattern, node.communicator) for node in section)


def _steps(pattern: Pattern) -> tuple[Messages, float]:
    """Return a message for each connection of a pattern, and how many messages each of these carries."""
    ops = pattern.lower(coupled=True)
    moves, first = moves_of(ops.parts)
    if len(channel := ops.parts[0].channel) == len(moves):
        _, begins = np.unique(channel, return_index=True)
        return moves.select(np.isin(np.arange(len(moves)), begins)), len(moves) / max(len(begins), 1)
    return first, round(int(moves.bytes.sum()) / max(int(first.bytes.sum()), 1))


class _Placed(NamedTuple):
    """Messages between two servers as a scheme places them."""

    legs: float
    lanes: float
    ways: float
    """The paths of these lanes."""
    parcels: int


def _all_sent(experiment: Experiment) -> dict[int, _Sent]:
    """Return the patterns of a job as a prediction holds them, by their identity.

    Of those that are alike but for sizes the largest is placed: a step of experts has thousands.
    """
    known: dict[object, _Placed] = {}
    found = [(pattern, *_steps(pattern)) for pattern in _patterns(experiment)]
    found.sort(key=lambda each: -int(each[1].bytes.sum()))
    return {id(each[0]): _sent(experiment, *each, known) for each in found}


def _sent(
    experiment: Experiment, pattern: Pattern, first: Messages, steps: float, known: dict[object, _Placed]
) -> _Sent:
    """Return a pattern as a prediction holds it; its messages between two servers are placed."""
    fabric = experiment.fabric
    crossing = first.select(crosses_network(first, fabric))
    if not len(crossing):
        return _Sent(len(first) * steps, len(first) * steps, 0, 0, 0, 0)
    servers = fabric.server_of_gpu[crossing.source], fabric.server_of_gpu[crossing.destination]
    pairs, of, counts = np.unique(
        np.ravel_multi_index(servers, 2 * (len(fabric.servers),)), return_inverse=True, return_counts=True
    )
    middle = np.argsort(counts)[len(counts) // 2]
    alike, share = (type(pattern), len(first), len(pairs)), len(crossing) / counts[middle]
    placed = known[alike] = known.get(alike) or _placed(experiment, crossing.select(of == middle))
    return _Sent(
        messages=len(first) * steps,
        legs=(len(first) - len(crossing) + placed.legs * share) * steps,
        lanes=placed.lanes * len(pairs),
        ways=placed.ways * len(pairs),
        chunks=crossing.bytes.sum() / experiment.chunk_bytes if experiment.spraying else 0.0,
        parcels=placed.parcels * share,
    )


def _placed(experiment: Experiment, messages: Messages) -> _Placed:
    """Return messages between two servers as a scheme places them while nothing is lit."""
    scheme, fabric, count = experiment.new_scheme(), experiment.fabric, len(messages)
    if isinstance(scheme, Lowers):
        lanes = fabric.servers[int(fabric.server_of_gpu[messages.source[0]])].nics
        return _Placed(count, lanes, lanes, count)
    placed = placed_by(scheme, View(0.0, fabric, {}, frozenset(), routing=experiment.bound_routing), messages)
    if isinstance(placed, Placement):
        lanes = len(placed.queue_pairs)
        return _Placed(len(np.unique(placed.message * lanes + placed.qp)), lanes, lanes, len(placed.bytes))
    each = [dict(zip(between_nics(sets), entropies_between(sets), strict=True)) for sets in placed.lanes]
    used = {lane: entropies for lanes in each for lane, entropies in lanes.items()}
    ways = {lane: _ways(fabric, lane, len(entropies)) for lane, entropies in used.items()}
    settles = isinstance(placed, Choice) and getattr(placed.policy, "settles", False)
    legs = count if settles else sum(ways[lane] for lanes in each for lane in lanes)
    return _Placed(legs, len(used), sum(ways.values()), count)


def _ways(fabric: Fabric, lane: QueuePair, entropies: int) -> float:
    """Return how many equal paths the entropies of a lane take, hashed evenly: the mean."""
    near, far = (fabric.peer(fabric.nic_port(nic)).node for nic in (lane.source, lane.destination))
    if entropies == 1 or near == far:
        return 1
    paths = _paths(fabric, near, far)
    return paths * (1 - (1 - 1 / paths) ** entropies)


@lru_cache(maxsize=4096)
def _paths(fabric: Fabric, near: str, far: str) -> int:
    """Return how many shortest paths join two switches, at most as many as there are entropies."""
    return sum(1 for _ in islice(nx.all_shortest_paths(_switches(fabric), near, far), ENTROPIES))


@lru_cache(maxsize=4)
def _switches(fabric: Fabric) -> "nx.Graph[str]":
    """Return which switches links join."""
    ends = ((link.a.node, link.b.node) for link in fabric.links)
    return nx.Graph([pair for pair in ends if fabric.switch_index.keys() >= set(pair)])
