"""Mutants by hand: each makes a run do what cannot be, and the audit says so; without it nothing is found.

A mutant is the real scheme, pattern, transport, controller, backend or runner with one thing changed in it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from testbed.audit.audit import audited
from testbed.audit.finding import Circumstances, Wire
from testbed.core import computing, failures, lanes, placing, sending, simulation
from testbed.core import state as kept
from testbed.core.backend import Arrived, Lead, NetworkOrder
from testbed.core.events import Later, PiecesDone, Queue
from testbed.core.job_graph import JobGraph
from testbed.core.ops import OpTable
from testbed.core.reactions import REACTIONS
from testbed.core.record import Record
from testbed.core.run import Run
from testbed.core.state import Gpus, State
from testbed.core.steps import Steps
from testbed.core.tables import tables_of
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, over_ocses
from testbed.model import backend as predicting
from testbed.model import solved_once as solving
from testbed.model.backend import FluidBackend
from testbed.model.ocses import FluidLight
from testbed.model.predict import predict
from tests.audit.cases import small_runs
from tests.traffic.cases import lent_for
from topologies.events import Show, View
from topologies.fabric import Link
from topologies.light import Circuit
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.routes import Routes
from traffic import delegated, delegation
from traffic.clock import NEVER
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.fan import Fan
from traffic.collectives.node_all_to_all import ExchangeRound, RingAllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.delegated import Delegated
from traffic.delegation import Delegation
from traffic.demand import Demand
from traffic.effects import Slow
from traffic.faults import Fault, When
from traffic.fluid.bundles import Bundle, Bundles
from traffic.fluid.network import FluidNetwork
from traffic.job import Collective, Compute, Job, Node
from traffic.messages import Messages
from traffic.ops import Ops, Part
from traffic.scheme import Placement, Sprayed
from traffic.scheme_setup import WHILE_LIT
from traffic.spraying.policy import QueuePair
from traffic.spread import Spread
from traffic.tables import SOURCES, WIRE, Tables

RUNS = dict(small_runs())
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutant:
    """What is changed, in which run, and which check finds it."""

    run: str
    change: Callable[[Patch], None]
    check: str
    couples: bool = False
    lent_s: float = 0.0


def around(patch: Patch, owner: object, name: str, changed: Callable[..., object]) -> None:
    """Have a method's result be changed: ``changed`` gets it and the method's arguments."""
    method = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **named: changed(method(*args, **named), *args))


def placed(
    patch: Patch, changed: Callable[[Placement], Placement], scheme: type[Sprayed | Spread] = Sprayed
) -> None:
    """Have a scheme's placements changed, and nobody look at them before they are sent."""
    patch.setattr(placing, "placed_by", lambda scheme, view, messages: scheme.place(view, messages))
    around(patch, scheme, "place", lambda found, *_: changed(found))


# Schemes


def loses_half(patch: Patch, scheme: type[Sprayed | Spread] = Sprayed) -> None:
    placed(patch, lambda found: replace(found, bytes=found.bytes // 2), scheme)


def sends_twice(patch: Patch) -> None:
    placed(patch, lambda found: replace(found, bytes=found.bytes * 2))


def end_at_the_next_server(patch: Patch, end: str) -> None:
    """Have an end of each queue pair at a server that neither of its ends is at."""

    def moved(pair: QueuePair) -> QueuePair:
        taken = (pair.source.server, pair.destination.server)
        server = next(server for server in range(4) if server not in taken)
        return replace(pair, **{end: getattr(pair, end)._replace(server=server)})

    placed(patch, lambda found: replace(found, queue_pairs=tuple(map(moved, found.queue_pairs))))


def to_the_next_server(patch: Patch) -> None:
    end_at_the_next_server(patch, "destination")


def from_the_next_server(patch: Patch) -> None:
    end_at_the_next_server(patch, "source")


def swaps_messages(patch: Patch) -> None:
    placed(patch, lambda found: replace(found, bytes=found.bytes[::-1].copy()))


def by_queue_pairs_of_others(patch: Patch) -> None:
    patch.setattr(placing, "of_communicator", lambda found, _number: found)


def delegates(patch: Patch, changed: Callable[[Delegation], Delegation]) -> None:
    around(patch, Delegated, "delegate", lambda found, *_: changed(found))


def gathers_elsewhere(patch: Patch) -> None:
    def turned(found: Delegation) -> Delegation:
        gather = found.gather
        return replace(found, gather=Messages(gather.destination, gather.source, gather.bytes))

    delegates(patch, turned)


def scatters_half(patch: Patch) -> None:
    def halved(found: Delegation) -> Delegation:
        scatter = found.scatter
        return replace(found, scatter=Messages(scatter.source, scatter.destination, scatter.bytes // 2 + 1))

    delegates(patch, halved)


def does_not_scatter(patch: Patch) -> None:
    none = np.zeros(0, dtype=np.int64)
    delegates(patch, lambda found: replace(found, scatter=Messages(none, none, none)))


def scatters_before_all_has_come(patch: Patch) -> None:
    in_stages = delegation.in_stages
    patch.setattr(
        delegated, "in_stages", lambda found, **named: in_stages(found, **{**named, "pipelined": True})
    )


# Patterns


def lowers(patch: Patch, pattern: type, changed: Callable[[Part], Part], *, coupled: bool = False) -> None:
    """Have a pattern lower itself to other operations, of one part; or each of those that are coupled."""
    lower = pattern.lower  # type: ignore[attr-defined]

    def lowered(self: object, view: object = None, **named: bool) -> Ops:
        found: Ops = lower(self, view, **named)
        if any(part.together for part in found.parts) != coupled:
            return found
        return replace(found, parts=tuple(map(changed, found.parts)))

    patch.setattr(pattern, "lower", lowered)


def with_bytes(part: Part, sizes: NDArray[np.int64]) -> Part:
    return replace(part, moves=replace(part.moves, bytes=sizes))


def a_step_too_few(patch: Patch) -> None:
    lower = Ring.lower

    def shorter(self: Ring, view: View | None = None, *, coupled: bool = False) -> Ops:
        found = lower(self, view, coupled=coupled)
        if coupled:
            return found
        (part,) = found.parts
        kept = np.arange(len(part)) < len(part) * 13 // 14
        after = found.after[(found.after < kept.sum()).all(axis=1)]
        return replace(found, parts=(part.select(kept),), after=after)

    patch.setattr(Ring, "lower", shorter)


def half_a_chunk(patch: Patch) -> None:
    lowers(patch, Ring, lambda part: with_bytes(part, part.moves.bytes // 2))


def steps_that_do_not_wait(patch: Patch) -> None:
    around(patch, Ring, "lower", lambda found, *_: replace(found, after=found.after[:0]))


def turned_round(patch: Patch, pattern: type[AllToAll | Fan] = AllToAll) -> None:
    def turned(part: Part) -> Part:
        moves = part.moves
        return replace(part, moves=Messages(moves.destination, moves.source, moves.bytes))

    lowers(patch, pattern, turned)


def shifted(patch: Patch) -> None:
    lowers(patch, AllToAll, lambda part: with_bytes(part, np.roll(part.moves.bytes, 1)))


def a_pair_left_out(patch: Patch) -> None:
    lowers(patch, AllToAll, lambda part: part.select(np.arange(len(part)) != 5))


def a_pair_twice(patch: Patch) -> None:
    def again(part: Part) -> Part:
        columns = (part.moves.source, part.moves.destination, part.moves.bytes)
        return replace(part, moves=Messages(*(np.append(column, column[5]) for column in columns)))

    lowers(patch, AllToAll, again)


def the_last_left_out(patch: Patch) -> None:
    lowers(patch, PointToPoint, lambda part: part.select(np.arange(len(part)) < len(part) - 1))


def equal_steps(patch: Patch) -> None:
    lowers(patch, RingAllToAll, lambda part: with_bytes(part, np.full(len(part), part.moves.bytes[0])))


def a_block_too_few(patch: Patch) -> None:
    lowers(patch, ExchangeRound, lambda part: with_bytes(part, part.moves.bytes * 3 // 4))


def a_coupled_ring_of_half(patch: Patch) -> None:
    lowers(patch, Ring, lambda part: with_bytes(part, part.moves.bytes // 2), coupled=True)


def a_coupled_fan_of_half(patch: Patch) -> None:
    lowers(patch, Fan, lambda part: with_bytes(part, part.moves.bytes // 2), coupled=True)


# Backends


def nics_twice_as_fast(patch: Patch) -> None:
    begin = FluidNetwork.__init__
    patch.setattr(
        FluidNetwork,
        "__init__",
        lambda self, rates, **named: begin(self, [2 * rate for rate in rates], **named),
    )


def nvlink_twice_as_fast(patch: Patch) -> None:
    around(patch, predicting, "nvlink_rates_bps", lambda found, *_: [2 * rate for rate in found])


def arrives_early(patch: Patch) -> None:
    def sooner(found: list[object], *_: object) -> list[object]:
        return [
            replace(each, at_ps=each.at_ps * 9 // 10) if isinstance(each, Arrived) else each for each in found
        ]

    around(patch, FluidBackend, "advance", sooner)


def shines_in_the_dark(patch: Patch) -> None:
    carry_out = FluidBackend.carry_out
    coming = deque[Routes]()

    def at_once(self: FluidBackend, order: NetworkOrder) -> None:
        for ocs, slots in order.programs if isinstance(order, Show) else ():
            coming.extend(Routes(self._fabric, {ocs: slot.circuits}) for slot in slots[1:])
        if isinstance(order, Lead):
            is_dark = not any(map(order.routes.next_nic, self._fabric.nics))
            order = Lead(coming.popleft() if is_dark and coming else order.routes)
        carry_out(self, order)

    patch.setattr(FluidBackend, "carry_out", at_once)


def shows_other_circuits(patch: Patch) -> None:
    turns = count()

    def others(found: object, *_: object) -> object:
        if next(turns):
            return found  # else the job would never end
        circuits: tuple[Circuit, ...] = found.circuits  # type: ignore[attr-defined]
        outputs = [b for _, b in circuits]
        moved = zip((a for a, _ in circuits), outputs[1:] + outputs[:1], strict=True)
        return replace(found, circuits=tuple(moved))  # type: ignore[type-var]

    around(patch, FluidLight, "_show_slot", others)


def sends_over_what_is_cut(patch: Patch) -> None:
    patch.setattr(FluidBackend, "_set_links", lambda _self: None)


def lends_three_times(patch: Patch) -> None:
    lend = FluidNetwork.lend
    patch.setattr(FluidNetwork, "lend", lambda self, lent_bytes: lend(self, 3 * np.asarray(lent_bytes)))


def borrows_in_the_middle(patch: Patch) -> None:
    advance = FluidBackend.advance

    def borrowing(self: FluidBackend, to_ps: int) -> object:
        if self.now_ps > 0 and not self._network.quiet:
            self._network.lend(np.full(len(self._network.link_bps), 1_000_000.0))
        return advance(self, to_ps)

    patch.setattr(FluidBackend, "advance", borrowing)


def a_coupled_flow_in_half_the_time(patch: Patch) -> None:
    start = Bundles.start

    def smaller(self: Bundles, bundles: Iterable[Bundle], *, may_be_alone: bool) -> None:
        halved = list(bundles)
        for bundle in halved:
            bundle.bytes = bundle.bytes // 2
        start(self, halved, may_be_alone=may_be_alone)

    patch.setattr(Bundles, "start", smaller)


def paths_without_their_spine(patch: Patch) -> None:
    around(patch, lanes, "path_now", lambda found, *_: (found[0], found[-1]))


def paths_of_others(patch: Patch) -> None:
    around(patch, lanes, "path_now", lambda _found, _fabric, paths, _pair: next(iter(paths._now.values())))


def sections_at_once(patch: Patch) -> None:
    repeated = solving._Repeated
    around(patch, repeated, "_shifts", lambda found, *_: np.zeros_like(found))


# The runner, and faults


def nothing_waits(patch: Patch) -> None:
    sources = JobGraph.sources

    def all_of_them(self: JobGraph) -> list[Node]:
        self._waits.update(dict.fromkeys(self._waits, 0))
        return sources(self)

    patch.setattr(JobGraph, "sources", all_of_them)


def starts_with_the_first_that_ends(patch: Patch) -> None:
    add = JobGraph._add

    def adding(self: JobGraph, node: Node) -> None:
        add(self, node)
        self._waits[node.name] = min(self._waits[node.name], 1)

    patch.setattr(JobGraph, "_add", adding)


class _Forgets(dict[int, str]):
    """What GPUs compute; of two at once the second to end is not there any more."""

    def __delitem__(self, gpu: int) -> None:
        self.pop(gpu, None)


def starts_at_once(patch: Patch) -> None:
    patch.setattr(kept, "ps", lambda _seconds: 0)


def computes_two_at_once(patch: Patch) -> None:
    patch.setattr(kept, "Gpus", lambda: Gpus(computing=_Forgets()))
    patch.setattr(computing, "_is_busy", lambda _state, _gpu: False)


def computes_in_half_the_time(patch: Patch) -> None:
    around(patch, Compute, "by_duration", lambda found, *_: [(lasts_s / 2, gpus) for lasts_s, gpus in found])


def forgets_that_one_arrived(patch: Patch) -> None:
    def forgetting(state: State) -> Tables:
        ops = state.ops
        ops.end_ps[next(number for number in range(len(ops)) if ops.legs_of(number))] = NEVER
        return tables_of(state)

    patch.setattr(simulation, "tables_of", forgetting)


def ends_before_its_last_message(patch: Patch) -> None:
    def early(state: State, event: PiecesDone) -> Steps:
        row = state.nodes[event.node]
        collective = isinstance(state.graph.nodes[event.node], Collective)
        if collective and row.pieces == 20:
            row.pieces = 1
            yield from sending.pieces_done(state, PiecesDone(event.node))
        elif not collective or row.pieces > 0:
            yield from sending.pieces_done(state, event)

    patch.setitem(REACTIONS, PiecesDone, (early,))


def waiting_for_light_does_not_count(patch: Patch) -> None:
    send = sending._send

    def later(state: State, node: Collective) -> Steps:
        state.nodes[node.name].since_ps = state.now_ps
        yield from send(state, node)

    patch.setattr(sending, "_send", later)


def a_cut_is_not_noted(patch: Patch) -> None:
    patch.setattr(Record, "link", lambda _self, *_args, **_named: None)


def a_slowed_link_as_fast_as_before(patch: Patch) -> None:
    set_link = FluidBackend._set_link
    patch.setattr(
        FluidBackend, "_set_link", lambda self, port, state: set_link(self, port, replace(state, rate=1.0))
    )


def a_slowed_link_is_noted_as_a_whole_one(patch: Patch) -> None:
    link_of = Record.link

    def noting(self: Record, link: Link, at_ps: int, *, rate_bps: float, up: bool, known: bool) -> None:
        assert rate_bps <= link.rate_bps
        link_of(self, link, at_ps, rate_bps=link.rate_bps, up=up, known=known)

    patch.setattr(Record, "link", noting)


def the_last_effect_alone(patch: Patch) -> None:
    states_of_links = failures.states_of_links
    patch.setattr(
        failures, "states_of_links", lambda fabric, faults: states_of_links(fabric, list(faults)[-1:])
    )


def never_happens(patch: Patch) -> None:
    patch.setattr(failures, "_count_from", lambda _state, _node: None)


def timers_in_half_the_time(patch: Patch) -> None:
    put = Queue.put

    def sooner(self: Queue, at_ps: int, event: Later, now_ps: int) -> None:
        put(self, now_ps + (at_ps - now_ps) // 2, event, now_ps)

    patch.setattr(Queue, "put", sooner)


def what_comes_back_counts_twice(patch: Patch) -> None:
    returned = OpTable.returned

    def staying(self: OpTable, number: int, over: int, size: int, at_ps: int, *, whole: bool) -> int:
        leg = self.on(number, over)
        lacks = returned(self, number, over, size, at_ps, whole=whole)
        if leg >= 0:
            self.legs.bytes[leg] += lacks
        return lacks

    patch.setattr(OpTable, "returned", staying)


def half_of_what_comes_back_is_sent(patch: Patch) -> None:
    around(patch, OpTable, "returned", lambda found, *_: found // 2 + 1)


def goes_on_before_what_takes_its_place(patch: Patch) -> None:
    put = JobGraph.replace

    def early(self: JobGraph, names: list[str], nodes: list[Node]) -> list[Node]:
        waiting = [then for name in names for then in self._then.get(name, [])]
        ready = put(self, names, nodes)
        self._waits.update(dict.fromkeys(waiting, 0))
        return [*ready, *(self.nodes[name] for name in waiting)]

    patch.setattr(JobGraph, "replace", early)


def the_old_gpus_go_on(patch: Patch) -> None:
    patch.setattr(failures, "renumbered", lambda node, _places: node)
    for file in (failures, sending):
        patch.setattr(file, "lose", lambda _state, _numbers: [])


MUTANTS: Mapping[str, Mutant] = {
    "scheme: half of each parcel": Mutant("uniform, rails", loses_half, "bytes"),
    "scheme: each parcel twice": Mutant("uniform, rails", sends_twice, "bytes"),
    "scheme: half of what is spread": Mutant(
        "TopoOpt, shortest paths", partial(loses_half, scheme=Spread), "bytes"
    ),
    "scheme: to the next server": Mutant("uniform, ecmp", to_the_next_server, "paths"),
    "scheme: from the next server": Mutant("uniform, ecmp", from_the_next_server, "paths"),
    "scheme: bytes of other messages": Mutant("slow ring", swaps_messages, "bytes"),
    "scheme: queue pairs of another communicator": Mutant(
        "beside each other", by_queue_pairs_of_others, "consistency"
    ),
    "scheme: gathers the wrong way": Mutant("region, servers of GPUs", gathers_elsewhere, "bytes"),
    "scheme: scatters half": Mutant("region, servers of GPUs", scatters_half, "bytes"),
    "scheme: does not scatter": Mutant("region, servers of GPUs", does_not_scatter, "bytes"),
    "scheme: scatters early": Mutant("region, servers of GPUs", scatters_before_all_has_come, "causality"),
    "pattern: a step too few": Mutant("ring both ways", a_step_too_few, "bytes"),
    "pattern: half a chunk": Mutant("all-gather", half_a_chunk, "bytes"),
    "pattern: steps do not wait": Mutant("reduce-scatter", steps_that_do_not_wait, "causality"),
    "pattern: demand turned round": Mutant("step", turned_round, "bytes"),
    "pattern: a fan turned round": Mutant(
        "TopoOpt, coin change", partial(turned_round, pattern=Fan), "bytes"
    ),
    "pattern: a coupled fan of half": Mutant(
        "TopoOpt, shortest paths", a_coupled_fan_of_half, "bytes", couples=True
    ),
    "pattern: demand shifted": Mutant("step", shifted, "bytes"),
    "pattern: a pair left out": Mutant("uniform, ecmp", a_pair_left_out, "bytes"),
    "pattern: a pair twice": Mutant("uniform, ecmp", a_pair_twice, "bytes"),
    "pattern: the last message left out": Mutant("point to point", the_last_left_out, "bytes"),
    "pattern: equal steps": Mutant("ring all-to-all", equal_steps, "bytes"),
    "pattern: a block too few": Mutant("binary exchange", a_block_too_few, "bytes"),
    "pattern: a coupled ring of half": Mutant(
        "ring both ways", a_coupled_ring_of_half, "bytes", couples=True
    ),
    "backend: NICs twice as fast": Mutant("step", nics_twice_as_fast, "capacity"),
    "backend: NVLink twice as fast": Mutant("ring both ways", nvlink_twice_as_fast, "capacity"),
    "backend: arrives early": Mutant("uniform, rails", arrives_early, "capacity"),
    "backend: shines in the dark": Mutant("schedule, one OCS", shines_in_the_dark, "capacity"),
    "backend: shows other circuits": Mutant("schedule, one OCS", shows_other_circuits, "consistency"),
    "backend: sends over what is cut": Mutant("NIC, known late", sends_over_what_is_cut, "capacity"),
    "backend: lends three times": Mutant("uniform, rails", lends_three_times, "bounds", lent_s=1e-5),
    "backend: borrows in the middle": Mutant("uniform, ecmp", borrows_in_the_middle, "capacity"),
    "backend: half the time alone": Mutant(
        "ring both ways", a_coupled_flow_in_half_the_time, "capacity", couples=True
    ),
    "backend: paths without their spine": Mutant("slow ring", paths_without_their_spine, "paths"),
    "backend: paths of others": Mutant("uniform, ecmp", paths_of_others, "paths"),
    "backend: equal sections at once": Mutant("repeated", sections_at_once, "causality"),
    "runner: nothing waits": Mutant("step", nothing_waits, "causality"),
    "runner: waits for one of two": Mutant("step", starts_with_the_first_that_ends, "causality"),
    "runner: starts before its time": Mutant("starts", starts_at_once, "causality"),
    "runner: two computes at once": Mutant("two tasks", computes_two_at_once, "causality"),
    "runner: computes in half the time": Mutant("step", computes_in_half_the_time, "causality"),
    "runner: forgets an arrival": Mutant("uniform, rails", forgets_that_one_arrived, "bytes"),
    "runner: ends before its last message": Mutant("step", ends_before_its_last_message, "causality"),
    "runner: waiting for light does not count": Mutant(
        "region, block", waiting_for_light_does_not_count, "causality"
    ),
    "fault: a cut is not noted": Mutant("uplink, back", a_cut_is_not_noted, "consistency"),
    "fault: a slowed link as fast as before": Mutant(
        "NIC, slowed", a_slowed_link_as_fast_as_before, "capacity"
    ),
    "fault: a slowed link is noted as a whole one": Mutant(
        "NIC, slowed", a_slowed_link_is_noted_as_a_whole_one, "consistency"
    ),
    "fault: the last effect alone": Mutant("NIC, slowed twice", the_last_effect_alone, "consistency"),
    "fault: never happens": Mutant("NIC", never_happens, "consistency"),
    "fault: all timers in half the time": Mutant("NIC, known late", timers_in_half_the_time, "consistency"),
    "fault: what comes back counts twice": Mutant("uplink", what_comes_back_counts_twice, "bytes"),
    "fault: half of what comes back": Mutant("NIC", half_of_what_comes_back_is_sent, "bytes"),
    "fault: goes on before its place is taken": Mutant(
        "GPU, revised", goes_on_before_what_takes_its_place, "causality"
    ),
    "fault: the old GPUs go on": Mutant("region, GPU moved", the_old_gpus_go_on, "bytes"),
}


def _more_runs() -> dict[str, Experiment]:
    """Return runs besides the small ones: a ring over spines, equal steps, and two tasks on a GPU."""
    step = RUNS["step"]
    ring = Ring(((0, 3, 4, 7, 2, 5, 6, 1),), 8_000_000)
    slow = Job("ring", 8, (Collective("ring", ring), Collective("again", AllToAll(_ones(8)), ("ring",))))
    nodes = tuple(
        node
        for turn in range(3)
        for node in (
            Compute(f"{turn}", tuple(range(8)), 1e-4, (f"all {turn - 1}",) if turn else ()),
            Collective(f"all {turn}", AllToAll(_ones(8)), (f"{turn}",)),
        )
    )
    tasks = (Compute("one", (0, 1), 1e-4), Compute("other", (0,), 2e-4))
    return {
        "slow ring": replace(step, job=slow, scheme="ecmp"),
        "repeated": replace(step, job=Job("repeated", 8, nodes)),
        "schedule, one OCS": _on_one_ocs(),
        "NIC, known late": replace(
            RUNS["NIC"], faults=(replace(RUNS["NIC"].faults[0], detect_s=2e-3, when=When("first", 2e-4)),)
        ),
        "NIC, slowed": replace(RUNS["NIC"], faults=(_slow("slow", 0.25, 2e-4),)),
        "NIC, slowed twice": replace(
            RUNS["NIC"], faults=(_slow("once", 0.25, 2e-4), _slow("again", 0.5, 3e-4))
        ),
        "two tasks": replace(step, job=Job("tasks", 8, tasks)),
    }


def _slow(name: str, rate: float, after_s: float) -> Fault:
    """Return a fault that slows the NIC which fails in another run."""
    return Fault(name, (Slow(RUNS["NIC"].faults[0].ports, rate),), When("second", after_s), 1e-4)


def _on_one_ocs() -> Experiment:
    """Return a schedule in which each message has one lane, so that what that carried is known."""
    fabric = parallel_ocs_fabric(6, 1)
    owed = np.random.default_rng(2).integers(1, 200_000_000, (6, 6))
    circuits = Scheduled("spectra", ReconfigurationDelay("delay", 1e-3))
    return Experiment(
        fabric, over_ocses(Demand("drawn", owed), 1), WHILE_LIT, Dilation(2.5e-4, 1.0), circuits=circuits
    )


def _ones(gpus: int) -> Demand:

    return Demand("drawn", np.random.default_rng(1).integers(1, 3_000_000, (gpus, gpus)))


ALL = RUNS | _more_runs()


def run_of(mutant: Mutant) -> Run:
    experiment = ALL[mutant.run]
    lent_bytes = lent_for(experiment.fabric, mutant.lent_s) if mutant.lent_s else {}
    return predict(experiment, couples=mutant.couples, lent_bytes=lent_bytes)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_unsound_and_a_row_proves_it(name: str, monkeypatch: Patch) -> None:
    mutant = MUTANTS[name]
    before = run_of(mutant).audit
    assert before is not None
    assert before.findings == ()
    mutant.change(monkeypatch)
    found = run_of(mutant)
    assert found.audit is not None
    assert mutant.check in {finding.check for finding in found.audit.findings}, found.audit.findings
    for finding in found.audit.findings:
        assert -1 <= finding.row < len(getattr(found.tables, finding.table))


def test_there_are_as_many_as_promised() -> None:
    assert len(MUTANTS) + len(TRANSPORTS) >= 25


# Transports are no part of the model: what they did is in the tables of sources and of the wire.

WIRED = Circumstances(live=True, wire=Wire(1.0, 9000, 0.0))


def counted(run: Run, factor: float) -> pd.DataFrame:
    """Return what ports count that send so many times the bytes of the legs."""
    legs, paths = run.tables.legs, run.tables.paths
    sent: dict[int, int] = {}
    numbers = {port: number for number, port in enumerate(ports_of(run))}
    for path, size in zip(legs["path"], legs["bytes"], strict=True):
        for port in paths[path] if path >= 0 else ():
            sent[numbers[port]] = sent.get(numbers[port], 0) + int(size)
    rows = [
        (port, int(size * factor) + 66 * -(-size // 8948), -(-size // 8948), 0) for port, size in sent.items()
    ]
    return pd.DataFrame(rows, columns=list(WIRE)).astype(WIRE)


def ports_of(run: Run) -> tuple[object, ...]:
    return tuple(dict.fromkeys(port for path in run.tables.paths for port in path))


def sources(run: Run, factor: float, over_window_bytes: int = -1) -> pd.DataFrame:
    """Return a source per lane, which sent so many times what it was granted.

    The last one has sent a packet with so many bytes beyond its window on the way.
    """
    legs = run.tables.legs[run.tables.legs["lane"] >= 0]
    sent = legs.groupby("lane")["bytes"].sum()
    table = pd.DataFrame(dict.fromkeys(SOURCES, -1), index=range(len(sent))).astype(SOURCES)
    table = table.assign(lane=sent.index.to_numpy(), at_ps=0, sent_bytes=sent.to_numpy())
    table.loc[len(table) - 1, "over_window_bytes"] = over_window_bytes
    return table.assign(granted_bytes=(table["sent_bytes"] / factor).astype(int) if factor else -1)


TRANSPORTS: Mapping[str, tuple[str, Callable[[Run], pd.DataFrame], str]] = {
    "sends all twice": ("wire", lambda run: counted(run, 2.0), "paths"),
    "delivers what was not sent": ("wire", lambda run: counted(run, 0.5), "paths"),
    "sends beyond what was granted": ("sources", lambda run: sources(run, 1.34), "protocols"),
    "sends a little beyond": ("sources", lambda run: sources(run, 1.03), "protocols"),
    "sends beyond its window": ("sources", lambda run: sources(run, 0, 1), "protocols"),
    "sends beyond its window what was granted": ("sources", lambda run: sources(run, 1, 9000), "protocols"),
}


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_transport_that_breaks_its_word_is_unsound(name: str) -> None:
    table, rows, check = TRANSPORTS[name]
    experiment = RUNS["uniform, rails"]
    run = predict(experiment)
    tables = replace(run.tables, ports=ports_of(run), **{table: rows(run)})  # type: ignore[arg-type]
    found = audited(tables, experiment.job, experiment.fabric, WIRED)
    assert {finding.check for finding in found.findings} == {check}


@pytest.mark.parametrize(("factor", "over_window_bytes"), [(1.0, -1), (1.009, 0), (0, 0), (0, -1)])
def test_a_transport_that_keeps_it_is_not(factor: float, over_window_bytes: int) -> None:
    experiment = RUNS["uniform, rails"]
    run = predict(experiment)
    tables = replace(
        run.tables,
        ports=ports_of(run),  # type: ignore[arg-type]
        wire=counted(run, factor or 1.0),
        sources=sources(run, factor, over_window_bytes),
    )
    assert audited(tables, experiment.job, experiment.fabric, WIRED).findings == ()


@pytest.mark.parametrize(("share", "checks"), [(0.1, set()), (0.01, {"capacity"})])
def test_what_was_on_its_way_as_paths_changed_is_not_held_against_links(
    share: float, checks: set[str]
) -> None:
    experiment = RUNS["uniform, rails"]
    tables = predict(experiment).tables
    inside, legs = (tables.legs[(tables.legs["lane"] >= 0) == outside] for outside in (False, True))
    middle_ps = (legs["first_ps"] + legs["last_ps"]) // 2
    first = legs["bytes"] // 2 - legs["bytes"] // 10  # so much less than half of it had arrived
    after = legs.assign(first_ps=middle_ps, bytes=legs["bytes"] - first)
    halves = pd.concat([inside, legs.assign(last_ps=middle_ps, bytes=first), after], ignore_index=True)
    on_the_way = round(share * legs["bytes"].max())
    known = replace(WIRED, wire=Wire(1.0, 9000, 0.0, on_the_way))
    found = audited(replace(tables, legs=halves, leg_blocks=None), experiment.job, experiment.fabric, known)
    assert {finding.check for finding in found.findings} == checks
