"""Several OCSes that begin together, or none of them; and their notices to one socket."""

import json
import socket
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.circuits.circuits import Circuits
from controller.circuits.programs import Day, Program
from tests.controller.played import SECONDS, Controller, eventually, started
from topologies.errors import DemandError, LightrailError, NetworkError
from topologies.parallel_ocs import parallel_ocs_fabric

LONG_S = 1e6


def lasting(*pairs: tuple[int, int]) -> Program:
    """Return a program of one day that does not end."""
    return Program((Day(Circuits(4, pairs), LONG_S),))


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Controller]:
    """Start a controller of three OCSes; none is connected."""
    with started(tmp_path, parallel_ocs_fabric(4, 3)) as controller:
        yield controller


def nothing_began(controller: Controller, names: tuple[str, ...]) -> bool:
    """Return whether OCSes have an empty log and nothing under way."""
    client = controller.client
    return not any(client.ocs_log(name) or client.ocs(name).busy for name in names)


def connected(controller: Controller, *names: str) -> None:
    """Connect some OCSes and wait until they are proved to be dark."""
    for name in names:
        controller.switch(name)
    eventually(lambda: not controller.client.status().waiting)


@pytest.mark.parametrize(
    ("last", "bound", "kind", "why"),
    [
        ("ocs2", True, NetworkError, "OCS ocs2 is not connected"),
        ("ocs9", True, NetworkError, "the fabric has no OCS 'ocs9'"),
        ("ocs1", False, DemandError, "notify .*news: No such file"),
    ],
)
def test_programs_of_several_ocses_begin_all_or_none(
    three: Controller, tmp_path: Path, last: str, bound: bool, kind: type[LightrailError], why: str
) -> None:
    connected(three, "ocs0", "ocs1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
        if bound:
            news.bind(str(tmp_path / "news"))
        with pytest.raises(kind, match=why):
            three.client.show_all({"ocs0": lasting((0, 1)), last: lasting((1, 0))}, notify=tmp_path / "news")
    assert nothing_began(three, ("ocs0", "ocs1"))


def test_the_notices_of_48_ocses_to_one_unread_socket_all_come(tmp_path: Path) -> None:
    with (
        started(tmp_path, parallel_ocs_fabric(4, 48)) as controller,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news,
    ):
        client, names = controller.client, [switch.name for switch in controller.fabric.switches]
        controller.switches()
        client.wait_ready(SECONDS)
        news.bind(str(tmp_path / "news"))
        news.settimeout(SECONDS)
        before = controller.threads()
        client.show_all({name: lasting((0, 1), (1, 0)) for name in names}, notify=tmp_path / "news")
        eventually(lambda: all(client.ocs(name).circuits for name in names))
        assert controller.threads() < before + 20, "one waits for room, and the northbound has some"
        heard = defaultdict[str, list[object]](list)
        while sum(map(len, heard.values())) < 2 * len(names):
            notice = json.loads(news.recv(1 << 16))
            heard[notice["ocs"]].append((notice["circuits"], notice["until_s"] is None, notice["missed"]))
        shown = [([], True, 0), ([[0, 1], [1, 0]], False, 0)]
        assert heard == dict.fromkeys(names, shown)


def test_a_subscriber_in_common_is_kept_until_none_of_its_ocses_is_left(
    three: Controller, tmp_path: Path
) -> None:
    connected(three, "ocs0", "ocs1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
        news.bind(str(tmp_path / "news"))
        news.settimeout(SECONDS)
        three.client.show_all({"ocs0": lasting((0, 1)), "ocs1": lasting((1, 0))}, notify=tmp_path / "news")
        for _ in range(4):
            news.recv(1 << 16)
        three.client.show("ocs0", "1s 2>3")
        three.client.light("ocs1", "0>3", busy="replace")
        heard = [json.loads(news.recv(1 << 16)) for _ in range(2)]
        assert [(notice["ocs"], notice["circuits"]) for notice in heard] == [("ocs1", []), ("ocs1", [[0, 3]])]
