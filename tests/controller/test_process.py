"""The controller's process, with switches that are played by the test."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.controller.fake_switch import FakeSwitch
from tests.controller.played import FABRIC, SECONDS, Controller, command, eventually, started
from tests.tools import CHECKOUT
from topologies.addresses import openflow_port
from topologies.errors import DemandError, NetworkError
from topologies.fabric import Port
from topologies.khop_ring import KHopRing, khop_ring_fabric
from topologies.parallel_ocs import parallel_ocs_fabric

SUN_PATH_BYTES = 108
"""How long the path of a unix socket may be, its end included."""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """Start a controller for the small rail fabric."""
    with started(tmp_path) as controller:
        yield controller


def test_ready_once_every_switch_has_answered_its_barrier(controller: Controller) -> None:
    slow = controller.switch("leaf0", answers_barriers=False)
    for name in ("leaf1", "spine0", "spine1"):
        controller.switch(name)
    eventually(lambda: not controller.client.status().missing)
    eventually(lambda: controller.client.status().waiting == ("leaf0",))
    with pytest.raises(NetworkError, match="rules not confirmed: leaf0"):
        controller.client.wait_ready(0.05)
    slow.answer_barriers()
    controller.client.wait_ready(SECONDS)
    assert slow.told == ["clear", "clear", "group", "flow", "flow", "flow", "flow", "barrier"]


def test_missing_switches_are_named(controller: Controller) -> None:
    controller.switch("leaf1")
    eventually(lambda: controller.client.status().missing == ("leaf0", "spine0", "spine1"))
    with pytest.raises(NetworkError, match="not connected: leaf0, spine0, spine1"):
        controller.client.wait_ready(0.05)


def test_a_switch_that_comes_back_is_told_everything_again(controller: Controller) -> None:
    switches = controller.switches()
    controller.client.wait_ready(SECONDS)
    switches["leaf0"].__exit__()
    eventually(lambda: controller.client.status().missing == ("leaf0",))
    again = controller.switch("leaf0")
    controller.client.wait_ready(SECONDS)
    assert again.told == switches["leaf0"].told


def test_links_that_go_down_are_avoided_and_taken_again(controller: Controller) -> None:
    switches = controller.switches()
    controller.client.wait_ready(SECONDS)
    uplink = next(link for link in FABRIC.links if {link.a.node, link.b.node} == {"leaf0", "spine1"})
    far = uplink.b if uplink.b.node == "spine1" else uplink.a
    before = {name: len(switch.told) for name, switch in switches.items()}
    switches["spine1"].set_link(openflow_port(far.number), up=False)
    controller.client.wait_ready(SECONDS, frozenset({uplink}))
    news = {name: switch.told[before[name] :] for name, switch in switches.items()}
    assert news == {
        "leaf0": ["flow", "ungroup", "barrier"],  # one way left: no group
        "leaf1": ["flow", "ungroup", "barrier"],
        "spine0": [],
        "spine1": ["flow", "barrier"],  # to leaf0 by way of leaf1
    }
    with pytest.raises(NetworkError, match="links not as they should be: leaf0:3 - spine1:0"):
        controller.client.wait_ready(0.05)
    switches["spine1"].set_link(openflow_port(far.number), up=True)
    controller.client.wait_ready(SECONDS)
    assert [len(switch.flows) for switch in switches.values()] == [4, 4, 3, 3]


def test_a_switch_of_another_fabric_is_refused(controller: Controller) -> None:
    stranger = controller.connect(FakeSwitch(controller.openflow, 99, [1]))
    assert stranger.ended.wait(SECONDS)
    assert stranger.told == []
    controller.process.terminate()
    _, said = controller.process.communicate(timeout=SECONDS)
    assert "refused a switch with the datapath id 99, which is not in the fabric" in said


def test_what_a_switch_refuses_is_told_at_once(controller: Controller) -> None:
    controller.switch("leaf0", refuses_groups=True)
    with pytest.raises(NetworkError, match="switch leaf0 refused a message: OFPET_GROUP_MOD_FAILED"):
        eventually(lambda: controller.client.wait_ready(0.05) if controller.client.status().errors else None)


def test_an_ocs_that_refuses_circuits_shows_none_and_says_why(tmp_path: Path) -> None:
    with (
        started(tmp_path, parallel_ocs_fabric(4, 1)) as controller,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news,
    ):
        client = controller.client
        ocs = controller.switch("ocs0", refuses_bundles=True)
        client.wait_ready(SECONDS)
        news.bind(str(tmp_path / "news"))
        news.settimeout(SECONDS)
        client.show("ocs0", "20ms 0>1,1>0 20ms 0>2", notify=tmp_path / "news")
        why = "switch ocs0 refused a message: OFPET_FLOW_MOD_FAILED(5), OFPFMFC_TABLE_FULL(1)"
        with pytest.raises(NetworkError, match=re.escape(why)):
            client.wait_idle("ocs0", SECONDS)
        status, (entry,) = client.ocs("ocs0"), client.ocs_log("ocs0")
        assert (status.circuits, status.busy, status.error) == ((), False, why)
        assert (entry.circuits, entry.lit_s, entry.error) == (((0, 1), (1, 0)), None, why)
        heard = [json.loads(news.recv(1 << 16)) for _ in range(2)]
        assert [(said["circuits"], said["ended"], said["error"]) for said in heard] == [
            ([], False, ""),
            ([], True, why),
        ]
        client.wait_ready(SECONDS)  # its other rules it has taken
        ocs.refuses_bundles = False
        client.light("ocs0", "0>2")
        assert client.wait_idle("ocs0", SECONDS).circuits == ((0, 2),)
        assert client.ocs_log("ocs0")[-1].error == ""


def test_circuits_that_an_ocs_does_not_take_away_are_still_lit(tmp_path: Path) -> None:
    with started(tmp_path, parallel_ocs_fabric(4, 1)) as controller:
        client = controller.client
        ocs = controller.switch("ocs0")
        client.wait_ready(SECONDS)
        client.light("ocs0", "0>1 1>0")
        client.wait_idle("ocs0", SECONDS)
        before = dict(ocs.flows)
        ocs.refuses_bundles = True
        client.light("ocs0", "0>1 1>2")
        with pytest.raises(NetworkError, match="refused a message"):
            client.wait_idle("ocs0", SECONDS)
        assert client.ocs("ocs0").circuits == ((0, 1), (1, 0))
        assert ocs.flows == before


def test_the_northbound_counts(controller: Controller) -> None:
    controller.switch("leaf0")
    eventually(lambda: not controller.client.status().waiting)
    leaf, *others = controller.client.switches()
    assert (leaf.name, leaf.connected, leaf.ready, leaf.flows, leaf.groups) == ("leaf0", True, True, 4, 1)
    assert {(other.connected, other.flows) for other in others} == {(False, None)}
    counters = controller.client.ports("leaf0")
    assert [port.port for port in counters.ports] == [0, 1, 2, 3]
    assert (counters.ports[0].rx_packets, counters.ports[0].tx_dropped) == (1, 6)
    assert counters.table_miss_packets == 0
    assert controller.client.fabric() == FABRIC
    with pytest.raises(NetworkError, match="no switch 'leaf9'"):
        controller.client.flows("leaf9")
    with pytest.raises(NetworkError, match="spine0 is not connected"):
        controller.client.flows("spine0")


def test_sigterm_ends_it_and_takes_its_sockets_away(controller: Controller) -> None:
    controller.switches()
    controller.client.wait_ready(SECONDS)
    controller.process.terminate()
    assert controller.process.wait(SECONDS) == 0
    assert not controller.path.exists()
    assert not controller.openflow.exists()
    with pytest.raises(NetworkError, match="ask the controller"):
        controller.client.status()


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    start = f"subprocess.Popen({command(tmp_path)!r}, stdout=subprocess.DEVNULL)"
    parent = f"import subprocess; print({start}.pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", parent], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        eventually((tmp_path / "nb").exists)
        process.kill()
    eventually(lambda: has_ended(pid))


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, whether or not its parent knows."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def failure(*arguments: str) -> str:
    """Run a controller that cannot start, and return its one sentence."""
    ran = subprocess.run(arguments, cwd=CHECKOUT, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.count("\n") == 1, ran.stderr
    return ran.stderr


def test_what_stops_it_from_starting_is_one_sentence(tmp_path: Path) -> None:
    assert "the text is not a valid fabric" in failure(*command(tmp_path, fabric="{}"))
    fast = next(link for link in FABRIC.links if link.b.node.startswith("spine"))
    others = (link for link in FABRIC.links if link != fast)
    steep = replace(FABRIC, links=(*others, replace(fast, rate_bps=1e15)))
    assert "leaf0 cannot spread connections to leaf1" in failure(*command(tmp_path, fabric=steep))
    missing = [*command(tmp_path), "--fabric", str(tmp_path / "none.json")]
    assert "No such file or directory" in failure(*missing)
    too_long = str(tmp_path / ("x" * SUN_PATH_BYTES))
    assert f"listen on {too_long}: AF_UNIX path too long" in failure(
        *command(tmp_path), "--openflow", too_long
    )


def test_one_controller_does_not_take_anothers_sockets(controller: Controller, tmp_path: Path) -> None:
    assert f"listen on {controller.openflow}: Address already in use" in failure(*command(tmp_path))
    free = ["--openflow", str(tmp_path / "free")]
    assert f"listen on {controller.path}: Address already in use" in failure(*command(tmp_path), *free)
    os.kill(controller.process.pid, signal.SIGKILL)
    controller.process.wait(SECONDS)
    assert controller.path.exists(), "killed, it could not take it away"
    with subprocess.Popen(command(tmp_path), cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "listening\n"
        process.terminate()


def test_circuits_that_an_ocs_does_not_permit_are_refused_before_any_is_taken_away(tmp_path: Path) -> None:
    with started(tmp_path, khop_ring_fabric(KHopRing(5, 2, 2))) as controller:
        controller.switches()
        client = controller.client
        client.wait_ready(SECONDS)
        client.light("n0b0", "0>1 1>0")
        client.wait_idle("n0b0", SECONDS)
        with pytest.raises(DemandError, match="OCS n0b0 cannot show 0>2 1>5"):
            client.light("n0b0", "0>2 1>5")
        with pytest.raises(DemandError, match="OCS n0b0 cannot show 0>2 1>5"):
            client.show("n0b0", "20ms 0>2,1>3 20ms 0>2,1>5")
        with pytest.raises(DemandError, match="OCS n0b0 cannot show 0>2 1>5"):
            client.provision("n0b0", "0>2 1>5").answer()
        assert (client.ocs("n0b0").circuits, len(client.ocs_log("n0b0"))) == (((0, 1), (1, 0)), 1)


def test_all_that_is_lit_is_news_whoever_ordered_it(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
        news.bind(str(tmp_path / "news"))
        news.settimeout(SECONDS)
        with started(tmp_path, parallel_ocs_fabric(4, 1), "--news", str(tmp_path / "news")) as controller:
            controller.switch("ocs0")
            controller.client.wait_ready(SECONDS)
            controller.client.light("ocs0", "0>1 1>0")
            controller.client.wait_idle("ocs0", SECONDS)
            controller.client.show("ocs0", "20ms 2>3")
            told = lit_circuits(news)
            for circuits in ([[0, 1], [1, 0]], [[2, 3]], []):
                assert circuits in told, "in this order"


def lit_circuits(news: socket.socket) -> Iterator[list[list[int]]]:
    """Yield the circuits of each notice, as they come."""
    while True:
        yield json.loads(news.recv(1 << 16))["circuits"]


def test_switches_forward_to_hosts_if_asked_to_and_links_that_fail_are_news(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
        news.bind(str(tmp_path / "news"))
        news.settimeout(SECONDS)
        with started(tmp_path, FABRIC, "--hosts", "--news", str(tmp_path / "news")) as controller:
            switches = controller.switches()
            controller.client.wait_ready(SECONDS)
            assert [len(switch.flows) for switch in switches.values()] == [6, 6, 5, 5]
            switches["leaf0"].set_link(openflow_port(1), up=False)
            assert json.loads(news.recv(1 << 16))["failed_links"] == ["h1:0 - leaf0:1"]
            controller.client.wait_ready(SECONDS, frozenset({FABRIC.link_at[Port("leaf0", 1)]}))
            assert [len(switch.flows) for switch in switches.values()] == [5, 6, 5, 5]
            switches["leaf0"].set_link(openflow_port(1), up=True)
            assert json.loads(news.recv(1 << 16))["failed_links"] == []
