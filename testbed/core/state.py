"""The state of a run: one owner for each thing, all of it data.

Reactions read and change it (`testbed.core.reactions`); nothing here decides what follows.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from controller.circuits.rule import Decides
from testbed.core.backend import Backend
from testbed.core.events import Later, NodeReady, Queue
from testbed.core.job_graph import JobGraph
from testbed.core.lane_table import LaneTable
from testbed.core.nodes import NodeRow, NodeTable
from testbed.core.ocses import Ocses
from testbed.core.ops import OpTable
from testbed.core.record import Record
from testbed.core.written import Packing, Ran
from topologies.fabric import Fabric, Link, Nic, Port
from topologies.light import Configuration
from topologies.routing import Routing
from traffic.clock import NEVER, in_seconds, ps
from traffic.communicators import Communicators
from traffic.effects import Daemon, DaemonState, LinkState
from traffic.faults import AS_IT_WAS, Fault, Revisions
from traffic.followed import FollowsBytes, Whereabouts
from traffic.job import Collective, Compute, Job, Node
from traffic.ops import Ops
from traffic.scheme import Lowers, OverLight, Scheme, keeps_connections
from traffic.spraying.policy import QueuePair


@dataclass(frozen=True, eq=False)
class Setup:
    """The parameters of a run, which do not change."""

    fabric: Fabric
    job: Job
    scheme: Scheme
    circuits: Decides | None = None
    faults: Sequence[Fault] = ()
    revisions: Revisions = AS_IT_WAS
    lit: Configuration = field(default_factory=dict)
    """The circuits that OCSes carry from the start."""
    routing: Routing | None = None
    couples: bool = False

    @cached_property
    def lowers(self) -> Lowers | None:
        """The scheme, if it lowers operations."""
        return self.scheme if isinstance(self.scheme, Lowers) else None

    @cached_property
    def over_light(self) -> OverLight | None:
        """The scheme, if it places what is left of a message anew when circuits change."""
        return self.scheme if isinstance(self.scheme, OverLight) else None

    @cached_property
    def has_lanes(self) -> bool:
        """Whether the scheme has lanes by what is lit, and others for what is left when that goes dark."""
        return isinstance(self.scheme, FollowsBytes)

    @cached_property
    def over_lanes(self) -> Scheme:
        """The scheme of what goes over the lanes of its servers (`traffic.ops.LANES`)."""
        return self.scheme.lanes if isinstance(self.scheme, FollowsBytes) else self.scheme

    @cached_property
    def spreads(self) -> bool:
        """Whether what is left of a message is spread anew over more lanes."""
        return self.over_light is not None and self.over_light.spreads

    @cached_property
    def keeps_connections(self) -> bool:
        """Whether operations of a connection go the way of its first."""
        return keeps_connections(self.scheme)

    def stands(self, fault: Fault) -> bool:
        """Return whether a fault is there from the start, and leaves the job as it is."""
        return fault.is_standing and self.revisions.leaves(fault)

    @cached_property
    def faults_come_later(self) -> bool:
        """Whether some fault comes while the job runs, or revises it."""
        return not all(map(self.stands, self.faults))

    @cached_property
    def in_step(self) -> bool:
        """True if moves in lock step go together."""
        return self.couples and not (self.faults_come_later or self.fabric.impaired)


@dataclass(slots=True, eq=False)
class Failures:
    """The faults that have come, those that stand, and those that are known."""

    begun: list[Fault] = field(default_factory=list)
    """The faults that have come, in that order."""
    standing: list[Fault] = field(default_factory=list)
    """Those of them that are not over, in the same order."""
    known: list[Fault] = field(default_factory=list)
    """Those that are known, and not known to be over."""
    ports: frozenset[Port] = frozenset()
    """The ports that are known to have failed, at both ends of links."""
    stopped: set[int] = field(default_factory=set)
    """The GPUs that are gone, known or not."""
    gone: set[int] = field(default_factory=set)
    """The GPUs that are known to be gone."""
    links: dict[Link, LinkState] = field(default_factory=dict)
    """The state of each link that has changed, as the backend has it."""
    daemons: dict[Daemon, DaemonState] = field(default_factory=dict)
    """The same of each daemon."""
    rates: dict[Nic, float] = field(default_factory=dict)
    """The shares of their rate that NICs are known to have, where that is not all."""
    expects_back: bool = False
    """True while the backend expects a link or a daemon that is away to be back."""


@dataclass(slots=True, eq=False)
class Gpus:
    """The tasks of GPUs."""

    queued: dict[int, deque[Compute]] = field(default_factory=lambda: defaultdict(deque))
    """The tasks that each has yet to begin, in order."""
    computing: dict[int, str] = field(default_factory=dict)
    """The node that each GPU computes for, if it is not idle."""


@dataclass(slots=True, eq=False)
class RuleMemory:
    """The memory of the rule for circuits, and how often it has decided."""

    state: object = None
    """The state that the rule returned last."""
    decisions: int = 0
    progress: object = None
    """The progress of the job when that was looked at last."""


class State:
    """All that a run is at a moment.

    Parameters
    ----------
    setup, backend, communicators
        Of the run.
    """

    def __init__(self, setup: Setup, backend: Backend, communicators: Communicators) -> None:
        self.setup, self.fabric, self.backend = setup, setup.fabric, backend
        self.queue = Queue()
        self.graph = JobGraph(setup.job)
        self.nodes = NodeTable(node.name for node in setup.job.nodes)
        self.starting = ""
        """The collective that begins now."""
        self._communicators = communicators
        self.ops = OpTable()
        self.sets: dict[int, Ops] = {}
        """The operations of collectives whose rows are written at once, by the number of the first."""
        self.filed: dict[int, Ran] = {}
        """The rest that is kept of those that went together and have ended, by the same number."""
        self.packing = Packing()
        self.lanes = LaneTable(setup.fabric)
        self.ocses = Ocses(setup.fabric, setup.routing)
        self.failures = Failures()
        self.gpus = Gpus()
        self.rule_memory = RuleMemory()
        self.whereabouts = _whereabouts(setup)
        """Where bytes are that the scheme follows, if it does."""
        self.has_rest = False
        """True once the scheme has shown a rest: how packets carry the bytes that circuits leave over."""
        self.light_is_over = False
        """True once the rest goes over packets, and with it all that starts."""
        self.record = Record()

    @property
    def now_ps(self) -> int:
        """Time since the start [ps]."""
        return self.backend.now_ps

    def later(self, at_ps: int, event: Later) -> None:
        """Have an event come at a time [ps]."""
        self.queue.put(at_ps, event, self.now_ps)

    def start(self, nodes: Iterable[Node]) -> None:
        """Have nodes start, in job order, after all other events of now or of the time of their own."""
        now_ps = self.now_ps
        for node in nodes:
            self.later(max(now_ps, ps(node.at_s)), NodeReady(node.name, self.graph.rank(node.name)))

    def node_of(self, op: int) -> NodeRow:
        """Return the node of an operation."""
        return self.nodes.rows[self.ops.node[op]]

    def communicator(self, node: Collective) -> int:
        """Return the number of a collective's communicator; it stays when GPUs move."""
        row = self.nodes[node.name]
        if row.communicator < 0:
            row.communicator = self._communicators.number(node)
        return row.communicator

    def put(self, number: int, over: int, size: int, at_ps: int) -> None:
        """Count a piece of an operation that is started on a lane or NVLink."""
        self.node_of(number).sends(at_ps)
        self.ops.pieces[number] += 1
        self.ops.put(number, over, size, at_ps)

    def returned(self, lane: QueuePair, left: Sequence[tuple[int, int]]) -> None:
        """Have the scheme's whereabouts follow the bytes that a lane gives back."""
        if self.whereabouts:
            self.whereabouts.withdraw(lane, [(self.ops.root(number), size) for number, size in left])

    def __str__(self) -> str:
        """Return it as lines for people: what moves, what waits, what is lit, what has failed."""
        stages = Counter(self.ops.stage(number).value for number in range(len(self.ops)))
        lanes, ocses = self.lanes.open.values(), self.ocses
        held = sum(bool(lane.held_by) for lane in lanes)
        changes = [f"{'+'.join(each.circuits)} {each.stage}" for each in ocses.changes.values()]
        lines = {
            "time": f"{in_seconds(self.now_ps):g} s; next event: {self._next_text}",
            "nodes": f"{self.graph.open} open; held: {', '.join(self.nodes.awaited) or 'none'}",
            "operations": ", ".join(f"{count} {stage}" for stage, count in sorted(stages.items())) or "none",
            "lanes": f"{len(lanes)}, of which {len(self.lanes.light)} over circuits and {held} stand",
            "changes": "; ".join(changes) or "none",
            "programs": ", ".join(sorted(ocses.showing)) or "none",
            "faults": ", ".join(fault.name for fault in self.failures.standing) or "none",
            "known": ", ".join(fault.name for fault in self.failures.known) or "none",
        }
        return "\n".join(f"{name:11}{line}" for name, line in lines.items())

    @property
    def _next_text(self) -> str:
        next_ps = self.queue.next_ps
        return "none" if next_ps == NEVER else f"at {in_seconds(next_ps):g} s"

    @property
    def under_way(self) -> list[int]:
        """The operations of which not all has arrived."""
        return [number for number, end_ps in enumerate(self.ops.end_ps) if end_ps == NEVER]


def _whereabouts(setup: Setup) -> Whereabouts | None:
    """Return the whereabouts of bytes, if lanes may change after bytes are ready for them."""
    may_move = setup.faults_come_later and not setup.in_step
    return setup.scheme.follow(setup.fabric) if may_move and isinstance(setup.scheme, FollowsBytes) else None
