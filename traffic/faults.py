"""Faults: what fails in a run and when it is back, and what becomes of the job then."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Port
from traffic.compose import renumbered
from traffic.effects import (
    Daemon,
    Down,
    Effect,
    Gone,
    LinkState,
    check_effect,
    daemon_states,
    gpu_states,
    link_states,
)
from traffic.job import LONGEST_S, Job, Node

Moves = tuple[tuple[int, int], ...]
"""GPUs that are gone, each with the GPU that takes its place."""


@dataclass(frozen=True)
class When:
    """When a fault comes, and when it is over."""

    node: str = ""
    """The node from whose start the time counts; empty for the start of the job."""
    after_s: float = 0.0
    """How long after it the fault comes [s]."""
    lasts_s: float | None = None
    """How long until it is over [s]; None if it stays."""


@dataclass(frozen=True)
class Fault:
    """What fails at once, some time after a node of the job has started, and may be back later.

    Raises
    ------
    LightrailError
        If nothing fails, an effect is none or improves something, a time is negative or too long, or it is
        back before it fails.
    """

    name: str
    """What tables call it."""
    effects: tuple[Effect, ...]
    """What it changes while it stands, in this order."""
    when: When = When()
    """When it comes."""
    detect_s: float = 0.0
    """How long after that everybody knows, and as long after it is back [s]."""

    def __post_init__(self) -> None:
        """Check the effects and the times, and that GPUs stay away."""
        when = self.when
        for effect in self.effects:
            check_effect(effect)
        if not (self.links or self.gpus or self.daemon):
            raise ScenarioError(
                f"nothing fails by fault {self.name!r}", "name ports, GPUs (these for good) or a daemon"
            )
        if len(daemon_states(self.effects)) > 1:
            raise ScenarioError(f"fault {self.name!r} is of two daemons", "give each a fault of its own")
        times_s = (when.after_s, self.detect_s, when.lasts_s or 0.0)
        if not all(0 <= time_s <= LONGEST_S for time_s in times_s) or when.lasts_s == 0:
            raise ScenarioError(
                f"fault {self.name!r} comes after {when.after_s:g} s, lasts {when.lasts_s} s and is known "
                f"{self.detect_s:g} s later",
                f"give times from 0 to {LONGEST_S:g} s, and let it last",
            )
        if self.gpus and when.lasts_s:
            raise ScenarioError(
                f"fault {self.name!r} takes GPUs along, and is over after {when.lasts_s:g} s",
                "a job does not get GPUs back: let it stay, or let their NICs fail",
            )

    @cached_property
    def links(self) -> dict[Port, LinkState]:
        """What becomes of the link at each of its ports by this fault alone."""
        return link_states(self.effects, lambda port: port)

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """One end of each link that goes down."""
        return tuple(port for port, state in self.links.items() if not state.up)

    @cached_property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs that are gone, for good.

        What they compute does not end and, once that is known, what they owe or are owed is not delivered,
        unless a revision moves it.
        """
        return tuple(gpu for gpu, state in gpu_states(self.effects).items() if not state.up)

    @cached_property
    def daemon(self) -> Daemon | None:
        """The process that is killed, and started again."""
        states = daemon_states(self.effects)
        return next((daemon for daemon, state in states.items() if not state.up), None)

    @property
    def loses(self) -> bool:
        """Whether links lose packets by it."""
        return any(state.loss for state in self.links.values())

    @property
    def only_impairs(self) -> bool:
        """Whether all works on, and links do so worse: nothing is led around them."""
        return not (self.ports or self.gpus or self.daemon)

    @property
    def is_standing(self) -> bool:
        """Whether links are changed for good and that is known before anything is sent, and no more fails."""
        at_once = not self.when.node and self.when.after_s == self.detect_s == 0
        return at_once and self.when.lasts_s is None and not (self.gpus or self.daemon)


def cut(
    name: str,
    ports: Sequence[Port],
    node: str = "",
    after_s: float = 0.0,
    detect_s: float = 0.0,
    lasts_s: float | None = None,
    *,
    gpus: Sequence[int] = (),
) -> Fault:
    """Return a fault that takes links down, and GPUs along; parameters are those of `Fault` and `When`."""
    down: tuple[Effect, ...] = (Down(tuple(ports)),) if ports else ()
    gone = (Gone(tuple(gpus)),) if gpus else ()
    return Fault(name, (*down, *gone), When(node, after_s, lasts_s), detect_s)


def check_faults(faults: Sequence[Fault], fabric: Fabric) -> None:
    """Check that faults go together and with a fabric.

    Raises
    ------
    ScenarioError
        If one is of a port or a GPU that is not there, two have one name, or the controller fails in a run
        in which switches would need it.
    """
    for fault in faults:
        if missing := [port for port in fault.links if port not in fabric.link_at]:
            raise ScenarioError(f"fault {fault.name!r} is of port {missing[0]}, which has no link")
        if missing_gpus := [gpu for gpu in fault.gpus if not 0 <= gpu < fabric.gpus]:
            raise ScenarioError(f"fault {fault.name!r} is of GPU {missing_gpus[0]}, of {fabric.gpus}")
    names = [fault.name for fault in faults]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ScenarioError(f"fault {twice[0]!r} is there twice", "give each a name of its own")
    needed = any(fault.ports or fault.daemon == "switches" for fault in faults)
    if needed and any(fault.daemon == "controller" for fault in faults):
        raise ScenarioError(
            "the controller fails in a run in which switches need it, to lead around other faults",
            "let it fail in a run of its own",
        )


@dataclass(frozen=True)
class KnownRevision:
    """Changes in a job once a fault is known, as they are known before the run."""

    fault: str
    """The fault's name."""
    cancel: tuple[str, ...] = ()
    """Collectives that are given up; what they still owe is not sent."""
    add: Job | None = None
    """Nodes that take their place, as a job: what waited for those given up waits for the last of these."""
    moves: Moves = ()
    """GPUs that others take the place of, in all that has not ended: collectives under way begin again, and
    so does what such a GPU computes; what it has ended stays done."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that it adds."""
        return self.add.nodes if self.add else ()


@dataclass(frozen=True)
class Revisions:
    """What becomes of a job by each of some faults; by others it goes on as it was.

    Raises
    ------
    ScenarioError
        If there are two for one fault.
    """

    known: tuple[KnownRevision, ...] = ()

    def __post_init__(self) -> None:
        """Refuse two for one fault."""
        names = [each.fault for each in self.known]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ScenarioError(f"fault {twice[0]!r} revises the job twice", "keep one of the revisions")

    def of(self, fault: Fault) -> KnownRevision:
        """Return the changes by a fault, which may be none."""
        return next((each for each in self.known if each.fault == fault.name), KnownRevision(fault.name))

    def leaves(self, fault: Fault) -> bool:
        """Return whether the job goes on as it was after a fault."""
        return all(each.fault != fault.name for each in self.known)

    @property
    def moves(self) -> dict[str, Moves]:
        """The GPUs that change places by each fault, if any do."""
        return {each.fault: each.moves for each in self.known if each.moves}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes that may be added."""
        return tuple(node for each in self.known for node in each.nodes)


AS_IT_WAS = Revisions()
"""A job that goes on as it was, whatever fails."""


def moved(job: Job, moves: Moves) -> Job:
    """Return a job in which other GPUs take the place of some.

    Raises
    ------
    ScenarioError
        If a GPU that takes a place has one, or takes two, or does not exist.
    """
    busy = {gpu for node in job.nodes for gpu in node.gpus}
    backups = [backup for _, backup in moves]
    if len(dict(moves)) < len(moves):
        raise ScenarioError("a GPU is moved twice by one fault", "name one GPU that takes its place")
    for gpu, backup in moves:
        if backup in busy or backups.count(backup) > 1 or not 0 <= backup < job.gpus:
            raise ScenarioError(
                f"GPU {backup} is to take the place of GPU {gpu}, and has another or is not there",
                "take a GPU of the fabric that the job leaves idle",
            )
    gone = {gpu for gpu, _ in moves}
    places = places_after(moves, job.gpus)
    return replace(
        job,
        nodes=tuple(node if gone.isdisjoint(node.gpus) else renumbered(node, places) for node in job.nodes),
    )


def places_after(moves: Moves, gpus: int) -> list[int]:
    """Return the GPU that has the place of each of so many."""
    taken = dict(moves)
    return [taken.get(gpu, gpu) for gpu in range(gpus)]
