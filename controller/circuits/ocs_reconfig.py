"""OCS-reconfig: every period the circuits of a panel follow what servers owe each other just then.

A look at what is owed comes a first time after `OcsReconfig.first_s`, then once a period. It counts bytes of
messages that have started: what a collective will owe later it cannot know, which misleads it near the end
of one. If nothing is owed, or a change before is not over yet, circuits stay. While no collective is under
way nobody looks; the next look then comes when it would have come anyway. If nothing has moved for a period
the same circuits are ordered once more, which darkens none: a scheme may give up lanes that lost their route
only when light has changed again.

Circuits that stay keep their ports and carry on while others drain and are dark. The paper pauses all flows
meanwhile, so this one is the better for it. What is known to have failed is not looked at.

References
----------
TopoOpt (NSDI 2023), section 5.1, figure 17, appendix E.4 and F; its artifact's ``dyn_net_sch``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.rule import HasNodes, Rule
from controller.schedulers.ocs_reconfig import (
    DISCOUNTS,
    EXPONENTIAL,
    NO_DISCOUNT,
    Pair,
    connected,
    random_circuits,
    reconfigured,
)
from topologies.errors import ScenarioError
from topologies.events import Event, NodeDone, NodeStarted, Order, Reconfigure, SetTimer, TimerFired, View
from topologies.fabric import Fabric
from topologies.light import Circuit

PERIOD = 5
"""The period in delays: dark for one, lit for four."""
LONGEST_FIRST_S = 1e-3
"""The latest that the first look comes [real s]."""
LOOK = TimerFired("look at what is owed")
ROUNDED = 1e-6
"""The share of a period by which the clock may be late."""


@dataclass(frozen=True)
class OcsReconfig:
    """Circuits of one panel by what is owed; the first are a random regular graph that is connected.

    Raises
    ------
    ScenarioError
        If a time is negative, the period is not positive, or there is no such discount.

    Notes
    -----
    An emulation needs duplex circuits: TCP's acknowledgements come back over them, and the scheme "once lit"
    asks for light both ways in a prediction too. Directed ones are for predictions, of schemes that take
    light one way.

    Under the scheme "routed" a message stays on its two NICs as long as a route joins these, so new circuits
    serve later messages only, and one of several parallel circuits does. With ``anew`` the scheme of
    `traffic.spread` places what is left over all of them. Rings of a prediction run step by step under
    these schemes, as what moves together keeps its lanes.
    """

    delay_s: float = 10e-3
    """How long circuits that change are dark [real s]."""
    period_s: float | None = None
    """How often what is owed is looked at [real s]; None for `PERIOD` delays."""
    forwards: bool = True
    """Whether servers forward, so that circuits connect all of them; if not, a pair without one waits."""
    discount: str = EXPONENTIAL
    """What further circuits of a pair are worth (`controller.schedulers.ocs_reconfig.DISCOUNTS`)."""
    duplex: bool = True
    """Whether a circuit carries both ways; if not, a NIC may send to one server and receive from another."""

    def __post_init__(self) -> None:
        """Check that there is a period, and a discount."""
        if self.delay_s < 0 or self.every_s <= 0:
            raise ScenarioError(
                f"a delay of {self.delay_s:g} s, and a period of {self.every_s:g} s",
                "give a positive period (period_s) where the delay is none",
            )
        if self.discount not in DISCOUNTS:
            raise ScenarioError(f"unknown discount {self.discount!r}", f"take one of {', '.join(DISCOUNTS)}")

    @property
    def every_s(self) -> float:
        """The period [real s]."""
        return PERIOD * self.delay_s if self.period_s is None else self.period_s

    @property
    def first_s(self) -> float:
        """When the first look comes after the job began [real s]."""
        return min(self.delay_s, LONGEST_FIRST_S)

    def bind(self, *, fabric: Fabric, job: HasNodes, scale: object, seed: int) -> Rule:
        """Return what the runner asks.

        Parameters
        ----------
        fabric
            Equal servers, all of whose NICs are on one OCS.
        job
            What it sends; while it only computes nothing is decided.
        scale
            Of the emulation; all times are real ones.
        seed
            Of the first circuits, which free ports join later too.

        Raises
        ------
        ScenarioError
            If the fabric is another, or its servers do not forward or have too few NICs to.
        """
        panel, ports = _panel_of(fabric)
        degree = len(ports[0])
        if self.forwards and not (fabric.servers_forward and (degree > 1 or len(ports) < 3)):
            raise ScenarioError(
                f"servers of {degree} NICs on {fabric.name!r} are to forward",
                "take servers of 2 NICs or more that do (Fabric.servers_forward), or forwards=False",
            )
        start = random_circuits(len(ports), degree, np.random.default_rng(seed), duplex=self.duplex)
        computes = {node.name for node in job.nodes} - {node.name for node in job.collectives}
        decides = PanelByOwed(self, panel, ports, start, frozenset(computes))
        first = {panel: on_ports(start, ports, (), duplex=self.duplex)}
        return Rule(decides, {panel: ReconfigurationDelay("OCS-reconfig", self.delay_s)}, first)


SIP_ML = OcsReconfig(delay_s=25e-6, forwards=False, discount=NO_DISCOUNT)
"""SiP-ML as TopoOpt has it: Algorithm 5 without a discount and no relaying, 25 us dark. TopoOpt's is directed
(``replace(SIP_ML, duplex=False)``); here acknowledgements come back, unless a prediction has no need of them.

References
----------
TopoOpt, section 5.1 and appendix F.
"""


@dataclass(frozen=True)
class Remembered:
    """What is remembered between events."""

    first_s: float
    """When the first look is due."""
    sending: int = 0
    """How many collectives are under way."""
    is_set: bool = False
    """Whether the next look has its timer."""
    owed: bytes = b""
    """What was owed at the last look."""


@dataclass(frozen=True, eq=False)
class PanelByOwed:
    """Decides the circuits of one panel; pure."""

    rule: OcsReconfig
    panel: str
    ports: tuple[tuple[int, ...], ...]
    """The panel's ports of each server's NICs."""
    spare: tuple[Pair, ...]
    """What free ports join first, so that they change seldom."""
    computes: frozenset[str]
    """The nodes that send nothing."""

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return what is remembered after an event, and what is ordered."""
        watch = state if isinstance(state, Remembered) else Remembered(view.now_s + self.rule.first_s)
        orders = list[Order]()
        if isinstance(event, NodeStarted | NodeDone) and event.node not in self.computes:
            more = 1 if isinstance(event, NodeStarted) else -1
            watch = replace(watch, sending=watch.sending + more)
        elif event == LOOK:
            owed = view.owed()
            orders += self._changes(view, owed, has_moved=owed.tobytes() != watch.owed)
            watch = replace(watch, is_set=False, owed=owed.tobytes())
        if watch.sending and not watch.is_set:
            wait_s = self.rule.every_s if event == LOOK else self._wait_s(watch, view.now_s)
            watch = replace(watch, is_set=True)
            orders.append(SetTimer(LOOK.name, wait_s))
        return watch, orders

    def _wait_s(self, watch: Remembered, now_s: float) -> float:
        """Return how long it is until the next look is due."""
        periods = max(0, ceil((now_s - watch.first_s) / self.rule.every_s - ROUNDED))
        return max(0.0, watch.first_s + periods * self.rule.every_s - now_s)

    def _changes(self, view: View, owed: NDArray[np.int64], *, has_moved: bool) -> list[Order]:
        """Return the order of the circuits for what is owed, unless they are there and serve."""
        if view.light_is_coming or not owed.any():
            return []
        rule, before = self.rule, view.ordered.get(self.panel, ())
        pairs = reconfigured(
            owed, len(self.ports[0]), duplex=rule.duplex, discount=rule.discount, spare=self.spare
        )
        if rule.forwards:
            pairs = connected(
                pairs, owed, servers=len(self.ports), duplex=rule.duplex, discount=rule.discount
            )
        circuits = on_ports(pairs, self.ports, before, duplex=rule.duplex)
        stay = has_moved and set(circuits) == set(before)
        return [] if stay else [Reconfigure({self.panel: circuits})]


def on_ports(
    pairs: Iterable[Pair],
    ports: Sequence[Sequence[int]],
    lit: Iterable[Circuit],
    *,
    duplex: bool = True,
) -> tuple[Circuit, ...]:
    """Return the circuits of a panel for pairs of servers, one-way.

    Parameters
    ----------
    pairs
        Servers, once per circuit; none has more than its ports.
    ports
        The panel's ports of each server.
    lit
        What the panel shows: circuits whose pair is still there keep their ports; others get the lowest free.
    duplex
        Whether each joins two ports both ways.

    Returns
    -------
    tuple
        In order of their inputs.
    """
    server = {port: index for index, own in enumerate(ports) for port in own}
    wanted = [(min(pair), max(pair)) if duplex else pair for pair in pairs]
    left, shown = Counter(wanted), sorted(lit)
    back = set(shown)
    circuits = list[Circuit]()
    for a, b in shown:
        pair = (server[a], server[b])
        is_one = not duplex or (pair[0] < pair[1] and (b, a) in back)
        if is_one and left[pair] > 0:
            left[pair] -= 1
            circuits.append((a, b))
    sends = _free(ports, circuits, duplex, 0)
    receives = sends if duplex else _free(ports, circuits, duplex, 1)
    for pair in wanted:
        if left[pair] > 0:
            left[pair] -= 1
            circuits.append((sends[pair[0]].pop(0), receives[pair[1]].pop(0)))
    return tuple(sorted([*circuits, *((b, a) for a, b in circuits)] if duplex else circuits))


def _free(
    ports: Sequence[Sequence[int]], circuits: Iterable[Circuit], duplex: bool, end: int
) -> Mapping[int, list[int]]:
    """Return the ports of each server that circuits leave free at one end; duplex ones take both."""
    taken = {port for circuit in circuits for port in (circuit if duplex else (circuit[end],))}
    return {server: [port for port in own if port not in taken] for server, own in enumerate(ports)}


def _panel_of(fabric: Fabric) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Return the one OCS of a fabric, and its ports of each server's NICs."""
    ends = [fabric.peer(fabric.nic_port(nic)) for nic in fabric.nics]
    panels = {end.node for end in ends}
    ocses = {switch.name for switch in fabric.switches if switch.kind == "ocs"}
    if len(panels) != 1 or not panels <= ocses or len({server.nics for server in fabric.servers}) != 1:
        raise ScenarioError(
            f"the servers of {fabric.name!r} are not equal, with all NICs on one OCS",
            "take topologies.patch_panel",
        )
    (panel,) = panels
    nics = fabric.servers[0].nics
    return panel, tuple(tuple(end.number for end in ends[at : at + nics]) for at in range(0, len(ends), nics))
