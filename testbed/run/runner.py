"""The runner: starts what is ready, applies faults, and writes down when everything began and ended.

What a job means, when circuits change and what a fault does is written here once. A backend moves
bytes: the live one over a booted network, the fluid one by max-min rates. Compute and NVLink are timed
here for both. All times are real picoseconds since the start (`traffic.clock`).
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from testbed.run.backend import Arrived, Backend, CouplingBackend, Happening, Strand
from testbed.run.carriers import Carriers
from testbed.run.computing import Computing
from testbed.run.delegated import lane_flows, legs_of
from testbed.run.faulting import Faulting
from testbed.run.gathered import Gathered, Hop
from testbed.run.job_graph import JobGraph
from testbed.run.ledger import INSIDE, Ledger, Message
from testbed.run.light import Light, Moved
from testbed.run.run import Run
from testbed.run.strands import strands_of
from topologies.errors import ScenarioError, StuckError
from topologies.events import (
    Event,
    FaultDetected,
    FaultOver,
    Flip,
    Hold,
    Lit,
    NodeDone,
    NodeStarted,
    Order,
    ProgramsEnded,
    Provision,
    Refused,
    SendRest,
    SetTimer,
    Show,
    TimerFired,
    View,
)
from topologies.fabric import Fabric, Port
from topologies.light import Circuit
from topologies.packet_part import cut_off
from traffic.clock import NEVER, checked, in_seconds, ps
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.exchange import CouplesPattern
from traffic.communicators import Communicators
from traffic.compose import renumbered
from traffic.delegation import Delegates
from traffic.faults import (
    AS_IT_WAS,
    Fault,
    Moves,
    Revision,
    Revisions,
    check_faults,
    places_after,
)
from traffic.fluid.nvlink import Nvlink
from traffic.job import Collective, Job, Node
from traffic.messages import Messages, crosses_network
from traffic.placing import placed_by
from traffic.relays import Hops, parts_of
from traffic.scheme import (
    Choice,
    KeepsConnections,
    Placement,
    Scheme,
    WaitsForLight,
    WhileLit,
    of_communicator,
)
from traffic.spraying.policy import QueuePair


class Circuits(Protocol):
    """Decides which circuits are lit; pure, so that both backends get the same decisions."""

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the state after an event, and what is to be done; the first state is None."""
        ...


Revise = Callable[[View, Fault], Revision]


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """Lanes in use."""

    carriers: Sequence[int]
    """The number of each queue pair."""
    is_light: Sequence[bool]
    """Whether it goes over circuits."""
    over: Sequence[int]
    """What the ledger calls it, with its path."""


class Runner:
    """Runs a job once over a backend.

    Parameters
    ----------
    fabric, job, backend
        What runs, and where.
    scheme
        Which queue pairs carry messages.
    circuits
        Which circuits are lit when; by default none ever.
    faults, revise
        What fails, and how the job goes on then; by default as it was.
    lit
        What OCSes carry from the start; by default nothing.
    communicators
        The numbers of the communicators, each of which has queue pairs of its own; by default the job's.

    Raises
    ------
    ScenarioError
        If the job is for more GPUs than the fabric has, or a fault waits for a node that is not there.
    """

    def __init__(
        self,
        fabric: Fabric,
        job: Job,
        backend: Backend,
        scheme: Scheme,
        *,
        circuits: Circuits | None = None,
        faults: Sequence[Fault] = (),
        revise: Revise = AS_IT_WAS,
        lit: Mapping[str, tuple[Circuit, ...]] | None = None,
        communicators: Communicators | None = None,
    ) -> None:
        _check(fabric, job, faults, revise.nodes if isinstance(revise, Revisions) else ())
        self._fabric, self._job, self._backend, self._scheme = fabric, job, backend, scheme
        self._circuits = circuits
        self._state: object = None
        self._faults, self._revise = faults, revise
        self._first_lit = lit or {}
        self._communicators = communicators or Communicators(job)
        self._communicator: dict[str, int] = {}
        """The number of the communicator of each collective that has begun, or moved."""
        self._graph = JobGraph(job)
        self._ready: deque[Node] = deque()
        """The nodes that are being started."""
        self._pieces_of: dict[str, int] = {}
        """What each node that has started has yet to do: GPUs that compute, messages that arrive."""
        self._ledger = Ledger(fabric, (node.name for node in job.nodes))
        self._faulting = Faulting(
            fabric,
            faults,
            backend,
            self._ledger,
            leaves=revise.leaves if isinstance(revise, Revisions) else lambda _fault: False,
            at=self._at,
            detected=self._detected,
            over=self._over,
        )
        self._computing = Computing(
            self._ledger,
            self._faulting.stopped,
            now_ps=lambda: backend.now_ps,
            at=self._at,
            began=self._begin,
            done=self._piece_done,
        )
        self._messages, self._hops = self._ledger.messages, self._ledger.hops
        """All messages, and those that bring each relayed one further."""
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._tickets = count()
        self._nvlink = Nvlink(fabric)
        self._kept: dict[str, dict[int, QueuePair]] = defaultdict(dict)
        """The queue pair of each connection that a collective under way keeps."""
        self._delegates = scheme if isinstance(scheme, Delegates) else None
        self._coupling = self._coupling_backend()
        self._keeps = isinstance(scheme, KeepsConnections) and scheme.keeps_connections
        self._has_rest = False
        """Whether the scheme says how to carry over packets what circuits leave over."""
        self._light_is_over = False
        """Whether what circuits leave over goes over packets, and with it all that starts."""
        self._in_the_dark: list[tuple[int, int]] = []
        """What waits until its scheme sees light: a message and bytes each."""
        self._light = Light(fabric, backend, self._ledger, at=self._at, moved=self._light_moved)
        self._carriers = Carriers(
            fabric,
            backend,
            self._ledger,
            self._light,
            arrived=self._counts_as_arrived,
            returned=self._note_returned,
        )
        self._moved: set[int] = set()
        """The messages that had to go elsewhere, while anything is known to have failed."""
        self._gone: set[int] = set()
        """The GPUs that are known to be gone."""
        self._unfinished: set[str] = set()
        """The collectives that have sent all, some of it from or to GPUs that are gone
        and not yet known to be."""
        self._lost: set[int] = set()
        """The messages that are given up, because a GPU is gone or their collective is."""
        self._gathered = self._where_gathered()
        """Where the bytes of delegated all-to-alls are, if their lanes may change."""
        self._then_on: dict[int, Hop] = {}
        """What goes on a lane when it has crossed NVLink, by the message that has it do so."""
        self._as_one: dict[str, int] = {}
        """The first message of those whose legs between servers are one."""
        self._lanes: dict[tuple[int, tuple[QueuePair, ...]], _Opened] = {}
        """The lanes over which coupled flows of each communicator went."""
        self._since_ps: dict[str, int] = {}
        """Since when messages of each collective under way are owed: its start, or when it began again."""

    def run(self) -> Run:
        """Run the job to its end."""
        if self._first_lit:
            self._light.begin(self._first_lit)
        self._faulting.begin()
        self._do_what_is_due(self._backend.now_ps)
        self._faulting.node_began("")
        self._start_all(self._graph.sources())
        while self._graph.open:
            next_timer_ps = self._timers[0][0] if self._timers else NEVER
            for happening in self._wait(min(next_timer_ps, self._nvlink.next_ps)):
                self._happened(happening)
            now_ps = self._backend.now_ps
            for number in self._nvlink.advance(now_ps):
                self._arrived(number, now_ps, INSIDE)
            self._do_what_is_due(now_ps)
        return self._result()

    def _do_what_is_due(self, now_ps: int) -> None:
        while self._timers and self._timers[0][0] <= now_ps:
            heapq.heappop(self._timers)[2]()

    def _wait(self, until_ps: int) -> list[Happening]:
        """Let time pass until something happens; if nothing can any more, say which faults stand."""
        try:
            return self._backend.wait(until_ps)
        except StuckError as stuck:
            if standing := [fault.name for fault in self._faulting.standing if not fault.only_impairs]:
                what = f"nothing more can arrive after {', '.join(standing)}, and the job has not ended"
                raise StuckError(
                    what, "let it be back, as in @40%-70%, or take a fabric with a way around"
                ) from stuck
            raise

    # Nodes

    def _start_all(self, nodes: Iterable[Node]) -> None:
        """Start nodes, and those that follow at once because there was nothing to do."""
        starting = bool(self._ready)
        self._ready.extend(nodes)
        while self._ready and not starting:
            self._start(self._ready[0])
            self._ready.popleft()

    def _start(self, node: Node) -> None:
        self._pieces_of[node.name] = 0
        self._ledger.ready(node.name, self._backend.now_ps)
        if isinstance(node, Collective):
            self._number(node)
            self._begin(node.name)
            if not self._light.is_held(node.name):
                self._go(node.name)
            return
        left: Sequence[int] = node.gpus
        if self._gone:
            left = [gpu for gpu in left if gpu not in self._gone]
        self._pieces_of[node.name] = len(left)
        self._computing.start(node, left)
        if not left:
            self._begin(node.name)
            self._end(node.name)

    def _go(self, name: str) -> None:
        """Send a collective that has begun."""
        node = self._graph.nodes[name]
        if isinstance(node, Collective):
            self._send(node)
        if not self._pieces_of[name]:
            self._end(name)

    def _begin(self, name: str) -> None:
        """Have a node begin, if no GPU of it has begun before."""
        if name not in self._since_ps:
            self._since_ps[name] = self._backend.now_ps
            self._tell(NodeStarted(name))
            self._faulting.node_began(name)

    def _piece_done(self, name: str, pieces: int = 1) -> None:
        self._pieces_of[name] -= pieces
        if not self._pieces_of[name]:
            self._end(name)

    def _end(self, name: str) -> None:
        if self._lacks_a_gpu(name):
            self._unfinished.add(name)
            return
        if isinstance(self._graph.nodes[name], Collective):
            self._ledger.ended(name, self._backend.now_ps)
            self._kept.pop(name, None)
            if (first := self._as_one.pop(name, None)) is not None:
                self._ledger.file(name, first)
        self._tell(NodeDone(name))
        self._start_all(self._graph.done(name))

    # Messages

    def _number(self, node: Collective) -> int:
        """Return the number of a collective's communicator; it stays when GPUs move."""
        if node.name not in self._communicator:
            self._communicator[node.name] = self._communicators.number(node)
        return self._communicator[node.name]

    def _send(self, node: Collective) -> None:
        self._backend.begin()
        if self._send_delegated(node) or self._send_coupled(node):
            return
        exchange, first = node.pattern.exchange(), len(self._messages)
        self._add_messages(node, exchange.messages)
        for row, message in enumerate(self._messages[first:]):
            message.row = row
        if self._keeps:
            for number, connection in enumerate(exchange.connection.tolist(), start=first):
                self._messages[number].connection = connection
        for before, then in (exchange.waits + first).tolist():
            self._messages[before].then.append(then)
            self._messages[then].waits += 1
        lost = self._lose(range(first, len(self._messages)))
        self._pieces_of[node.name] -= len(lost)
        self._release_first(node, first)

    def _add_messages(self, node: Collective, messages: Messages) -> None:
        columns = (messages.source, messages.destination, messages.bytes)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self._messages += [Message(node.name, *row) for row in rows]
        self._pieces_of[node.name] = len(messages)

    def _send_delegated(self, node: Collective) -> bool:
        """Send an all-to-all leg by leg; return whether the scheme has it so."""
        scheme = self._delegates
        if scheme is None or not isinstance(node.pattern, AllToAll):
            return False
        messages = node.pattern.exchange().messages
        found = scheme.delegate(self._view(self._number(node)), messages)
        as_one = self._coupling is not None and not self._failed  # else some pairs may be relayed
        may_move = self._gathered is not None
        legs = legs_of(found, pipelined=scheme.pipelined, as_one=as_one, may_move=may_move)
        first = len(self._messages)
        self._ledger.delegated[first] = legs
        if self._gathered:
            self._gathered.begin(legs, first)
        if as_one:
            self._as_one[node.name] = first
        for leg, waits in zip(legs.legs, legs.waits, strict=True):
            then = [first + number for number in leg.then]
            self._messages.append(
                Message(
                    node.name,
                    leg.source,
                    leg.destination,
                    leg.size,
                    waits,
                    then,
                    leg=leg,
                    over_light=leg.inside is None,
                )
            )
        self._pieces_of[node.name] = len(legs.legs)
        self._release_first(node, first)
        return True

    def _send_coupled(self, node: Collective) -> bool:
        """Send a collective as coupled flows; return whether that is possible.

        It is where backend and pattern can, and the scheme places messages before they start. With faults
        that come later it is not: what a ring has yet to do after one depends on the step in which it came.
        """
        backend, pattern = self._coupling, node.pattern
        if backend is None or not isinstance(pattern, CouplesPattern):
            return False
        coupled = pattern.coupled_flows()
        step = replace(coupled.messages, bytes=coupled.step_bytes)
        crossing = crosses_network(step, self._fabric)
        placed, carriers = None, list[int]()
        if crossing.any():
            view, leaving = self._view(self._number(node)), step.select(crossing)
            if self._delegates and any(
                path != () for path in self._delegates.paths(view, leaving, over_light=False)
            ):
                return False  # a relay stores what it forwards
            found = of_communicator(placed_by(self._scheme, view, leaving), view.communicator)
            if not isinstance(found, Placement):
                return False
            placed, carriers = found, self._carriers.open(found.queue_pairs)
        first = len(self._messages)
        self._add_messages(node, coupled.messages)
        for message in self._messages[first:]:
            message.start_ps = self._since_ps[node.name]
        flows = strands_of(coupled, crossing, placed, carriers, first)
        self._lead_strands(flows)
        backend.couple(flows)
        return True

    def _lead_strands(self, flows: Iterable[Sequence[Strand]]) -> None:
        now_ps = self._backend.now_ps
        for strand in chain.from_iterable(flows):
            message = self._messages[strand.message]
            (over,) = self._carriers.over([strand.over]) if isinstance(strand.over, int) else [INSIDE]
            message.put(over, strand.bytes, now_ps)
            self._ledger.sends(message.node, now_ps)
        for flow in flows:
            for number in {strand.message for strand in flow}:
                self._messages[number].pieces += 1

    def _coupling_backend(self) -> CouplingBackend | None:
        """The backend if it couples flows in this run, else None: never with faults that come later."""
        backend = self._backend
        if isinstance(backend, CouplingBackend) and backend.couples and not self._faulting.come_later:
            return backend
        return None

    def _release_first(self, node: Collective, first: int) -> None:
        """Start the messages of a collective, from a number on, that wait for no others of it.

        They are owed since it started: what held it back is a part of how long it takes.
        """
        ready = [number for number in range(first, len(self._messages)) if self._is_ready(number)]
        self._release(ready)
        for number in ready:
            self._messages[number].start_ps = self._since_ps[node.name]

    def _release(self, numbers: Iterable[int]) -> None:
        """Start messages that wait for nothing any more."""
        servers = self._fabric.gpu_servers
        inside, leaving = list[int](), list[int]()
        for number in numbers:
            message = self._messages[number]
            message.start_ps = self._backend.now_ps
            if message.leg and message.leg.inside is not None:
                self._send_inside(number, message, message.leg.inside)
                continue
            if message.leg and message.leg.between:
                self._couple_lanes(number, message.leg.between)
                continue
            stays = servers[message.source] == servers[message.destination]
            (inside if stays else leaving).append(number)
        if inside:
            self._stay_inside(inside)
        if leaving:
            self._place([(number, self._messages[number].size) for number in leaving])

    def _couple_lanes(self, number: int, between: Messages) -> None:
        """Send what servers owe each other as coupled flows over their lanes."""
        if self._delegates is None or self._coupling is None:
            return
        message = self._messages[number]
        communicator = self._communicator[message.node]
        placed = placed_by(self._delegates.lanes, self._view(communicator), between)
        self._ledger.sends(message.node, self._backend.now_ps)
        lanes = communicator, placed.queue_pairs
        opened = self._lanes.get(lanes)
        if opened is None or self._fabric.servers_forward:
            carriers = self._carriers.open(of_communicator(placed, communicator).queue_pairs)
            is_light = [self._light.carries(queue_pair) for queue_pair in placed.queue_pairs]
            opened = _Opened(carriers, is_light, self._carriers.over(carriers))
            self._lanes[lanes] = opened
        flows = lane_flows(placed, opened.carriers, [number] * len(between), opened.is_light)
        message.pieces = len(flows)
        message.lanes = self._ledger.lanes(placed, opened.over)
        self._coupling.couple(flows)

    def _send_inside(self, number: int, message: Message, planned: Messages) -> None:
        """Send a leg of a delegated all-to-all over NVLink, from where its bytes are."""
        moved = self._gathered.scatter(number) if self._gathered else None
        inside = planned if moved is None else moved
        message.size = int(inside.bytes.sum())
        if moved is not None and message.leg:
            message.leg = replace(message.leg, inside=moved)
        self._ledger.put(number, INSIDE, message.size, message.start_ps)
        if len(inside):
            self._nvlink.couple(inside, number, message.start_ps)
        else:
            self._at(message.start_ps, partial(self._arrived, number, message.start_ps))

    def _where_gathered(self) -> Gathered | None:
        """Return where bytes of delegated all-to-alls are; None if they are where delegation has them."""
        if self._delegates is None or self._coupling or not self._faulting.come_later:
            return None
        return Gathered(self._fabric, pipelined=self._delegates.pipelined)

    def _at_its_lanes(
        self, placed: Placement | Choice | WhileLit, numbers: NDArray[np.int64]
    ) -> Placement | Choice | WhileLit:
        """Return what of messages is where their lanes begin; have the rest cross NVLink first."""
        if not (self._gathered and isinstance(placed, Placement)):
            return placed
        own = numbers.tolist()
        there, hops = self._gathered.put(placed, own, list(map(self._root, own)))
        self._through_server(hops)
        return there

    def _through_server(self, hops: Iterable[Hop]) -> None:
        """Send bytes of messages over NVLink, from the GPU that has them to a new lane's, or from there."""
        first = len(self._messages)
        for number, hop in enumerate(hops, start=first):
            whole = self._messages[hop.number]
            whole.pieces += 1
            self._hops[hop.number].append(number)
            moves = Message(whole.node, hop.source, hop.destination, hop.bytes, part_of=hop.number)
            self._messages.append(moves)
            if hop.then:
                self._then_on[number] = hop
        self._release(range(first, len(self._messages)))

    def _goes_on(self, hop: Hop, lane: QueuePair) -> None:
        """Put on its lane what has crossed NVLink; place it anew if that does not carry any more."""
        (carrier,) = self._carriers.open([lane])
        is_dark = self._light.carries(lane) and not self._light.route(lane)
        if is_dark or self._carriers.is_cut(carrier, self._failed):
            self._note_returned(lane, [(hop.number, hop.bytes)])
            self._place([(hop.number, hop.bytes)])
            return
        (over,) = self._carriers.over([carrier])
        self._ledger.put(hop.number, over, hop.bytes, self._backend.now_ps)
        self._backend.post(*map(np.array, ([carrier], [hop.bytes], [hop.number])))

    def _note_returned(self, lane: QueuePair, left: Iterable[tuple[int, int]]) -> None:
        if self._gathered:
            self._gathered.returned(lane, [(self._root(number), size) for number, size in left])

    def _stay_inside(self, numbers: Sequence[int]) -> None:
        """Send messages over NVLink."""
        messages, now_ps = [self._messages[number] for number in numbers], self._backend.now_ps
        for number, message in zip(numbers, messages, strict=True):
            self._ledger.put(number, INSIDE, message.size, now_ps)
        ends = [(message.source, message.destination, message.size) for message in messages]
        self._nvlink.post(ends, numbers, now_ps)

    def _place(self, parcels: Sequence[tuple[int, int]]) -> None:
        """Give bytes of messages that leave their server to queue pairs: kept ones, or as the scheme says."""
        kept = [(number, size, qp) for number, size in parcels if (qp := self._kept_for(number))]
        if kept:
            self._post_kept(kept)
        schemes = [(self._scheme, False)]
        if self._delegates:
            schemes.append((self._delegates.lanes, True))
        for scheme, over_light in schemes:
            new = [
                parcel
                for parcel in parcels
                if self._messages[parcel[0]].over_light == over_light and not self._kept_for(parcel[0])
            ]
            if self._failed and cut_off(self._fabric, self._failed):
                new = self._relay(new, over_light=over_light)
            if not new:
                continue
            numbers, messages = self._messages_of(new)
            lit = self._lit_of(scheme, messages)
            self._in_the_dark += [
                parcel for parcel, is_lit in zip(new, lit.tolist(), strict=True) if not is_lit
            ]
            for communicator, mine in self._by_communicator(numbers, lit):
                self._cross(scheme, communicator, messages.select(mine), numbers[mine])

    def _by_communicator(
        self, numbers: NDArray[np.int64], chosen: NDArray[np.bool_]
    ) -> list[tuple[int, NDArray[np.bool_]]]:
        """Return the communicators of the chosen ones of some messages, and which of these are of each."""
        communicator = np.array([self._communicator[self._messages[n].node] for n in numbers.tolist()])
        found = dict.fromkeys(communicator[chosen].tolist())
        return [(each, chosen & (communicator == each)) for each in found]

    def _messages_of(self, parcels: Sequence[tuple[int, int]]) -> tuple[NDArray[np.int64], Messages]:
        """Return the numbers of messages, and these with what is to be sent of each."""
        numbers, sizes = np.array(parcels, dtype=np.int64).T
        ends = [(self._messages[n].source, self._messages[n].destination) for n in numbers.tolist()]
        source, destination = np.array(ends, dtype=np.int64).T
        return numbers, Messages(source, destination, sizes)

    def _relay(self, parcels: Sequence[tuple[int, int]], *, over_light: bool) -> list[tuple[int, int]]:
        """Send on their first hop what goes through other servers; return what goes directly.

        What no relay can serve waits for light, if any is to come.
        """
        if not (self._delegates and parcels):
            return list(parcels)
        _, messages = self._messages_of(parcels)
        paths = self._delegates.paths(self._view(), messages, over_light=over_light)
        directly, first = list[tuple[int, int]](), list[int]()
        for parcel, path in zip(parcels, paths, strict=True):
            if path:
                first += self._hop_by_hop(*parcel, path)
            elif path is None and self._light.is_moving:
                self._in_the_dark.append(parcel)
            else:
                directly.append(parcel)
        self._release(first)
        return directly

    def _hop_by_hop(self, number: int, size: int, path: Hops) -> list[int]:
        """Add the messages that relay bytes of a message; return those of the first hop."""
        message, first = self._messages[number], list[int]()
        ends = [self._gpu_at(message, hop.source) for hop in path]
        ends.append(self._gpu_at(message, path[-1].destination))
        for part in parts_of(size):
            message.pieces += 1
            begin = len(self._messages)
            first.append(begin)
            for place, hop in enumerate(path):
                then = [begin + place + 1] * (place + 1 < len(path))
                self._hops[number].append(begin + place)
                self._messages.append(
                    Message(
                        message.node,
                        ends[place],
                        ends[place + 1],
                        part,
                        int(place > 0),
                        then,
                        part_of=number,
                        hop=place,
                        over_light=hop.over_light,
                    )
                )
        return first

    def _gpu_at(self, message: Message, server: int) -> int:
        """Return a GPU of a server that stands for one of a message's: its own ones where they are there."""
        fabric = self._fabric
        for gpu in (message.source, message.destination):
            if fabric.gpu_servers[gpu] == server:
                return gpu
        place = message.source - fabric.gpu_offsets[fabric.gpu_servers[message.source]]
        return fabric.gpu_offsets[server] + place % fabric.servers[server].gpus

    def _lit_of(self, scheme: Scheme, messages: Messages) -> NDArray[np.bool_]:
        """Return which messages a scheme can place now: all, unless it waits for light."""
        if isinstance(scheme, WaitsForLight):
            return scheme.is_lit(self._view(), messages)
        return np.ones(len(messages), dtype=bool)

    def _kept_for(self, number: int) -> QueuePair | None:
        message = self._messages[number]
        return self._kept[message.node].get(message.connection) if message.connection >= 0 else None

    def _post_kept(self, parcels: Sequence[tuple[int, int, QueuePair]]) -> None:
        """Put bytes of messages on the queue pairs of their connections."""
        carriers = self._carriers.open([queue_pair for *_, queue_pair in parcels])
        for (number, size, _), over in zip(parcels, self._carriers.over(carriers), strict=True):
            self._ledger.put(number, over, size, self._backend.now_ps)
        numbers, sizes = (np.array([parcel[column] for parcel in parcels]) for column in (0, 1))
        self._backend.post(np.array(carriers), sizes, numbers)

    def _keep(self, placed: Placement, numbers: NDArray[np.int64]) -> None:
        """Remember the queue pairs of connections that are kept: of messages that go whole on one."""
        carrying = defaultdict[int, set[int]](set)
        for qp, number in zip(placed.qp.tolist(), numbers[placed.message].tolist(), strict=True):
            carrying[number].add(qp)
        for number, qps in carrying.items():
            message = self._messages[number]
            if message.connection >= 0 and len(qps) == 1:
                self._kept[message.node][message.connection] = placed.queue_pairs[qps.pop()]

    def _cross(
        self, scheme: Scheme, communicator: int, messages: Messages, numbers: NDArray[np.int64]
    ) -> None:
        """Have a scheme place messages of a communicator that leave their server."""
        found = of_communicator(placed_by(scheme, self._view(communicator), messages), communicator)
        placed = self._at_its_lanes(found, numbers)
        if isinstance(placed, WhileLit) and self._fabric.servers_forward:
            raise ScenarioError(
                "messages that take whichever circuit is lit go as datagrams, which servers do not forward",
                "take a scheme that places them on queue pairs, such as Routed",
            )
        if isinstance(placed, WhileLit) and placed.rest:
            self._has_rest = True
            lit = np.array([bool(qps) and not self._light_is_over for qps in placed.permitted.of_message])
            if not lit.all():
                self._cross(placed.rest, communicator, messages.select(~lit), numbers[~lit])
            if not lit.any():
                return
            placed, messages, numbers = placed.select(lit), messages.select(lit), numbers[lit]
        carriers = self._carriers.open(placed.queue_pairs)
        if isinstance(placed, Placement):
            self._keep(placed, numbers)
            if (coupling := self._coupling) and all(self._messages[n].leg for n in numbers.tolist()):
                is_light = [self._light.carries(queue_pair) for queue_pair in placed.queue_pairs]
                flows = lane_flows(placed, carriers, numbers.tolist(), is_light)
                self._lead_strands(flows)
                coupling.couple(flows)
                return
            self._post(carriers, placed, numbers[placed.message])
            return
        self._carriers.choose(carriers, placed, messages.bytes, numbers)

    def _post(self, carriers: list[int], placed: Placement, numbers: NDArray[np.int64]) -> None:
        """Put parcels, each of a message of a number, on queue pairs."""
        if not len(placed.bytes):
            return  # all of it crosses NVLink first
        over, now_ps = self._carriers.over(carriers), self._backend.now_ps
        leg, of_leg = np.unique(numbers * len(over) + placed.qp, return_inverse=True)
        sizes = np.bincount(of_leg, placed.bytes).astype(np.int64)
        for code, size in zip(leg.tolist(), sizes.tolist(), strict=True):
            number, qp = divmod(code, len(over))
            self._ledger.put(number, over[qp], size, now_ps)
        self._backend.post(np.array(carriers)[placed.qp], placed.bytes, numbers)

    def _arrived(self, number: int, at_ps: int, over: int | None = None) -> None:
        """Take note that what was put on a lane together of a message has arrived."""
        message = self._messages[number]
        if over is not None:
            message.landed(over, at_ps)
        if number in self._lost:
            return  # over NVLink, which nothing stops
        message.pieces -= 1
        if message.pieces:
            return
        message.end_ps = at_ps
        if (hop := self._then_on.pop(number, None)) and hop.then:
            self._goes_on(hop, hop.then)
        self._carriers.ended(number, at_ps)
        for then in message.then:
            self._messages[then].waits -= 1
        self._release(then for then in message.then if self._is_ready(then))
        if message.part_of < 0:
            self._piece_done(message.node)
        elif not message.then:
            self._arrived(message.part_of, at_ps)

    def _counts_as_arrived(self, number: int, over: int) -> None:
        """Have what a message put together on something count as arrived, when all else is done."""
        now_ps = self._backend.now_ps
        self._at(now_ps, partial(self._arrived, number, now_ps, over))

    def _is_ready(self, number: int) -> bool:
        return not self._messages[number].waits and number not in self._lost

    # Circuits

    def _happened(self, happening: Happening) -> None:
        if isinstance(happening, Arrived):
            self._arrived(happening.message, happening.at_ps, self._carriers.over_of(happening.carrier))
        else:
            self._light.happened(happening)

    def _light_moved(self, moved: Moved) -> None:
        """Go on with what has become of light."""
        self._carriers.rename()
        if moved.cut:
            self._in_the_dark += self._carriers.take_back(moved.cut.__contains__, (), self._lost)
        if moved.programs_ended:
            self._tell(ProgramsEnded(self._lacking()))
        if moved.event:
            self._tell(moved.event)
        if isinstance(moved.event, Lit | Refused):
            if self._delegates and self._faults and (self._hops or not self._coupling):
                self._place_left(self._carriers.without_light(moved.held))
            self._place_waiting()
        for name in self._light.let_go():
            self._go(name)

    def _place_waiting(self) -> None:
        """Place what waits for light."""
        waiting, self._in_the_dark = self._in_the_dark, []
        self._place_left(waiting)

    def _lacking(self) -> tuple[tuple[int, int, int], ...]:
        """Return what messages lack that take what is lit: source, destination and bytes."""
        rows = [(self._messages[n], self._backend.lacking(n)) for n in self._carriers.taking_light]
        return tuple((message.source, message.destination, size) for message, size in rows if size)

    def _tell(self, event: Event) -> None:
        """Have circuits decided after an event, and carry out what is ordered."""
        if self._circuits is None:
            return
        self._state, orders = self._circuits.decide(self._state, self._view(), event)
        for order in orders:
            if isinstance(order, SetTimer):
                fired = partial(self._tell, TimerFired(order.name))
                self._at(self._backend.now_ps + ps(order.after_s), fired)
            elif isinstance(order, SendRest):
                self._send_rest()
            elif isinstance(order, Hold):
                self._hold(order)
            elif isinstance(order, Show):
                self._light_is_over = False
                self._light.show(order)
            elif isinstance(order, Provision):
                self._light.provision(order)
            elif isinstance(order, Flip):
                self._light.flip(order)
            else:
                self._light.reconfigure(order)

    def _hold(self, order: Hold) -> None:
        """Have a collective that begins now wait for OCSes, if these have been ordered anything."""
        begins = isinstance(self._graph.nodes[order.node], Collective) and self._ready
        if not begins or self._ready[0].name != order.node:
            raise ScenarioError(
                f"{order.node!r} was to be held, and is not a collective that begins now",
                "order it when the collective starts (NodeStarted)",
            )
        self._light.hold(order.node, order.ocses, order.deadline_s)

    def _send_rest(self) -> None:
        """Place anew what messages over circuits lack."""
        if self._light.is_showing or (self._carriers.taking_light and not self._has_rest):
            why = "while OCSes show programs" if self._light.is_showing else "under a scheme without a rest"
            raise ScenarioError(
                f"what circuits leave over was ordered over packets {why}",
                "order it when programs have ended, and take OverCircuits with a rest",
            )
        self._light_is_over = True
        if left := self._carriers.recall(self._carriers.taking_light):
            self._place(left)

    def _view(self, communicator: int = 0) -> View:
        owed = partial(self._carriers.backlog_bytes, communicator)
        now_s = in_seconds(self._backend.now_ps)
        return View(now_s, self._fabric, self._light.lit, self._failed, communicator, owed)

    # Faults

    @property
    def _failed(self) -> frozenset[Port]:
        """The ports that are known to have failed, at both ends of links."""
        return self._faulting.failed

    def _detected(self, fault: Fault, *, leads: bool) -> None:
        """Revise the job and, where a fault leads traffic anew, close what crosses the failed links.

        What was not delivered is sent elsewhere.
        """
        revision = self._revise(self._view(), fault)
        self._check_running(revision.cancel)
        self._gone.update(fault.gpus)
        again = self._move(revision.moves)
        given_up = {*revision.cancel, *again}
        cancelled = {n for n, message in enumerate(self._messages) if message.node in given_up}
        self._lost |= cancelled
        ended = self._lose(self._under_way())
        failed = self._failed if leads else frozenset[Port]()
        left = self._carriers.take_back(lambda each: self._carriers.is_cut(each, failed), (), self._lost)
        self._moved.update(number for number, _ in left)
        if leads:
            self._go_around()
            self._ledger.fault(self._backend.now_ps, "gone around", fault.name)
        self._give_up(again, cancelled)
        self._cancel(revision.cancel)
        self._tell(FaultDetected(fault.name))
        self._place_left(left)
        for name in again:
            self._since_ps[name] = self._backend.now_ps
            self._go(name)
        self._start_all(self._graph.replace(revision.cancel, revision.add))
        idled = self._computing.give_up(fault.gpus, dict(revision.moves), self._graph.nodes)
        for node in [*ended, *idled]:
            self._piece_done(node)
        for name in sorted(self._unfinished):
            self._unfinished.discard(name)
            self._end(name)

    def _over(self, fault: Fault, *, leads: bool) -> None:
        """Send what had to go elsewhere as if it had never failed; and all, if nothing was forwarded."""
        if not leads:
            self._tell(FaultOver(fault.name))
            return
        if fault.daemon == "switches":  # connections would wait for their timeouts
            left = self._carriers.take_back(lambda _carrier: True, set(self._under_way()), self._lost)
        else:
            choosing = self._carriers.choosing
            left = self._carriers.take_back(lambda _carrier: False, choosing, self._lost)
            left += self._carriers.unsent(self._moved)
        if not self._failed:
            self._moved.clear()
        self._go_around()
        self._ledger.fault(self._backend.now_ps, "in use again", fault.name)
        self._tell(FaultOver(fault.name))
        self._place_left(left)
        self._place_waiting()

    def _go_around(self) -> None:
        self._kept.clear()
        self._light.avoid(self._failed)
        self._carriers.rename(all_of_them=True)

    def _under_way(self) -> list[int]:
        """Return the messages that have not arrived."""
        return [n for n, message in enumerate(self._messages) if message.end_ps == NEVER]

    def _lose(self, messages: Iterable[int]) -> list[str]:
        """Give up messages from or to GPUs that are gone; return the node of each.

        Raises
        ------
        ScenarioError
            If others wait for them that could still be sent, as in a ring, or nodes for their collective.
        """
        if not self._gone:
            return []
        whole = {n: self._whole(n) for n in messages}
        ends = {  # legs are of servers
            n: {message.source, message.destination} for n, message in whole.items() if message.leg is None
        }
        lost = [n for n in ends if n not in self._lost and ends[n] & self._gone]
        self._lost.update(lost)
        for number in lost:
            message = self._messages[number]
            if self._graph.is_awaited(message.node) or not self._lost.issuperset(message.then):
                gone = min(ends[number] & self._gone)
                raise ScenarioError(
                    f"{message.node!r} cannot go on without GPU {gone}, which is gone",
                    "let `revise` put another collective in its place, or let a NIC or a link fail",
                )
        return [self._messages[number].node for number in lost if self._messages[number].part_of < 0]

    def _whole(self, number: int) -> Message:
        """Return a message, or the one that it is a relayed part of."""
        return self._messages[self._root(number)]

    def _root(self, number: int) -> int:
        """Return the number of a message, or of the one that it is a relayed part of."""
        while (part_of := self._messages[number].part_of) >= 0:
            number = part_of
        return number

    def _lacks_a_gpu(self, name: str) -> bool:
        """Return whether a collective has a GPU that is gone, which is not known."""
        unknown, node = self._faulting.stopped - self._gone, self._graph.nodes[name]
        return bool(unknown) and isinstance(node, Collective) and not unknown.isdisjoint(node.gpus)

    def _move(self, moves: Moves) -> list[str]:
        """Have GPUs take the places of others; return the collectives under way that have to begin again."""
        again, gone = list[str](), {gpu for gpu, _ in moves}
        if not gone:
            return again
        places = places_after(moves, self._fabric.gpus)
        for node in list(self._graph.nodes.values()):
            if gone.isdisjoint(node.gpus):
                continue
            if isinstance(node, Collective):
                self._number(node)
                if self._is_sent(node.name):
                    again.append(node.name)
            self._graph.swap(renumbered(node, places))
        return again

    def _is_sent(self, name: str) -> bool:
        """Return whether a node is under way, or a collective has sent all and has not ended."""
        return bool(self._pieces_of.get(name)) or name in self._unfinished

    def _place_left(self, left: Sequence[tuple[int, int]]) -> None:
        """Place what is left of messages, but of those that are lost."""
        if left := [(number, size) for number, size in left if number not in self._lost]:
            self._place(left)

    def _check_running(self, names: Iterable[str]) -> None:
        for name in names:
            if not (self._is_sent(name) and isinstance(self._graph.nodes[name], Collective)):
                raise ScenarioError(f"{name!r} is given up, and is not a collective that runs now")

    def _give_up(self, nodes: Iterable[str], messages: Iterable[int]) -> None:
        """Give up messages, and what has been done of collectives."""
        for number in messages:
            self._messages[number].then = []
        for name in nodes:
            self._ledger.fault(self._backend.now_ps, "given up", name)
            self._unfinished.discard(name)

    def _cancel(self, nodes: Iterable[str]) -> None:
        """End collectives that are given up, since others take their place."""
        self._give_up(nodes, ())
        for name in nodes:
            self._ledger.ended(name, self._backend.now_ps)

    # Time and records

    def _at(self, at_ps: int, action: Callable[[], None]) -> None:
        """Do something later; what was asked for first comes first at equal times."""
        heapq.heappush(self._timers, (checked(at_ps), next(self._tickets), action))

    def _result(self) -> Run:
        return Run(self._ledger.tables(self._lost, self._communicator, per_pair=self._coupling is not None))


def _check(fabric: Fabric, job: Job, faults: Sequence[Fault], later: Sequence[Node]) -> None:
    """Refuse what does not go together; ``later`` are the nodes that revisions may add."""
    if job.gpus > fabric.gpus:
        raise ScenarioError(
            f"job {job.name!r} is for {job.gpus} GPUs, and the fabric has {fabric.gpus}",
            "take a larger fabric, or a smaller job",
        )
    check_faults(faults, fabric)
    names = {node.name for node in (*job.nodes, *later)}
    for fault in faults:
        if fault.node and fault.node not in names:
            raise ScenarioError(
                f"fault {fault.name!r} counts from node {fault.node!r}, which job {job.name!r} has not",
                f"name one of {', '.join(sorted(names))}",
            )
