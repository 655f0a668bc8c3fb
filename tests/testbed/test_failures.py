"""Random faults in a run: at every instant all is as the list of faults says, and nothing is said twice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import pytest

from testbed.core.backend import Expect, KnowRates, Lead, NetworkOrder, SetDaemon, SetLink
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.model.backend import FluidBackend
from topologies.fabric import Link, Port
from topologies.rail import rail_fabric
from traffic.clock import ps
from traffic.effects import (
    DaemonState,
    Down,
    Effect,
    Gone,
    GpuEffect,
    Killed,
    LinkEffect,
    LinkState,
    Lossy,
    Slow,
)
from traffic.faults import Fault, When
from traffic.job import Compute, Job
from traffic.scheme import Sprayed
from traffic.spraying.registry import policy_named

FABRIC = rail_fabric(3, 2, spines=1)
TIMELINES = 200
ENDS_S, STEP_S = 1.0, 0.05
LINKS, NICS = {link.a: link for link in FABRIC.links}, {FABRIC.nic_port(nic): nic for nic in FABRIC.nics}


@dataclass(frozen=True)
class Fades:
    """Halves a whole link, and takes a slower one down when little is left: not the same in every order."""

    ports: tuple[Port, ...]

    def on(self, state: LinkState) -> LinkState:
        """Return what is left."""
        rate = state.rate * (0.5 if state.rate == 1 else 0.8)
        return LinkState(state.up and rate > 0.3, rate, state.loss)


class Recording(FluidBackend):
    """Records what it is given, and that it differs from what it had."""

    def __init__(self) -> None:
        super().__init__(FABRIC, {})
        self.given: list[tuple[int, object, object]] = []
        """When it got what for what."""
        self._last: dict[object, object] = {}

    def note(self, what: object, state: object, at_first: object) -> None:
        """Record a state."""
        assert state != self._last.get(what, at_first)
        self._last[what] = state
        self.given.append((self.now_ps, what, state))

    def carry_out(self, order: NetworkOrder) -> None:
        """Record an order: of a link by its one fixed end."""
        if isinstance(order, SetLink):
            self.note(LINKS[order.port], order.state, LinkState())
        elif isinstance(order, SetDaemon):
            self.note(order.daemon, order.state, DaemonState())
        elif isinstance(order, Expect):
            self.note("expects back", order.back, False)
        elif isinstance(order, KnowRates):
            self.note("rates", dict(order.shares), {})
        elif isinstance(order, Lead) and order.failed is not None:  # which may be said again
            self.given.append((self.now_ps, "failed", order.failed))
        super().carry_out(order)


def timeline(random: Random) -> tuple[Fault, ...]:
    """Return random faults of one to three effects each; those of GPUs are for good."""
    faults = []
    for number in range(random.randint(1, 9)):
        effects = [_effect(random) for _ in range(random.choice([1, 1, 1, 2, 3]))]
        for_good = any(isinstance(effect, Gone) for effect in effects) or random.random() < 0.3
        lasts_s = None if for_good else STEP_S * random.randint(1, 8)
        when = When(random.choice(["", "long"]), STEP_S * random.randint(0, 16), lasts_s)
        detect_s = STEP_S * random.choice([0, 1, 2, 6])
        faults.append(Fault(str(number), tuple(effects), when, detect_s))
    return tuple(faults)


def _effect(random: Random) -> Effect:
    few = sorted(FABRIC.link_at)[:6]  # so that faults meet on a link
    ports = tuple(random.sample(random.choice([few, sorted(FABRIC.link_at)]), random.randint(1, 3)))
    makers: Sequence[Callable[[], Effect]] = (
        lambda: Down(ports),
        lambda: Slow(ports, random.choice([0.1, 0.5, 0.9])),
        lambda: Lossy(ports, random.choice([0.01, 0.5])),
        lambda: Fades(ports),
        lambda: Gone((random.randint(1, FABRIC.gpus - 1),)),
        lambda: Killed("switches"),
    )
    return random.choice(makers)()


def run(faults: Sequence[Fault], backend: FluidBackend) -> Run:
    job = Job("drawn", FABRIC.gpus, (Compute("long", tuple(range(FABRIC.gpus)), ENDS_S),))
    scheme = Sprayed(lambda: policy_named("ecmp"), 0, 1 << 20)
    return Simulation(FABRIC, job, backend, scheme, faults=faults).run()


# What the list of faults says


def standing(faults: Sequence[Fault], at_ps: int) -> list[Fault]:
    return [
        f for f in faults if ps(f.when.after_s) <= at_ps and (f.when.lasts_s is None or at_ps < _end_ps(f))
    ]


def known(faults: Sequence[Fault], at_ps: int) -> list[Fault]:
    found = [f for f in faults if ps(f.when.after_s) + ps(f.detect_s) <= at_ps]
    return [
        f
        for f in found
        if f.when.lasts_s is None or (f.detect_s < f.when.lasts_s and at_ps < _end_ps(f) + ps(f.detect_s))
    ]


def _end_ps(fault: Fault) -> int:
    return ps(fault.when.after_s) + ps(fault.when.lasts_s or 0.0)


def states(faults: Sequence[Fault]) -> dict[Link, LinkState]:
    found = dict.fromkeys(FABRIC.links, LinkState())
    for fault in sorted(faults, key=lambda fault: (fault.when.after_s, fault.when.node)):
        for effect in fault.effects:
            if isinstance(effect, LinkEffect):
                for link in {FABRIC.link_at[port] for port in effect.ports}:
                    found[link] = effect.on(found[link])
    return found


def down(faults: Sequence[Fault]) -> set[object]:
    dark = {link for link, state in states(faults).items() if not state.up}
    killed = any(isinstance(effect, Killed) for fault in faults for effect in fault.effects)
    return dark | ({"switches"} if killed else set())


def expected(faults: Sequence[Fault], at_ps: int) -> dict[object, object]:
    """Return all that the backend has to have been given by a time."""
    now = standing(faults, at_ps)
    learned = {
        NICS[end]: state.rate
        for link, state in states(known(faults, at_ps)).items()
        for end in (link.a, link.b)
        if end in NICS and state.up and state.rate < 1
    }
    links: dict[object, object] = dict(states(now).items())
    return links | {
        "failed": FABRIC.both_ends(link.a for link in down(known(faults, at_ps)) if isinstance(link, Link)),
        "switches": DaemonState("switches" not in down(now)),
        "expects back": bool(down(now) - down([fault for fault in now if fault.when.lasts_s is None])),
        "rates": learned,
    }


@pytest.mark.parametrize("seed", range(TIMELINES))
def test_at_every_instant_all_is_as_the_faults_say(seed: int) -> None:
    faults, backend = timeline(Random(seed)), Recording()
    found = run(faults, backend)
    times_ps = {
        ps(f.when.after_s) + ps(more_s) + ps(detect_s)
        for f in faults
        for more_s in (0.0, f.when.lasts_s or 0.0)
        for detect_s in (0.0, f.detect_s)
    }
    for at_ps in sorted(time_ps for time_ps in times_ps if time_ps < ps(ENDS_S)):
        given = {what: state for when_ps, what, state in backend.given if when_ps <= at_ps}
        assert expected((), at_ps) | given == expected(faults, at_ps)
        check_links(found, faults, at_ps)
    gone = {
        gpu
        for fault in standing(faults, ps(ENDS_S))
        for effect in fault.effects
        if isinstance(effect, GpuEffect)
        for gpu in effect.gpus
    }
    assert set(found.tasks["gpu"]) == set(range(FABRIC.gpus)) - gone


def check_links(found: Run, faults: Sequence[Fault], at_ps: int) -> None:
    """Check the table of links at a time: rates, what is up, and whether the job knows."""
    table, ports = found.tables.links, found.tables.ports
    rows = {
        LINKS[ports[port]]: tuple(row)
        for port, when_ps, *row in table.itertuples(index=False, name=None)
        if when_ps <= at_ps
    }
    now, told = states(standing(faults, at_ps)), states(known(faults, at_ps))
    for link, state in now.items():
        row = link.rate_bps * state.rate, state.up, state == told[link]
        assert rows.get(link, (link.rate_bps, True, True)) == row
