"""Revising: what becomes of nodes and operations once something is known to have failed, or to be back."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from testbed.core.carriers import Carriers, Left
from testbed.core.computing import Computing
from testbed.core.deciding import Deciding
from testbed.core.faulting import Faulting
from testbed.core.job_graph import JobGraph
from testbed.core.ledger import Ledger
from testbed.core.light import Light
from testbed.core.placing import Placing
from topologies.errors import ScenarioError
from topologies.events import FaultDetected, FaultOver, View
from topologies.fabric import Fabric, Port
from traffic.clock import NEVER
from traffic.compose import renumbered
from traffic.faults import Fault, Moves, Revision, places_after
from traffic.job import Collective, Node

Revise = Callable[[View, Fault], Revision]


class Nodes(Protocol):
    """The nodes of a job, as they are started and end."""

    @property
    def now_ps(self) -> int:
        """The time [ps]."""
        ...

    def number(self, node: Collective) -> int:
        """Return the number of a collective's communicator; it stays when GPUs move."""
        ...

    def has_pieces(self, name: str) -> bool:
        """Return whether a node has started and has something yet to do."""
        ...

    def start_all(self, nodes: Iterable[Node]) -> None:
        """Start nodes that wait for nothing."""
        ...

    def go_again(self, name: str) -> None:
        """Send all of a collective once more, from now on."""
        ...

    def piece_done(self, name: str) -> None:
        """Record that something of a node is done."""
        ...

    def end(self, name: str) -> None:
        """End a node of which everything is done."""
        ...


class Revising:
    """What faults make of one run.

    Parameters
    ----------
    fabric, ledger, graph, faulting, light, carriers, placing, computing, deciding
        Of the run.
    nodes
        Its nodes.
    revise
        How the job goes on after a fault.
    view
        Returns what that is decided from.
    """

    def __init__(
        self,
        fabric: Fabric,
        ledger: Ledger,
        graph: JobGraph,
        faulting: Faulting,
        light: Light,
        carriers: Carriers,
        placing: Placing,
        computing: Computing,
        deciding: Deciding,
        *,
        nodes: Nodes,
        revise: Revise,
        view: Callable[[], View],
    ) -> None:
        self._fabric, self._ledger, self._graph, self._faulting = fabric, ledger, graph, faulting
        self._light, self._carriers, self._placing = light, carriers, placing
        self._computing, self._deciding, self._nodes = computing, deciding, nodes
        self._revise, self._view = revise, view
        self._ops = ledger.ops
        self._elsewhere: set[int] = set()
        """The operations that had to go elsewhere, while anything is known to have failed."""
        self.gone: set[int] = set()
        """The GPUs that are known to be gone."""
        self._dark: set[int] = set()
        """The queue pairs that had no route when circuits were lit last."""
        self._unfinished: set[str] = set()
        """The collectives that have sent all, some of it of GPUs that are gone, which is not known."""
        self.lost: set[int] = set()
        """The operations that are given up, because a GPU is gone or their collective is."""

    def detected(self, fault: Fault, *, leads: bool) -> None:
        """Revise the job and, where a fault leads traffic anew, close what crosses the failed links.

        What was not delivered is sent elsewhere.
        """
        revision = self._revise(self._view(), fault)
        self._check_running(revision.cancel)
        self.gone.update(fault.gpus)
        again = self._move(revision.moves)
        given_up = {*revision.cancel, *again}
        cancelled = {number for number, op in enumerate(self._ops) if op.node in given_up}
        self.lost |= cancelled
        ended = self.lose(self._under_way())
        failed = self._faulting.failed if leads else frozenset[Port]()
        left = self._carriers.take_back(lambda each: self._carriers.is_cut(each, failed), (), self.lost)
        self._elsewhere.update(number for number, _ in left)
        if leads:
            self._go_around("gone around", fault)
        self._give_up(again, cancelled)
        self._cancel(revision.cancel)
        self._deciding.tell(FaultDetected(fault.name))
        self.place_left(left)
        for name in again:
            self._nodes.go_again(name)
        self._nodes.start_all(self._graph.replace(revision.cancel, revision.add))
        idled = self._computing.give_up(fault.gpus, dict(revision.moves), self._graph.nodes)
        for node in [*ended, *idled]:
            self._nodes.piece_done(node)
        for name in sorted(self._unfinished):
            self._unfinished.discard(name)
            self._nodes.end(name)

    def over(self, fault: Fault, *, leads: bool) -> None:
        """Send what had to go elsewhere as if it had never failed; and all, if nothing was forwarded."""
        if not leads:
            self._deciding.tell(FaultOver(fault.name))
            return
        if fault.daemon == "switches":  # connections would wait for their timeouts
            left = self._carriers.take_back(lambda _carrier: True, set(self._under_way()), self.lost)
        else:
            choosing = self._carriers.choosing
            left = self._carriers.take_back(lambda _carrier: False, choosing, self.lost)
            left += self._carriers.unsent(self._elsewhere)
        if not self._faulting.failed:
            self._elsewhere.clear()
        self._go_around("in use again", fault)
        self._deciding.tell(FaultOver(fault.name))
        self.place_left(left)
        self.place_left(self._placing.waiting())

    def relit(self, lanes: Iterable[int]) -> None:
        """Place what waited for light, what lanes lack whose circuits have ended, and what may use more."""
        if self._placing.by_light and self._faulting.expected:
            self.place_left(self._carriers.without_light(lanes))
        if self._placing.follows_light:
            self.place_left(self._led_away())
            self.place_left(self._carriers.unsent(self._placing.lacking_lanes(self._carriers.using_light)))
        self.place_left(self._placing.waiting())

    def _led_away(self) -> Left:
        """Close queue pairs without a route if other ones can carry their messages; return what was left.

        If the scheme does not spread messages, a queue pair is closed only after two changes without a route:
        the second may bring it back. Closing at each of three changes took 1.35 times the prediction, and
        waiting 1.15.
        """
        dark = self._carriers.in_the_dark
        before, self._dark = self._dark, set(dark)
        long = {lane: ops for lane, ops in dark.items() if self._placing.spreads or lane in before}
        can_go = self._placing.can_go({number for numbers in long.values() for number in numbers})
        return self._carriers.without_light(lane for lane, numbers in long.items() if numbers & can_go)

    def place_left(self, left: Left) -> None:
        """Place what is left of operations, but of those that are lost."""
        self._placing.place([(number, size) for number, size in left if number not in self.lost])

    def lose(self, numbers: Iterable[int]) -> list[str]:
        """Give up operations from or to GPUs that are gone; return the node of each.

        Raises
        ------
        ScenarioError
            If others wait for them that could still be sent, as in a ring, or nodes for their collective.
        """
        if not self.gone:
            return []
        wholes = {number: self._ops[self._placing.root(number)] for number in numbers}
        ends = {  # what brings messages of many GPUs, or goes together, goes on
            number: {whole.source, whole.destination} for number, whole in wholes.items() if whole.row >= 0
        }
        lost = [number for number in ends if number not in self.lost and ends[number] & self.gone]
        self.lost.update(lost)
        for number in lost:
            op = self._ops[number]
            if self._graph.is_awaited(op.node) or not self.lost.issuperset(op.then):
                gone = min(ends[number] & self.gone)
                raise ScenarioError(
                    f"{op.node!r} cannot go on without GPU {gone}, which is gone",
                    "let `revise` put another collective in its place, or let a NIC or a link fail",
                )
        return [self._ops[number].node for number in lost if self._ops[number].part_of < 0]

    def is_unfinished(self, name: str) -> bool:
        """Return whether a node that has done all has to wait: a GPU of it is gone, which is not known."""
        unknown, node = self._faulting.stopped - self.gone, self._graph.nodes[name]
        if unknown and isinstance(node, Collective) and not unknown.isdisjoint(node.gpus):
            self._unfinished.add(name)
            return True
        return False

    def _go_around(self, what: str, fault: Fault) -> None:
        self._placing.forget_connections()
        self._light.avoid(self._faulting.failed)
        self._carriers.rename(all_of_them=True)
        self._ledger.fault(self._nodes.now_ps, what, fault.name)

    def _under_way(self) -> list[int]:
        """Return the operations that have not ended."""
        return [number for number, op in enumerate(self._ops) if op.end_ps == NEVER]

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
                self._nodes.number(node)
                if self._is_sent(node.name):
                    again.append(node.name)
            self._graph.swap(renumbered(node, places))
        return again

    def _is_sent(self, name: str) -> bool:
        """Return whether a node is under way, or a collective has sent all and has not ended."""
        return self._nodes.has_pieces(name) or name in self._unfinished

    def _check_running(self, names: Iterable[str]) -> None:
        for name in names:
            if not (self._is_sent(name) and isinstance(self._graph.nodes[name], Collective)):
                raise ScenarioError(f"{name!r} is given up, and is not a collective that runs now")

    def _give_up(self, nodes: Iterable[str], numbers: Iterable[int]) -> None:
        """Give up operations, and what has been done of collectives."""
        for number in numbers:
            self._ops[number].then = []
        for name in nodes:
            self._ledger.fault(self._nodes.now_ps, "given up", name)
            self._unfinished.discard(name)

    def _cancel(self, nodes: Sequence[str]) -> None:
        """End collectives that are given up, since others take their place."""
        self._give_up(nodes, ())
        for name in nodes:
            self._ledger.ended(name, self._nodes.now_ps)
