"""Several OCSes that begin or flip together, or none of them; and their notices to one socket."""

import json
import socket
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from controller.circuits.circuits import Circuits
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.programs import Day, Program
from tests.controller.fake_switch import FakeSwitch
from tests.controller.played import SECONDS, Controller, eventually, started
from topologies.errors import DemandError, LightrailError, NetworkError
from topologies.parallel_ocs import parallel_ocs_fabric

LONG_S = 1e6
FLIPS = ReconfigurationDelay("panel", 0.05, flip_s=0.001)


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


def connected(controller: Controller, *names: str) -> list[FakeSwitch]:
    """Connect some OCSes and wait until they are proved to be dark."""
    switches = [controller.switch(name) for name in names]

    def proved() -> bool:
        status = controller.client.status()
        return {*names}.isdisjoint((*status.missing, *status.waiting))

    eventually(proved)
    return switches


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
            three.client.show_all(
                {"ocs0": lasting((0, 1)), last: lasting((1, 0))}, notify=tmp_path / "news"
            ).answer()
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
        client.show_all({name: lasting((0, 1), (1, 0)) for name in names}, notify=tmp_path / "news").answer()
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
        three.client.show_all(
            {"ocs0": lasting((0, 1)), "ocs1": lasting((1, 0))}, notify=tmp_path / "news"
        ).answer()
        for _ in range(4):
            news.recv(1 << 16)
        three.client.show("ocs0", "1s 2>3")
        three.client.light("ocs1", "0>3", busy="replace")
        heard = [json.loads(news.recv(1 << 16)) for _ in range(2)]
        assert [(notice["ocs"], notice["circuits"]) for notice in heard] == [("ocs1", []), ("ocs1", [[0, 3]])]


def test_ocses_are_provisioned_in_the_background_and_flipped_together(
    three: Controller, tmp_path: Path
) -> None:
    names = ("ocs0", "ocs1", "ocs2")
    connected(three, *names)
    client = three.client
    client.show_all({name: lasting((0, 1), (1, 0)) for name in names}).answer()
    eventually(lambda: all(client.ocs(name).circuits for name in names))
    for name in names:
        client.set_delay(name, FLIPS)
        asked_s = monotonic()
        status = client.provision(name, "0>1 2>3").answer()
        assert status.shadow_ready_s
        assert status.shadow_ready_s - asked_s >= FLIPS.delay_s
        assert (status.shadow, status.circuits, status.flip_s) == (((0, 1), (2, 3)), ((0, 1), (1, 0)), 0.001)
    eventually(lambda: monotonic() > (client.ocs("ocs2").shadow_ready_s or 0.0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
        news.bind(str(tmp_path / "news"))
        news.settimeout(SECONDS)
        client.flip_all(names, tmp_path / "news").answer()
        heard = [json.loads(news.recv(1 << 16)) for _ in range(6)]
    shown = {notice["ocs"]: notice["circuits"] for notice in heard if notice["until_s"] is not None}
    assert shown == {name: [[0, 1], [2, 3]] for name in names}
    for name in names:
        status, entry = client.ocs(name), client.ocs_log(name)[-1]
        assert (status.shadow, status.busy) == (((0, 1), (1, 0)), False)
        assert (entry.circuits, entry.delay_s, entry.darkened) == (((0, 1), (2, 3)), 0.001, 1)
    client.flip_all(["ocs1"]).answer()
    client.wait_idle("ocs1", SECONDS)
    assert [client.ocs(name).circuits[1] for name in names] == [(2, 3), (1, 0), (2, 3)]


@pytest.mark.parametrize(
    ("last", "kind", "why"),
    [
        (
            "ocs1",
            DemandError,
            r"OCS ocs1 has its shadow ready at [0-9.]+ s, in [0-9.]+ s; provision circuits",
        ),
        ("ocs2", NetworkError, "OCS ocs2 is not connected"),
        ("ocs9", NetworkError, "the fabric has no OCS 'ocs9'"),
    ],
)
def test_several_ocses_flip_all_or_none(
    three: Controller, last: str, kind: type[LightrailError], why: str
) -> None:
    connected(three, "ocs0", "ocs1")
    three.client.provision("ocs0", "0>1").answer()
    three.client.set_delay("ocs1", ReconfigurationDelay("slow", 100.0))
    three.client.provision("ocs1", "0>1").answer()
    with pytest.raises(kind, match=why):
        three.client.flip_all(["ocs0", last]).answer()
    with pytest.raises(DemandError, match=r"notify .*missing"):
        three.client.flip_all(["ocs0"], Path("/missing")).answer()
    assert nothing_began(three, ("ocs0", "ocs1"))


def test_a_switch_that_comes_back_must_be_provisioned_anew(three: Controller) -> None:
    (switch,) = connected(three, "ocs0")
    three.client.provision("ocs0", "0>1").answer()
    switch.__exit__()
    eventually(lambda: "ocs0" in three.client.status().missing)
    connected(three, "ocs0")
    assert (three.client.ocs("ocs0").shadow, three.client.ocs("ocs0").shadow_ready_s) == (None, None)
    with pytest.raises(DemandError, match="OCS ocs0 has nothing provisioned"):
        three.client.flip_all(["ocs0"]).answer()
