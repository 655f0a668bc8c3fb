"""OCSes of a booted network whose switches' daemon is away and back, with a northbound played by the test."""

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from controller.circuits.programs import Program
from testbed.core.backend import SetCircuits
from testbed.live.news import News
from testbed.live.ocses import LiveLight
from testbed.network.network import Network
from topologies.events import Provision
from topologies.light import Circuit, duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.transports.loop import Loop

A, B = duplex([(0, 1), (2, 3)]), duplex([(0, 2), (1, 3)])


class Answered:
    """A request that is answered at once."""

    def __init__(self, answer: object = None) -> None:
        self._answer = answer
        self._read, self._write = socket.socketpair()
        self._write.send(b"!")

    def fileno(self) -> int:
        """Return a descriptor that can be read."""
        return self._read.fileno()

    def answer(self) -> object:
        """Return the answer."""
        self._read.close()
        self._write.close()
        return self._answer


class Northbound:
    """A controller whose OCSes light what they are ordered at once, unless their switch is away."""

    def __init__(self) -> None:
        self.is_away = False
        self.lit: dict[str, set[Circuit]] = {}
        self.shadows: dict[str, set[Circuit]] = {}

    def ocs(self, _name: str) -> SimpleNamespace:
        """Return the status of an OCS."""
        assert not self.is_away
        return SimpleNamespace(delay_s=0.0)

    def show_all(self, programs: Mapping[str, Program], path: Path) -> Answered:
        """Light what programs begin with, and report it."""
        assert not self.is_away
        self.lit |= {ocs: set(each.days[0].circuits.pairs) for ocs, each in programs.items()}
        self._report(programs, path)
        return Answered()

    def flip_all(self, names: Sequence[str], path: Path) -> Answered:
        """Exchange the sides of OCSes, and report it."""
        assert not self.is_away
        for ocs in names:
            self.lit[ocs], self.shadows[ocs] = self.shadows[ocs], self.lit[ocs]
        self._report(names, path)
        return Answered()

    def provision(self, name: str, circuits: Sequence[Circuit]) -> Answered:
        """Set the idle side of an OCS."""
        assert not self.is_away
        self.shadows[name] = set(circuits)
        return Answered(SimpleNamespace(name=name, shadow_ready_s=None))

    def _report(self, names: Sequence[str] | Mapping[str, Program], path: Path) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            for ocs in names:
                notice = {"ocs": ocs, "circuits": sorted(self.lit[ocs]), "until_s": 1e9, "ended": False}
                own.sendto(json.dumps(notice | {"error": "", "missed": 0}).encode(), str(path))


def hear(light: LiveLight, news: News) -> None:
    """Read all news."""
    for notice in news.read():
        light.heard(notice)


def test_what_is_ordered_while_switches_are_away_is_lit_and_reported_when_they_are_back(
    tmp_path: Path,
) -> None:
    northbound = Northbound()
    network = SimpleNamespace(fabric=parallel_ocs_fabric(4, 3), northbound=northbound)
    with News(tmp_path / "light.sock") as news, Loop() as loop:
        light = LiveLight(cast(Network, network), loop)
        light.carry_out(SetCircuits({"ocs0": A, "ocs1": A, "ocs2": B}), news.path)
        hear(light, news)
        for ocs, circuits in (("ocs0", B), ("ocs1", B)):
            light.carry_out(Provision(ocs, circuits), news.path)
        light.carry_out(SetCircuits({"ocs0": B}, flips=True), news.path)
        hear(light, news)
        light.settle()
        light.lose_switches()
        northbound.is_away, northbound.lit, northbound.shadows = True, {}, {}
        light.carry_out(SetCircuits({"ocs1": B}, flips=True), news.path)
        light.carry_out(Provision("ocs2", A), news.path)
        light.check_due()
        assert [ocs for ocs, _ in light.provisioned()] == ["ocs0", "ocs1"]
        assert not light.provisioned()
        northbound.is_away = False
        assert light.light_again(news) == {"ocs1": B}
        assert northbound.lit == {"ocs0": set(B), "ocs1": set(B), "ocs2": set(B)}
        assert northbound.shadows == {"ocs0": set(A), "ocs1": set(A), "ocs2": set(A)}
        assert light.provisioned() == [("ocs2", A)]
        assert not light.ordered


def test_orders_go_while_others_have_no_answer_yet_but_those_of_the_same_ocs(tmp_path: Path) -> None:
    heard = list[str]()

    class Heard(Answered):
        def answer(self) -> object:
            heard.append("an answer")
            return super().answer()

    class Hears(Northbound):
        def show_all(self, programs: Mapping[str, Program], _path: Path) -> Answered:
            heard.extend(programs)
            return Heard()

    network = SimpleNamespace(fabric=parallel_ocs_fabric(4, 2), northbound=Hears())
    with Loop() as loop:
        light = LiveLight(cast(Network, network), loop)
        for ocs in ("ocs0", "ocs1", "ocs0"):
            light.carry_out(SetCircuits({ocs: A}), tmp_path)
        assert heard == ["ocs0", "ocs1", "an answer", "ocs0"]
        loop.serve(0.0, counts=False)
        assert heard[4:] == ["an answer"] * 2
        light.settle()
        assert len(heard) == 6, "each is heard once"
