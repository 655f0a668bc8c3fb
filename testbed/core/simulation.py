"""The simulation: it lets time pass, takes events from the queue, and carries out their reactions.

The meaning of a job is written once, in reactions (`testbed.core.reactions`). A backend is physics: a booted
network, or fluids. Each step that a reaction yields is done before it goes on: an event by the reactions to
it, depth first, and an order by the backend, whose answer comes back. So a reaction reads the state anew
after each ``yield``.
"""

from collections.abc import Sequence

from controller.circuits.rule import Decides
from testbed.core.backend import Backend, Happening
from testbed.core.event_log import EventLog
from testbed.core.events import Event, JobBegan
from testbed.core.invariants import check
from testbed.core.reactions import REACTIONS
from testbed.core.run import Run
from testbed.core.state import Setup, State
from testbed.core.steps import Order, Steps
from testbed.core.tables import tables_of
from topologies.errors import ScenarioError, StuckError
from topologies.fabric import Fabric
from topologies.light import Configuration
from topologies.routing import Routing
from traffic.clock import NEVER
from traffic.communicators import Communicators
from traffic.faults import AS_IT_WAS, Fault, Revisions, check_faults
from traffic.job import Job
from traffic.scheme import Scheme


class Simulation:
    """Carries out a job once over a backend.

    Parameters
    ----------
    fabric, job, backend
        What runs, and where.
    scheme
        How operations are lowered, and which lanes carry their bytes.
    circuits
        Which circuits are lit when; by default none ever.
    faults, revisions
        What fails, and how the job goes on then; by default as it was.
    lit
        The circuits that OCSes carry from the start; by default none.
    routing
        By which NIC servers send on that forward; by default by the shortest path.
    communicators
        The numbers of the communicators, each of which has queue pairs of its own; by default the job's.
    couples
        Whether moves in lock step go together, which is fast and less exact; the backend has to move such
        flows (`testbed.model.backend`). With faults that come later none do, as the rest of a ring after one
        depends on the step in which it came; nor where links have delay or loss, since each step would pay
        the delay.
    log
        Where what happens is written down; by default nowhere.
    checks
        Whether the state is checked when the job has ended (`testbed.core.invariants`).

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
        revisions: Revisions = AS_IT_WAS,
        lit: Configuration | None = None,
        routing: Routing | None = None,
        communicators: Communicators | None = None,
        couples: bool = False,
        log: EventLog | None = None,
        checks: bool = False,
    ) -> None:
        setup = Setup(fabric, job, scheme, circuits, faults, revisions, lit or {}, routing, couples)
        _check(setup)
        self._backend, self._log, self._checks = backend, log, checks
        self.state = State(setup, backend, communicators or Communicators(job))

    def run(self) -> Run:
        """Run the job to its end; return its tables."""
        state = self.state
        self._react(JobBegan())
        self._do_what_is_due()
        while state.graph.open:
            for happening in self._advance():
                state.queue.put(happening.at_ps, happening, NEVER)  # what is now matters in a turn only
            self._do_what_is_due()
        if self._checks:
            check(state)
        return Run(tables_of(state))

    def _do_what_is_due(self) -> None:
        for event in self.state.queue.due(self.state.now_ps):
            self._react(event)

    def _react(self, event: Event) -> None:
        log = self._log
        if log is not None:
            log.begins(self.state, event)
        for reaction in REACTIONS[type(event)]:
            self._carry_out(reaction(self.state, event))
        if log is not None:
            log.ends(self.state)

    def _carry_out(self, steps: Steps) -> None:
        """Carry out a reaction: its steps, one after the other."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Order):
                    answer = step.to(self._backend)
                    if self._log is not None:
                        self._log.order(self.state, step, answer)
                    step = steps.send(answer)
                else:
                    self._react(step)
                    step = next(steps)
        except StopIteration:
            return

    def _advance(self) -> Sequence[Happening]:
        """Let time pass until something happens or an event is due; name standing faults if nothing can."""
        state = self.state
        try:
            return self._backend.advance(state.queue.next_ps)
        except StuckError as stuck:
            if standing := [fault.name for fault in state.failures.standing if not fault.only_impairs]:
                raise StuckError(
                    f"nothing more can arrive after {', '.join(standing)}: {stuck.sentence}",
                    "let it be back, as in @40%-70%, or take a fabric with a way around",
                ) from stuck
            raise


def _check(setup: Setup) -> None:
    """Refuse a job or faults that do not fit; a revision may add nodes from which faults count."""
    fabric, job = setup.fabric, setup.job
    if job.gpus > fabric.gpus:
        raise ScenarioError(
            f"job {job.name!r} is for {job.gpus} GPUs, and the fabric has {fabric.gpus}",
            "take a larger fabric, or a smaller job",
        )
    check_faults(setup.faults, fabric)
    names = {node.name for node in (*job.nodes, *setup.revisions.nodes)}
    for fault in setup.faults:
        if fault.when.node and fault.when.node not in names:
            raise ScenarioError(
                f"fault {fault.name!r} counts from node {fault.when.node!r}, which job {job.name!r} has not",
                f"name one of {', '.join(sorted(names))}",
            )
