"""How one OCS is reconfigured: dark, the device's delay, lit; a state machine to which time is an argument.

    lit ──command──> darkening ──dark on the wire──> dark ──delay passed──> lighting ──lit on the wire──> lit

A switch that refuses any of it ends it there, and so do a proof that fails and a connection that is
lost: a circuit is logged as lit only after it was confirmed, and what waits or would follow is dropped,
because it was asked of an OCS that shows something else.

Each OCS has a second, idle side. Circuits are *provisioned* there while others are lit, in the device's
delay, and a *flip* exchanges the two sides in the device's flip time. A flip does not wait: while the OCS is
darkening, dark or lighting it is refused. It replaces a program, and commands that wait behind a lit day. A
refusal, a failed proof or a lost connection leaves the idle side unknown.

The machine decides and never acts: each call returns orders, which `controller.app.ocs` carries out and
whose ends it reports. All that belongs to one reconfiguration carries its number; what comes late,
for one that was replaced, is ignored.

References
----------
TopoOpt, appendix C: a look-ahead patch panel, and a 1x2 switch at each interface that chooses a panel.
"""

from collections import deque
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Literal

import numpy as np

from controller.circuits.circuits import Circuits, Pair
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.orders import Connect, Darken, Notify, Order, Prepare, Wait
from controller.circuits.programs import Day, Program
from controller.circuits.status import LogEntry, OcsRecord
from topologies.errors import DemandError

Phase = Literal["lit", "darkening", "dark", "lighting"]
LOG_ENTRIES = 100_000
WHEN_TO_FLIP = "provision circuits, and flip once they are ready and nothing is under way"
MOST_WAITING = 1000
"""How many commands wait for their turn at most."""
STAYS_S = 1e6
"""How long what was flipped to is lit, as its notice says: it stays until it is replaced [s]."""
PREPARED_S = 2.0
"""How long before the light what brings it is prepared at most: Open vSwitch forgets a bundle after 10 s."""


@dataclass(frozen=True)
class Command:
    """A wish for circuits."""

    circuits: Circuits
    partial: bool = True
    """Whether circuits that stay the same keep carrying."""
    busy: Literal["queue", "replace"] = "queue"
    """What happens if the OCS is being reconfigured: wait for its turn, or take the place of all that is
    under way. One that replaces starts the device's delay anew."""
    night_s: float = 0.0
    """How long ports stay dark at least [s]; the device's delay if that is longer."""
    lit_s: float | None = None
    """How long it stays lit before the program goes on [s]; None for a command by itself."""
    flips: bool = False
    """Whether the idle side has the circuits, so that the device's flip time passes, not its delay."""


@dataclass(frozen=True)
class Shadow:
    """What the idle side of an OCS shows."""

    circuits: Circuits
    ready_s: float
    """When it is set, on the controller's monotonic clock [s]."""


class OpticalSwitch:
    """One OCS: what it shows, what it is asked for, and what it has done.

    Parameters
    ----------
    ports
        How many ports it has.
    index
        Which of the fabric's OCSes it is: with equal seeds each draws delays of its own.
    """

    def __init__(self, ports: int, index: int = 0) -> None:
        self._index = index
        self.set_delay(ReconfigurationDelay())
        self.phase: Phase = "lit"
        self.lit = Circuits(ports)
        """What is lit on the wire."""
        self.log: deque[LogEntry] = deque(maxlen=LOG_ENTRIES)
        self.number = 0
        """The newest reconfiguration, or program that has not begun."""
        self.error = ""
        """What ended the newest command or program before its time, or its light; empty if nothing."""
        self.shadow: Shadow | None = None
        """What the idle side shows; None if that is unknown."""
        self._waiting: deque[Command] = deque()
        self._program: deque[Day] = deque()
        self._partial = True
        self._command = Command(self.lit)
        self._until_s = 0.0
        self._coming: tuple[Pair, ...] = ()
        """What has yet to be prepared."""
        self._going: dict[int, tuple[Pair, ...]] = {}
        """What each reconfiguration found lit and ordered to go dark, until that is proved."""
        self._unproved: tuple[Pair, ...] = ()
        """What was taken away after a failure, without a proof: the next reconfiguration proves it dark."""
        self._interrupted = False
        """Whether a program ended with the connection, and its subscriber has yet to receive that."""

    def set_delay(self, delay: ReconfigurationDelay, seed: int = 0) -> None:
        """Set how long it is dark from the next reconfiguration on; delays that vary are drawn anew."""
        self.delay = delay
        self._rng = np.random.default_rng([seed, self._index])

    def take_over(self, record: OcsRecord) -> None:
        """Go on as under another controller, nothing being under way; delays that vary are drawn anew."""
        status = record.status
        delay = {each.name: getattr(status, each.name) for each in fields(ReconfigurationDelay)}
        self.set_delay(ReconfigurationDelay(**delay), seed=status.number)
        self.lit = Circuits(self.lit.ports, status.circuits)
        self.number = status.number
        self.log.extend(record.log)
        if status.shadow is not None and status.shadow_ready_s is not None:
            self.shadow = Shadow(Circuits(self.lit.ports, status.shadow), status.shadow_ready_s)

    @property
    def busy(self) -> bool:
        """Whether a reconfiguration or a program is under way."""
        return self.phase != "lit" or self.in_program

    @property
    def in_program(self) -> bool:
        """Whether the program's days are being shown."""
        return self._command.lit_s is not None or bool(self._program)

    @property
    def queued(self) -> int:
        """How many commands wait for their turn."""
        return len(self._waiting)

    def command(self, command: Command, now: float) -> list[Order]:
        """Take a command: begin, let it wait, or let it replace what is under way.

        Raises
        ------
        DemandError
            If `MOST_WAITING` wait already.
        """
        waits = self.busy and command.busy == "queue"
        if waits and self.queued == MOST_WAITING:
            raise DemandError(
                f"{MOST_WAITING} commands wait for this OCS already", "wait until it is idle, or replace them"
            )
        self.error = ""
        if waits:
            self._waiting.append(command)
            return []
        self._program.clear()
        if self.phase == "lighting":  # the light is on its way, nothing stops it; then at once
            self._waiting = deque([command])
            self._command = replace(self._command, lit_s=None)
            return []
        self._waiting.clear()
        return self._begin(command, now)

    def run(self, program: Program, start_s: float, now: float) -> list[Order]:
        """Show a program's days from a time on, replacing what is under way."""
        self.error = ""
        self._program, self._partial = deque(program.days), program.partial
        self._waiting.clear()
        if self.phase == "lighting":  # nothing stops it; then in time
            self._command = replace(self._command, lit_s=max(start_s - now, 0.0))
            return []
        if self.phase != "lit":
            self._stamp(replaced=True)
        self.number += 1
        self.phase = "lit"
        self._command = Command(self.lit, lit_s=0.0)
        return self._wait(start_s, now)

    def provision(self, circuits: Circuits, now: float) -> list[Order]:
        """Set circuits on the idle side, in place of those there; what is lit stays as it is."""
        self.shadow = Shadow(circuits, now + self.delay.draw_s(self._rng))
        return []

    def why_not_flip(self, now: float) -> str:
        """Return why this OCS cannot flip at a time; empty if it can."""
        if self.phase != "lit":
            return f"is being reconfigured ({self.phase})"
        if self.shadow is None:
            return "has nothing provisioned"
        if now < self.shadow.ready_s:
            left_s = self.shadow.ready_s - now
            return f"has its shadow ready at {self.shadow.ready_s:.6f} s, in {left_s:.6f} s"
        return ""

    def flip(self, now: float) -> list[Order]:
        """Exchange the two sides: circuits that both have stay lit, and the former ones are provisioned.

        Raises
        ------
        DemandError
            If `why_not_flip` has a reason.
        """
        reason = self.why_not_flip(now)
        if reason or self.shadow is None:
            raise DemandError(f"this OCS {reason}", WHEN_TO_FLIP)
        self.error = ""
        self._program.clear()
        self._waiting.clear()
        command, self.shadow = Command(self.shadow.circuits, flips=True), Shadow(self.lit, now)
        return self._begin(command, now)

    def confirmed(self, number: int, now: float) -> list[Order]:
        """Go on: what was ordered is on the wire."""
        if number != self.number:
            return []
        if self.phase == "darkening":
            self._going.clear()
            self._unproved = ()
            self._stamp(dark_s=now)
            return self._darkened(now)
        self.lit, self.phase = self._command.circuits, "lit"
        self._stamp(lit_s=now)
        return self._shown(now)

    def woken(self, number: int, now: float) -> list[Order]:
        """Go on: the time of a `Wait` has come."""
        if number != self.number:
            return []
        if self.phase == "dark" and self._coming:
            return self._prepare()
        if now < self._until_s:
            return [Wait(number, self._until_s)]
        if self.phase == "dark":
            self.phase = "lighting"
            return [Connect(number)]
        return self._next(now)

    def refused(self, number: int, error: str, now: float) -> list[Order]:
        """End what is under way if the switch refused a message of it; a bundle changes all or nothing."""
        still_lit = self._going.pop(number, ())
        if newer := [each for each in self._going if each > number]:  # the next takes these away as well
            self._going[newer[0]] += still_lit
            return []
        self.lit = Circuits(self.lit.ports, self.lit.pairs + still_lit)
        return self._failed(number, error, now)

    def unproved(self, number: int, error: str, now: float) -> list[Order]:
        """End the reconfiguration: its rules have changed, but no proof shows that packets follow them."""
        self._unproved += self._going.pop(number, ())
        return self._failed(number, error, now)

    def lost(self, error: str, now: float) -> list[Order]:
        """End everything: the connection has gone, and what is lit is unknown until it is `found`."""
        idle = not (self.busy or self.lit.pairs)
        if self.phase != "lit":
            self._stamp(error=error)
        elif self.lit.pairs:
            self.number += 1
            self.log.append(LogEntry(self.number, (), False, len(self.lit.pairs), 0.0, now, error=error))
        self._going.clear()
        self._unproved = ()
        self.lit = Circuits(self.lit.ports)
        self._interrupted = self._interrupted or self.in_program
        self._stop(self.error if idle else error)
        return [Notify(self.lit, now, None)]

    def found(self, now: float) -> list[Order]:
        """Begin anew: the switch is connected, and proved to be dark."""
        interrupted, self._interrupted = self._interrupted, False
        return [Notify(self.lit, now, None, ended=interrupted)]

    def _failed(self, number: int, error: str, now: float) -> list[Order]:
        if number != self.number or self.phase == "lit":
            return []
        self._stamp(error=error)
        # The part of a bundle that was not refused may be in force by now: take it away.
        withdrawn = () if self.phase == "darkening" else self._missing()
        self._unproved += withdrawn
        orders = [Darken(number, withdrawn)] if withdrawn else []
        self._stop(error)
        return [*orders, Notify(self.lit, now, None, ended=True, error=error)]

    def _stop(self, error: str) -> None:
        """Drop what is under way and what waits."""
        self.number += 1
        self.error = error
        self.shadow = None
        self._program.clear()
        self._waiting.clear()
        self.phase, self._command = "lit", Command(self.lit)

    def _begin(self, command: Command, now: float) -> list[Order]:
        if self.phase != "lit":
            self._stamp(replaced=True)
        self.number += 1
        kept = tuple(pair for pair in self.lit.pairs if command.partial and pair in command.circuits.pairs)
        dark = tuple(pair for pair in self.lit.pairs if pair not in kept)
        self._command, self.lit = command, Circuits(self.lit.ports, kept)
        self.log.append(self._entry(command, len(dark), now))
        self.phase = "darkening"
        self._going[self.number] = dark
        # Also what another command darkened: that is not proved, and may yet be refused.
        going = tuple(dict.fromkeys(chain(*self._going.values(), self._unproved)))
        if going:
            return [Darken(self.number, going)]
        return self.confirmed(self.number, now)

    def _entry(self, command: Command, darkened: int, now: float) -> LogEntry:
        delay_s = 0.0
        if self._missing():
            delay_s = self.delay.flip_s if command.flips else self.delay.draw_s(self._rng)
        return LogEntry(self.number, command.circuits.pairs, command.partial, darkened, delay_s, now)

    def _darkened(self, now: float) -> list[Order]:
        coming = self._missing()
        if not coming:
            self.phase = "lit"
            if self.lit.pairs:
                self._stamp(lit_s=now)
            return self._shown(now)
        self.phase = "dark"
        dark_s = max(self.log[-1].delay_s, self._command.night_s)
        self._until_s = now + dark_s
        self._coming = coming
        notice = Notify(self.lit, now, None)
        if dark_s > PREPARED_S:
            return [notice, Wait(self.number, self._until_s - PREPARED_S)]
        return [notice, *self._prepare()]

    def _missing(self) -> tuple[Pair, ...]:
        """Return what was asked for and is not lit."""
        return tuple(pair for pair in self._command.circuits.pairs if pair not in self.lit.pairs)

    def _prepare(self) -> list[Order]:
        coming, self._coming = self._coming, ()
        return [Prepare(self.number, coming), Wait(self.number, self._until_s)]

    def _shown(self, now: float) -> list[Order]:
        """Return what follows once a command is done."""
        lit_s = self._command.lit_s
        if lit_s is None:
            until_s = now + STAYS_S if self._command.flips else None
            return [Notify(self.lit, now, until_s), *self._next(now)]
        return [Notify(self.lit, now, now + lit_s), *self._wait(now + lit_s, now)]

    def _wait(self, until_s: float, now: float) -> list[Order]:
        self._until_s = until_s
        return [Wait(self.number, until_s)] if until_s > now else self._next(now)

    def _next(self, now: float) -> list[Order]:
        """Go on with the program, darken after its end, or take the next command."""
        if self._program:
            day = self._program.popleft()
            partial = self._partial and not day.night_s
            # A night before a day without circuits: one dark time, as nothing is lit between them.
            lit_s = day.duration_s if day.circuits.pairs else day.night_s + day.duration_s
            command = Command(day.circuits, partial, night_s=day.night_s, lit_s=lit_s)
            return self._begin(command, now)
        if self._command.lit_s is not None:
            orders = self._begin(Command(Circuits(self.lit.ports), partial=False), now)
            return [*orders, Notify(self.lit, now, None, ended=True)]
        return self._begin(self._waiting.popleft(), now) if self._waiting else []

    def _stamp(self, **new: float | bool | str) -> None:
        self.log[-1] = replace(self.log[-1], **new)  # type: ignore[arg-type]  # names of fields
