"""A switch whose connection is lost: what it shows is unknown, and nothing is reported that is not proved."""

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from controller.app.client import ControllerClient
from controller.circuits.devices import ReconfigurationDelay
from tests.controller.fake_daemon import obliging
from tests.controller.fake_switch import FakeSwitch
from tests.controller.played import SECONDS, Controller, eventually, started
from topologies.errors import DemandError, NetworkError
from topologies.parallel_ocs import parallel_ocs_fabric

OCS, DELAY_S = "ocs0", 10.0
LOST = "the connection to OCS ocs0 was lost, and with it what was under way or lit"
ABSENT = "OCS ocs0 is not connected"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    with started(tmp_path, parallel_ocs_fabric(4, 1)) as controller:
        yield controller


@pytest.fixture
def ocs(controller: Controller) -> FakeSwitch:
    switch = controller.switch(OCS)
    controller.client.wait_ready(SECONDS)
    return switch


def absent(client: ControllerClient) -> bool:
    """Return whether the northbound says that the OCS is not connected."""
    try:
        client.ocs(OCS)
    except NetworkError as error:
        return ABSENT in str(error)
    return False


def reconfiguring(controller: Controller) -> None:
    """Have a reconfiguration of 10 s be under way."""
    controller.client.set_delay(OCS, ReconfigurationDelay("slow", DELAY_S))
    controller.client.light(OCS, "0>1 1>0")
    eventually(lambda: controller.client.ocs(OCS).phase == "dark")


def test_wait_idle_says_that_the_connection_was_lost(controller: Controller, ocs: FakeSwitch) -> None:
    reconfiguring(controller)
    ocs.__exit__()
    with pytest.raises(NetworkError, match=re.escape(ABSENT)):
        controller.client.wait_idle(OCS, SECONDS)
    assert absent(controller.client)
    with pytest.raises(NetworkError, match=re.escape(ABSENT)):
        controller.client.light(OCS, "0>1")
    (entry,) = controller.client.ocs_log(OCS)
    assert (entry.lit_s, entry.error) == (None, LOST)


def test_wait_idle_says_so_too_where_the_switch_is_back_already(
    controller: Controller, ocs: FakeSwitch
) -> None:
    reconfiguring(controller)
    controller.switch(OCS)  # the new connection comes before the old one's end
    eventually(lambda: [entry.error for entry in controller.client.ocs_log(OCS)] == [LOST])
    eventually(lambda: controller.client.status().ready and not absent(controller.client))
    with pytest.raises(NetworkError, match=re.escape(LOST)):
        controller.client.wait_idle(OCS, SECONDS)
    status = controller.client.ocs(OCS)
    assert (status.circuits, status.busy, status.error) == ((), False, LOST)
    controller.client.set_delay(OCS, ReconfigurationDelay())
    controller.client.light(OCS, "0>1")
    assert controller.client.wait_idle(OCS, SECONDS).circuits == ((0, 1),)


def test_a_controller_that_takes_over_leaves_an_ocs_as_it_was(tmp_path: Path) -> None:
    delay, file = ReconfigurationDelay("quick", 0.01), tmp_path / "ocses.json"
    for directory in ("old", "new"):
        (tmp_path / directory).mkdir()
    with started(tmp_path / "old", parallel_ocs_fabric(4, 1)) as old:
        switch = old.switch(OCS)
        old.client.wait_ready(SECONDS)
        old.client.set_delay(OCS, delay)
        old.client.provision(OCS, "2>3 3>2").answer()
        old.client.light(OCS, "0>1 1>0")
        old.client.wait_idle(OCS, SECONDS)
        record = old.client.ocs_record(OCS)
        file.write_text(json.dumps([asdict(record)]))
    kept = dict(switch.flows)
    with started(tmp_path / "new", parallel_ocs_fabric(4, 1), "--ocses", str(file)) as new:
        again = FakeSwitch(new.openflow, switch.datapath_id, switch.ports, flows=dict(kept))
        new.connect(again)
        new.client.wait_ready(SECONDS)
        assert new.client.ocs_record(OCS) == record
        assert again.flows == kept
        assert again.told[:5] == ["clear", "flow", "flow", "flow", "barrier"]  # circuits in one step
        new.client.flip_all([OCS]).answer()
        new.client.wait_idle(OCS, SECONDS)
        assert [entry.number for entry in new.client.ocs_log(OCS)] == [1, 2]
        new.switch(OCS)
        eventually(lambda: again.ended.is_set() and not absent(new.client))
        assert new.client.ocs(OCS).circuits == ()  # of a connection that is lost later nothing is kept


def test_circuits_that_were_lit_are_unknown_until_the_switch_is_proved_dark(
    controller: Controller, ocs: FakeSwitch, tmp_path: Path
) -> None:
    client = controller.client
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
        news.bind(str(tmp_path / "news"))
        news.settimeout(SECONDS)
        client.show(OCS, "100s 0>1", notify=tmp_path / "news")
        heard = [json.loads(news.recv(1 << 16)) for _ in range(2)]
        assert heard[-1]["circuits"] == [[0, 1]]
        controller.daemon.let.clear()  # from now on nothing is proved
        ocs.__exit__()
        unknown = json.loads(news.recv(1 << 16))
        assert (unknown["circuits"], unknown["until_s"], unknown["ended"]) == ([], None, False)
        back = controller.switch(OCS)
        eventually(lambda: back.told[-1:] == ["barrier"])
        eventually(lambda: client.status().waiting == (OCS,))
        assert absent(client)
        news.setblocking(False)
        with pytest.raises(BlockingIOError):
            news.recv(1 << 16)
        controller.daemon.let.set()
        news.settimeout(SECONDS)
        dark = json.loads(news.recv(1 << 16))
        assert (dark["circuits"], dark["ended"]) == ([], True)
        eventually(lambda: not absent(client))
        assert client.ocs(OCS).circuits == ()
        assert client.ocs_log(OCS)[-1].error == LOST


def test_a_reconfiguration_that_is_not_proved_ends_in_a_sentence(
    controller: Controller, ocs: FakeSwitch
) -> None:
    controller.client.light(OCS, "0>1")
    controller.client.wait_idle(OCS, SECONDS)
    controller.daemon.answers = lambda _command: {"error": "out of order"}
    controller.client.light(OCS, "0>2")
    with pytest.raises(
        NetworkError, match=r"OCS ocs0: no proof that changes are on the wire: .*out of order"
    ):
        controller.client.wait_idle(OCS, SECONDS)
    assert controller.client.ocs(OCS).circuits == ()
    assert controller.client.ocs_log(OCS)[-1].lit_s is None


def test_rules_that_are_not_proved_are_waited_for_until_the_deadline_which_says_why(
    controller: Controller,
) -> None:
    controller.daemon.answers = lambda _command: {"error": "busy"}
    controller.switch(OCS)
    eventually(lambda: controller.client.status().unproved)
    with pytest.raises(NetworkError, match=r"rules not confirmed: ocs0 \(switch ocs0: no proof .* 'busy'"):
        controller.client.wait_ready(0.01)
    assert absent(controller.client), "connected, but what it shows is not proved"
    controller.daemon.answers = obliging
    controller.client.wait_ready(SECONDS)
    assert controller.client.status().unproved == ()
    assert controller.client.ocs(OCS).circuits == ()


@pytest.mark.parametrize("name", ["x" * 200, "missing"])
def test_a_program_with_a_notify_path_that_cannot_be_is_refused(
    controller: Controller, ocs: FakeSwitch, tmp_path: Path, name: str
) -> None:
    with pytest.raises(DemandError, match=f"notify .*{name}"):
        controller.client.show(OCS, "100s 0>1", notify=tmp_path / name)
    assert not controller.client.ocs(OCS).busy
