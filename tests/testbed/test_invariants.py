"""Invariants of the state: they hold after each event of drawn runs, and mutants of the core break them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain

import pytest

from testbed.core import circuits, computing, failures, simulation
from testbed.core.events import Later, PiecesDone, Queue
from testbed.core.invariants import check
from testbed.core.lane_table import Lane, LaneTable
from testbed.core.ocses import Ocses
from testbed.core.ops import OpTable
from testbed.core.reactions import REACTIONS
from testbed.core.run import Run
from testbed.core.state import State
from testbed.core.steps import Steps
from testbed.experiment.running import CHECKS
from testbed.model.predict import predict
from tests.audit.carried_out import Case
from tests.audit.cases import small_runs
from tests.audit.digests import ALONE, came_of, cases, late, scale_of
from tests.audit.drawn_faults import drawn_faults
from tests.audit.drawn_light import drawn_light

Patch = pytest.MonkeyPatch
QUICK = (
    "changes 1",
    "programs 1",
    "forwarding 5",
    "panel 2",
    "packets 11",
    "revised 4",
    "region of NICs 3",
    "MoE without a NIC",
    "drained, there and back",
    "region of moves 1",
)
"""Runs of each kind that do not take long."""
PARTS = 12
"""All runs are carried out in so many parts."""


class Watched(Queue):
    """A queue that has the state checked after each event that it yields."""

    def __init__(self, state: State, grain_bytes: int, seen: list[Later]) -> None:
        super().__init__()
        self._state, self._grain_bytes, self._seen = state, grain_bytes, seen

    def due(self, now_ps: int) -> Iterator[Later]:
        for event in super().due(now_ps):
            yield event
            self._seen.append(event)
            check(self._state, grain_bytes=self._grain_bytes)


def watch(patch: Patch, grain_bytes: int = 1) -> list[Later]:
    """Have the states of all runs checked from now on; return the events after which they were."""
    seen = list[Later]()

    class Checked(State):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            self.queue = Watched(self, grain_bytes, seen)

    patch.setattr(simulation, "State", Checked)
    return seen


def watch_live(patch: Patch, case: Case) -> list[Later]:
    """Do so where a run goes over a backend that is late."""
    found = came_of(case)
    return watch(patch, (scale_of(found.tables) if isinstance(found, Run) else ALONE).grain_bytes)


@cache
def drawn() -> Mapping[str, Case]:
    return dict(chain(drawn_light(), drawn_faults()))


@pytest.mark.parametrize("name", QUICK)
def test_the_state_is_whole_after_each_event(name: str, monkeypatch: Patch) -> None:
    case = drawn()[name]
    seen = watch(monkeypatch)
    came_of(case)
    assert seen


@pytest.mark.parametrize("name", QUICK[::2])
def test_so_it_is_over_a_backend_that_is_late(name: str, monkeypatch: Patch) -> None:
    case = drawn()[name]
    seen = watch_live(monkeypatch, case)
    late(case)
    assert seen


@pytest.mark.slow
@pytest.mark.parametrize("creeps", [False, True])
@pytest.mark.parametrize("part", range(PARTS))
def test_so_it_is_in_all_runs(part: int, creeps: bool) -> None:
    for name, case in list(cases())[part::PARTS]:
        with Patch.context() as patch:
            seen = watch_live(patch, case)
            late(case, creeps=creeps)
        assert seen, name


@pytest.mark.slow
def test_so_it_is_where_flows_are_coupled(monkeypatch: Patch) -> None:
    seen = watch(monkeypatch)
    for _, experiment in small_runs():
        predict(experiment, couples=True)
    assert seen


# Mutants


@dataclass(frozen=True)
class Mutant:
    """A change, the run in which it is made, and what is broken by it."""

    run: str
    change: Callable[[Patch], None]
    broken: str


def instead(patch: Patch, owner: object, name: str, changed: Callable[..., object]) -> None:
    """Have a function changed: ``changed`` gets it before its arguments."""
    own = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **named: changed(own, *args, **named))


def lanes_stand_for_ever(patch: Patch) -> None:
    """Forget to release lanes when their change is over."""

    def kept(end: Callable[..., object], ocses: Ocses, change: object) -> object:
        standing = [(lane, set(lane.held_by)) for lane in change.lanes.values()]  # type: ignore[attr-defined]
        found = end(ocses, change)
        for lane, held_by in standing:
            lane.held_by |= held_by
        return found

    instead(patch, Ocses, "end", kept)


def closed_lanes_are_held(patch: Patch) -> None:
    patch.setattr(Ocses, "let_go", lambda _self, lane: bool(lane.held_by))


def closed_lanes_are_lit(patch: Patch) -> None:
    def kept(close: Callable[..., None], lanes: LaneTable, lane: Lane) -> None:
        close(lanes, lane)
        if lane.is_light:
            lanes.light[lane.number] = lane

    instead(patch, LaneTable, "close", kept)


def a_piece_counts_twice(patch: Patch) -> None:
    def twice(put: Callable[..., None], state: State, number: int, *args: int) -> None:
        put(state, number, *args)
        state.ops.pieces[number] += 1

    instead(patch, State, "put", twice)


def dark_bytes_are_lost(patch: Patch) -> None:
    instead(patch, OpTable, "lighten", lambda lighten, ops: lighten(ops)[1:])


def half_comes_back(patch: Patch) -> None:
    instead(patch, OpTable, "returned", lambda returned, *args, **named: returned(*args, **named) // 2)


def paths_are_not_booked(patch: Patch) -> None:
    patch.setattr(OpTable, "moved", lambda *_args: None)


def waits_twice(patch: Patch) -> None:
    def twice(wait: Callable[..., None], ops: OpTable, before: int, then: int) -> None:
        wait(ops, before, then)
        ops.waits[then] += 1

    instead(patch, OpTable, "wait", twice)


def nothing(_state: State, *_args: object) -> Steps:
    return
    yield


def changes_do_not_begin(patch: Patch) -> None:
    patch.setattr(circuits, "_begin_waiting", nothing)


def changes_overtake(patch: Patch) -> None:
    def any_of_them(ocses: Ocses, _names: Iterable[str]) -> list[object]:
        return [change for change in ocses.changes.values() if not (change.has_begun or change.is_flip)]

    patch.setattr(Ocses, "may_begin", any_of_them)


def held_for_ever(patch: Patch) -> None:
    patch.setattr(circuits, "_release_held", lambda _state: [])


def nothing_is_done(patch: Patch) -> None:
    patch.setitem(REACTIONS, PiecesDone, ())


def gpus_compute_once(patch: Patch) -> None:
    patch.setattr(computing, "_compute_next", nothing)


def links_stay_whole(patch: Patch) -> None:
    def forgotten(set_links: Callable[..., Steps], state: State, fault: object) -> Steps:
        yield from set_links(state, fault)
        state.failures.links.clear()
        state.failures.links.update(dict.fromkeys(state.fabric.link_at.values(), failures.HEALTHY))

    instead(patch, failures, "_set_links", forgotten)


def what_is_given_up_has_pieces(patch: Patch) -> None:
    patch.setattr(failures, "_give_up", lambda _state, _names: None)


MUTANTS: Mapping[str, Mutant] = {
    "lanes stand for ever": Mutant("changes 1", lanes_stand_for_ever, "which does not hold it"),
    "closed lanes are held": Mutant("drained, cut", closed_lanes_are_held, "which does not stand for it"),
    "closed lanes are lit": Mutant("drained, cut", closed_lanes_are_lit, "lanes over circuits are"),
    "a piece counts twice": Mutant("packets 11", a_piece_counts_twice, "has 2 pieces: 1 on legs"),
    "dark bytes are lost": Mutant("drained, cut", dark_bytes_are_lost, "is nowhere"),
    "half comes back": Mutant("MoE without a NIC", half_comes_back, "bytes somewhere"),
    "paths are not booked": Mutant("forwarding 5", paths_are_not_booked, "on which it has no leg"),
    "waits twice": Mutant("revised 4", waits_twice, "have not ended"),
    "changes do not begin": Mutant("changes 1", changes_do_not_begin, "may begin, and have not"),
    "changes overtake": Mutant("changes 1", changes_overtake, "before change"),
    "held for ever": Mutant("changes 1", held_for_ever, "waits for OCSes that are not busy"),
    "nothing is done": Mutant("packets 11", nothing_is_done, "operations that have not ended"),
    "GPUs compute once": Mutant("revised 4", gpus_compute_once, "is idle, and is to compute"),
    "links stay whole": Mutant("MoE without a NIC", links_stay_whole, "for the backend, and by what stands"),
    "what is given up has pieces": Mutant(
        "ring without a GPU", what_is_given_up_has_pieces, "9 pieces, and 0 operations"
    ),
}


def test_an_experiment_has_its_state_checked_where_that_is_asked_for(monkeypatch: Patch) -> None:
    experiment = dict(small_runs())["region, block"]
    lanes_stand_for_ever(monkeypatch)
    predict(experiment)
    monkeypatch.setenv(CHECKS, "1")
    with pytest.raises(AssertionError, match="the state of the run is broken: lane"):
        predict(experiment)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_breaks_the_state(name: str, monkeypatch: Patch) -> None:
    mutant = MUTANTS[name]
    case = drawn()[mutant.run]
    watch(monkeypatch)
    mutant.change(monkeypatch)
    with pytest.raises(AssertionError, match=mutant.broken):
        came_of(case)
