"""When programs are over: after their slots, or as soon as nothing that is missing can use what is lit."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from controller.circuits.programs import Program
from testbed.experiment.dilation import Dilation
from testbed.live import programs as live_programs
from testbed.live.news import News, NowShown
from testbed.live.programs import LAST_S, LAST_SHARE, LINGER_S, LivePrograms
from testbed.network.network import Network
from topologies.events import Show, TimedCircuits
from topologies.fabric import Nic
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.packets import DEFAULT_MTU
from traffic.scheme_setup import WHILE_LIT
from traffic.transports.loop import Arrival

FABRIC = parallel_ocs_fabric(4, 1, rate_bps=100e9)
HERE, THERE = ((0, 1), (1, 0)), ((2, 3), (3, 2))
REAL_S, DILATION = 0.01, Dilation(2e-4, 2e-3)
DELAY_S = 0.03
BEGAN_S = 1000.0


class Northbound:
    """A controller that shows nothing, and writes down what it is asked for."""

    def __init__(self) -> None:
        self.shown: list[Program] = []
        self.darkened: list[str] = []

    def wait_ready(self, *_: object, **__: object) -> None:
        """Be ready."""

    def show(self, _ocs: str, program: Program, _begins_at: float, _notify: Path) -> None:
        """Write a program down."""
        self.shown.append(program)

    def light(self, ocs: str, circuits: str, **_: object) -> None:
        """Write down what goes dark."""
        assert circuits == "-"
        self.darkened.append(ocs)


class _Lanes:
    """Lanes that come to nothing."""

    missing_bytes, busy = 0, False

    def lit(self, ocs: str, outputs: Mapping[Nic, Nic], until_s: float, now_s: float) -> None:
        """Carry nothing."""

    def ended(self, ocs: str, now_s: float) -> None:
        """Carry nothing."""

    def end(self) -> None:
        """Carry nothing."""

    def turn(self) -> list[Arrival]:
        """Return that nothing arrived."""
        return []


class Shown:
    """An OCS of four servers that shows two slots, by a clock of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._lit = BEGAN_S, 0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(live_programs, "time", clock)
        self.northbound = Northbound()
        network = SimpleNamespace(
            fabric=FABRIC,
            mtu=DEFAULT_MTU,
            northbound=self.northbound,
            check_alive=lambda: None,
            datagrams_at=lambda _port: None,
        )
        self._news = SimpleNamespace(path=Path("news"), read=list)
        ocs_of = dict.fromkeys(FABRIC.nics, "ocs0")
        self.programs = LivePrograms(
            cast(Network, network), DILATION, ocs_of, WHILE_LIT, lambda _nic: 100e9 * DILATION.rate
        )
        self.lanes = _Lanes()
        monkeypatch.setattr(self.programs, "lanes", self.lanes)
        self.show(HERE, THERE)

    def show(self, *slots: tuple[tuple[int, int], ...]) -> None:
        """Have slots shown."""
        timed = tuple(TimedCircuits(circuits, REAL_S) for circuits in slots)
        self.programs.show(Show((("ocs0", timed),)), cast(News, self._news))

    def lit(self) -> float:
        """Let the next of the slots be lit; return until when."""
        program = self.northbound.shown[-1]
        day = program.days[self._lit]
        self._lit += 1
        until_s = self.now + DELAY_S + day.duration_s
        self.now += DELAY_S
        self.programs.heard(NowShown("ocs0", day.circuits.pairs, until_s, False), 0, 1)
        return until_s


def test_a_last_slot_is_not_waited_for_that_nothing_missing_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch)
    shown.lanes.missing_bytes = 1000  # by the time that its slot's news came, it was over
    shown.now = shown.lit()
    until_s = shown.lit()
    lasts_s = shown.northbound.shown[0].days[0].duration_s
    assert until_s - shown.now == pytest.approx(lasts_s * (1 + LAST_SHARE) + LAST_S)
    began_s, shown.now = shown.now, shown.now + lasts_s - 0.001
    assert shown.programs.turn() == ([], []), "as long as planned it is lit"
    shown.now = began_s + lasts_s + 0.001
    assert shown.programs.turn() == ([], ["ocs0"])
    assert shown.now < until_s - LAST_S
    assert shown.programs.left_over == [1000]
    shown.show(HERE)
    assert shown.northbound.darkened == ["ocs0"], "before the clean-up round"


def test_a_last_slot_is_waited_for_that_lights_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch)
    shown.lanes.missing_bytes, shown.lanes.busy = 1000, True
    shown.now = shown.lit()
    until_s = shown.lit()
    shown.now = until_s - 0.01
    assert shown.programs.turn() == ([], [])
    shown.now = until_s
    shown.programs.heard(NowShown("ocs0", (), None, True), 0, None)
    shown.now = until_s + 2 * LINGER_S
    assert shown.programs.turn() == ([], ["ocs0"])
    shown.show(THERE)
    assert shown.northbound.darkened == []
