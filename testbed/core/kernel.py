"""The kernel: starts the operations of a job, lets time pass, and goes on with what has ended.

What a job means is written here once; it knows no medium and no paper. Movers move bytes
(`testbed.core.movers`), of which the backend has the clock: a booted network, or fluids. A collective that
may go is lowered to operations (`traffic.ops`); what waits for nothing is placed on lanes and started.

All that happens, and all that was planned, goes through one heap, by time [ps], phase, rank and ticket. So
what comes at one time has an order: what fails does so before what arrives, what starts sees all that ended,
and nodes start in job order.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from itertools import count

import numpy as np
from numpy.typing import NDArray

from controller.circuits.rule import Decides
from testbed.core.carriers import Carriers
from testbed.core.computing import Computing
from testbed.core.deciding import Deciding
from testbed.core.faulting import Faulting
from testbed.core.job_graph import JobGraph
from testbed.core.ledger import Ledger
from testbed.core.light import Light, Moved
from testbed.core.movers import Arrived, Backend, Happening
from testbed.core.owed import owed_bytes
from testbed.core.placing import Placing
from testbed.core.revising import Revise, Revising
from testbed.core.run import Run
from testbed.live.moving import Moving
from topologies.errors import ScenarioError, StuckError
from topologies.events import Lit, NodeDone, NodeStarted, ProgramsEnded, Refused, View
from topologies.fabric import Fabric
from topologies.light import Configuration
from topologies.routing import Routing
from traffic.clock import NEVER, checked, in_seconds
from traffic.communicators import Communicators
from traffic.faults import AS_IT_WAS, Fault, Revisions, check_faults
from traffic.job import Collective, Job, Node
from traffic.scheme import Placement, Scheme


class Phase(IntEnum):
    """In which order what comes at one time is done."""

    EFFECT = 0
    """Something fails, is known to, or is back."""
    LIGHT = 1
    """Light has changed, or should have by now."""
    ARRIVAL = 2
    """Bytes have arrived."""
    COMPUTE = 3
    """A GPU has computed something."""
    TIMER = 4
    """A timer that was set runs out."""
    START = 5
    """Nodes start that wait for nothing any more."""


OF_THE_JOB = (Phase.ARRIVAL, Phase.COMPUTE, Phase.START)
"""The phases of the job itself, in which time that a live clock takes between two events decides nothing."""


class Kernel:
    """Runs a job once over a backend.

    Parameters
    ----------
    fabric, job, backend
        What runs, and where.
    scheme
        What becomes of operations, and which lanes carry their bytes.
    circuits
        Which circuits are lit when; by default none ever.
    faults, revise
        What fails, and how the job goes on then; by default as it was.
    lit
        What OCSes carry from the start; by default nothing.
    routing
        By which NIC servers send on that forward; by default by the shortest path.
    communicators
        The numbers of the communicators, each of which has queue pairs of its own; by default the job's.
    couples
        Whether what moves in lock step goes together, which is fast and less exact; the backend has to move
        such flows (`testbed.model.backend`). With faults that come later nothing does, as what a ring has
        yet to do after one depends on the step in which it came; nor where links have delay or loss, since
        each step would pay the delay.

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
        circuits: Decides | None = None,
        faults: Sequence[Fault] = (),
        revise: Revise = AS_IT_WAS,
        lit: Configuration | None = None,
        routing: Routing | None = None,
        communicators: Communicators | None = None,
        couples: bool = False,
    ) -> None:
        _check(fabric, job, faults, revise.nodes if isinstance(revise, Revisions) else ())
        self._fabric, self._backend, self._first_lit = fabric, backend, lit or {}
        self._routing = routing
        self._communicators = communicators or Communicators(job)
        self._communicator: dict[str, int] = {}
        """The number of the communicator of each collective that has begun, or moved."""
        self._heap: list[tuple[int, Phase, int, int, Callable[[], None]]] = []
        self._turn_ps = NEVER
        """Until when all is being done that is due; `NEVER` between two turns."""
        self._tickets = count()
        self._graph = JobGraph(job)
        self._pieces_of: dict[str, int] = {}
        """What each node that has started has yet to do: GPUs that compute, operations that end."""
        self._since_ps: dict[str, int] = {}
        """Since when operations of each node are owed: its start, or when it began again."""
        self._numbers_of: dict[str, range] = {}
        """The operations of each collective under way."""
        self._was_sent: set[str] = set()
        """The collectives that had operations."""
        self._starting = ""
        """The collective that begins now."""
        self._ledger = Ledger(fabric, (node.name for node in job.nodes))
        self._ops = self._ledger.ops
        self._moving = Moving(fabric, backend, self._ops)
        self._faulting = Faulting(
            fabric,
            faults,
            backend,
            self._ledger,
            leaves=revise.leaves if isinstance(revise, Revisions) else lambda _fault: False,
            at=partial(self._at, Phase.EFFECT),
            controlled=lambda works: self._light.control(works=works),
            detected=lambda fault, leads: self._revising.detected(fault, leads=leads),
            over=lambda fault, leads: self._revising.over(fault, leads=leads),
        )
        self._couples = couples and not (self._faulting.come_later or fabric.impaired)
        self._computing = Computing(
            self._ledger,
            self._faulting.stopped,
            now_ps=lambda: backend.now_ps,
            at=partial(self._at, Phase.COMPUTE),
            began=lambda name: self._begin(name, self.now_ps),
            done=self.piece_done,
        )
        self._light = Light(
            fabric,
            backend,
            self._ledger,
            routing=routing,
            at=partial(self._at, Phase.LIGHT),
            moved=self._light_moved,
        )
        self._carriers = Carriers(
            fabric,
            backend,
            self._ledger,
            self._light,
            arrived=self._counts_as_arrived,
            returned=lambda lane, left: self._placing.returned(lane, left),
        )
        self._placing = Placing(
            fabric,
            scheme,
            self._ledger,
            self._carriers,
            backend,
            start=self._moving.start,
            arrived=self._counts_as_arrived,
            view=self._view,
            communicators=self._communicator,
            release=self._release,
            may_move=self._faulting.come_later and not self._couples,
        )
        self._deciding = Deciding(
            circuits,
            self._light,
            self._carriers,
            self._placing,
            view=self._view,
            after=lambda lasts_ps, action: self._at(Phase.TIMER, backend.now_ps + lasts_ps, action),
            begins=lambda: self._starting,
            progress=self._progress,
        )
        self._revising = Revising(
            fabric,
            self._ledger,
            self._graph,
            self._faulting,
            self._light,
            self._carriers,
            self._placing,
            self._computing,
            self._deciding,
            nodes=self,
            revise=revise,
            view=self._view,
        )

    def run(self) -> Run:
        """Run the job to its end."""
        if self._first_lit:
            self._light.begin(self._first_lit)
        self._faulting.begin()
        self._faulting.node_began("")
        self.start_all(self._graph.sources())
        self._do_what_is_due(self.now_ps)
        while self._graph.open:
            self._advance()
            self._do_what_is_due(self.now_ps)
        return Run(self._ledger.tables(self._revising.lost, self._communicator))

    # Time

    @property
    def now_ps(self) -> int:
        """Time since the start [ps]."""
        return self._backend.now_ps

    def _at(self, phase: Phase, at_ps: int, action: Callable[[], None], rank: int = 0) -> None:
        """Do something at a time; in its phase by rank, and what was asked for first comes first.

        What a job has done by now belongs to this turn, though a live clock has gone on since that began. A
        rule's timers do not: one that sets them again and again would not let time pass.
        """
        if phase in OF_THE_JOB and self._turn_ps < at_ps <= self.now_ps:
            at_ps = self._turn_ps
        heapq.heappush(self._heap, (checked(at_ps), phase, rank, next(self._tickets), action))

    def _do_what_is_due(self, now_ps: int) -> None:
        self._turn_ps = now_ps
        while self._heap and self._heap[0][0] <= now_ps:
            *_, action = heapq.heappop(self._heap)
            action()
        self._turn_ps = NEVER

    def _advance(self) -> None:
        """Let time pass until something happens, or is due; say which faults stand if nothing can."""
        try:
            for happening in self._moving.advance(self._heap[0][0] if self._heap else NEVER):
                self._note(happening)
        except StuckError as stuck:
            if standing := [fault.name for fault in self._faulting.standing if not fault.only_impairs]:
                what = f"nothing more can arrive after {', '.join(standing)}, and the job has not ended"
                raise StuckError(
                    what, "let it be back, as in @40%-70%, or take a fabric with a way around"
                ) from stuck
            raise

    def _note(self, happening: Happening) -> None:
        """Have something that has happened dealt with in its turn."""
        if isinstance(happening, Arrived):
            arrived = partial(self._arrived, happening.op, happening.at_ps, happening.lane)
            self._at(Phase.ARRIVAL, happening.at_ps, arrived)
        else:
            self._at(Phase.LIGHT, happening.at_ps, partial(self._light.happened, happening))

    # Nodes

    def start_all(self, nodes: Iterable[Node]) -> None:
        """Start nodes that wait for nothing, when all else has been done that comes now, in job order."""
        now_ps = self.now_ps
        for node in nodes:
            self._at(Phase.START, now_ps, partial(self._start, node.name), self._graph.rank(node.name))

    def _start(self, name: str) -> None:
        """Start a node as it is now: what was known to fail at the same time may have moved it."""
        node, now_ps = self._graph.nodes[name], self.now_ps  # read once: a live clock goes on
        self._pieces_of[node.name] = 0
        self._ledger.ready(node.name, now_ps)
        if isinstance(node, Collective):
            self.number(node)
            self._starting = node.name
            self._begin(node.name, now_ps)
            self._starting = ""
            if not self._light.is_held(node.name):
                self._go(node.name)
            return
        left = [gpu for gpu in node.gpus if gpu not in self._revising.gone]
        self._pieces_of[node.name] = len(left)
        self._computing.start(node, left)
        if not left:
            self._begin(node.name, now_ps)
            self.end(node.name)

    def _begin(self, name: str, now_ps: int) -> None:
        """Have a node begin, if no GPU of it has begun before."""
        if name not in self._since_ps:
            self._since_ps[name] = now_ps
            self._deciding.tell(NodeStarted(name))
            self._faulting.node_began(name)

    def _go(self, name: str) -> None:
        """Send a collective that has begun."""
        node = self._graph.nodes[name]
        if isinstance(node, Collective):
            self._send(node)
        if not self._pieces_of[name]:
            self.end(name)

    def go_again(self, name: str) -> None:
        """Send all of a collective once more, from now on."""
        self._since_ps[name] = self.now_ps
        self._go(name)

    def has_pieces(self, name: str) -> bool:
        """Return whether a node has started and has something yet to do."""
        return bool(self._pieces_of.get(name))

    def piece_done(self, name: str, pieces: int = 1) -> None:
        """Record that something of a node is done."""
        self._pieces_of[name] -= pieces
        if not self._pieces_of[name]:
            self.end(name)

    def end(self, name: str) -> None:
        """End a node of which everything is done."""
        if self._revising.is_unfinished(name):
            return
        if isinstance(self._graph.nodes[name], Collective):
            self._ledger.ended(name, self.now_ps)
            self._placing.forget_connections(name)
            numbers = self._numbers_of.pop(name)
            if self._couples:
                self._ledger.file(numbers)
        self._deciding.tell(NodeDone(name))
        self.start_all(self._graph.done(name))

    def number(self, node: Collective) -> int:
        """Return the number of a collective's communicator; it stays when GPUs move."""
        if node.name not in self._communicator:
            self._communicator[node.name] = self._communicators.number(node)
        return self._communicator[node.name]

    # Operations

    def _send(self, node: Collective) -> None:
        """Lower a collective, and start what waits for nothing, which is owed since the collective began."""
        communicator = self.number(node)
        ops, placed = self._placing.lowered(node.pattern, communicator, coupled=self._couples)
        numbers = self._numbers_of[node.name] = self._ledger.add(node.name, ops)
        self._placing.admit(ops, numbers.start)
        self._was_sent.add(node.name)
        self._pieces_of[node.name] = len(numbers) - len(self._revising.lose(numbers))
        self._moving.begin(node.name)
        ready = list(filter(self._is_ready, numbers))
        self._release(ready, placed)
        for number in ready:
            self._ops[number].start_ps = self._since_ps[node.name]

    def _is_ready(self, number: int) -> bool:
        return not self._ops[number].waits and number not in self._revising.lost

    def _release(self, numbers: Iterable[int], placed: Placement | None = None) -> None:
        """Start operations that wait for nothing any more; ``placed`` is where those in step go."""
        released, now_ps = list(numbers), self.now_ps
        for number in released:
            self._ops[number].start_ps = now_ps
        self._placing.start(released, placed)

    def _arrived(self, number: int, at_ps: int, lane: int | None) -> None:
        """Record that what was started together of an operation on a lane has arrived."""
        op = self._ops[number]
        if lane is not None and (over := self._carriers.over_of(lane)) is not None:
            op.landed(over, at_ps)
        if number in self._revising.lost:
            return  # over NVLink, which nothing stops
        op.pieces -= 1
        if op.pieces:
            return
        op.end_ps = at_ps
        self._placing.goes_on(number, lambda carrier: self._carriers.is_dead(carrier, self._faulting.failed))
        self._carriers.ended(number, at_ps)
        for then in op.then:
            self._ops[then].waits -= 1
        self._release(then for then in op.then if self._is_ready(then))
        if op.part_of < 0:
            self.piece_done(op.node)
        elif not op.then:
            self._arrived(op.part_of, at_ps, None)

    def _counts_as_arrived(self, number: int, lane: int | None = None) -> None:
        """Have what was started together of an operation count as arrived, when all else is done."""
        self._at(Phase.ARRIVAL, self.now_ps, partial(self._arrived, number, self.now_ps, lane))

    # Light and faults

    def _view(self, communicator: int = 0) -> View:
        return View(
            in_seconds(self.now_ps),
            self._fabric,
            self._light.lit,
            self._faulting.failed,
            communicator,
            partial(self._carriers.backlog_bytes, communicator),
            self._light.is_moving,
            self._light.ordered,
            self._light.held,
            self._faulting.rates,
            frozenset(self._revising.gone),
            self._routing,
            self._owed,
        )

    def _owed(self) -> NDArray[np.int64]:
        """Return what has to be lit for, between servers [bytes]."""
        lost = self._revising.lost
        numbers = (number for own in self._numbers_of.values() for number in own if number not in lost)
        begun = [self._graph.nodes[name] for name in self._since_ps if name not in self._was_sent]
        unsent = [node.pattern.lower().first for node in begun if isinstance(node, Collective)]
        return owed_bytes(self._fabric, self._ledger, self._carriers, numbers, unsent)

    def _progress(self) -> object:
        """Return what has become of the job; None while more than decisions and light may bring it on."""
        started = [op for op in self._ops if op.start_ps < NEVER and not op.is_over]
        servers = self._fabric.gpu_servers
        by_itself = any(op.moves or servers[op.source] == servers[op.destination] for op in started)
        if by_itself or any(phase in (Phase.EFFECT, Phase.COMPUTE) for _, phase, *_ in self._heap):
            return None
        return self._graph.open, len(self._ops), len(started), self._carriers.undelivered_bytes

    def _light_moved(self, moved: Moved) -> None:
        """Go on with what has become of light."""
        self._carriers.rename()
        if moved.cut:
            lost = self._revising.lost
            self._placing.wait(self._carriers.take_back(moved.cut.__contains__, (), lost))
        if moved.programs_ended:
            self._deciding.tell(ProgramsEnded(self._carriers.lacking))
        if moved.event:
            self._deciding.tell(moved.event)
        if isinstance(moved.event, Lit | Refused):
            self._revising.relit(moved.held)
        for name in self._light.let_go():
            self._go(name)


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
        if fault.when.node and fault.when.node not in names:
            raise ScenarioError(
                f"fault {fault.name!r} counts from node {fault.when.node!r}, which job {job.name!r} has not",
                f"name one of {', '.join(sorted(names))}",
            )
