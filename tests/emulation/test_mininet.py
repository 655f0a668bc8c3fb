"""Mininet's own interface, on the live network: what its users type works."""

import io
import os
import re
import subprocess
from pathlib import Path

import pytest
from mininet.cli import CLI
from mininet.log import lg

from testbed.cli.cli import FabricCLI
from testbed.machine.kernel import inside_namespace
from testbed.network.wiring import FIRST_TABLE
from tests.emulation.conftest import Booted
from tests.emulation.live import Live
from topologies.errors import NetworkError
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.spraying.policy import QueuePair
from traffic.steps import single
from traffic.transports.host_settings import OF_DATAGRAMS
from traffic.workloads.synthetic import uniform

pytestmark = [pytest.mark.emulation, pytest.mark.early]

[screen_of_mininet] = lg.handlers

IPERF_RUNS = 3

VARYING = r", time \d+ms|rtt .*\n|@if\d+| ::1/128|\r| +(?=\r?\n)"
ANSWERS = """\
available nodes are:
h0 h1 leaf0 leaf1 spine0
h0 h0-nic0:leaf0-p0 h0-nic1:leaf1-p0
h1 h1-nic0:leaf0-p1 h1-nic1:leaf1-p1
leaf0 lo: leaf0-p0:h0-nic0 leaf0-p1:h1-nic0 leaf0-p2:spine0-p0
leaf1 lo: leaf1-p0:h0-nic1 leaf1-p1:h1-nic1 leaf1-p2:spine0-p1
spine0 lo: spine0-p0:leaf0-p2 spine0-p1:leaf1-p2
h0-nic0<->leaf0-p0 (OK OK)
h0-nic1<->leaf1-p0 (OK OK)
h1-nic0<->leaf0-p1 (OK OK)
h1-nic1<->leaf1-p1 (OK OK)
leaf0-p2<->spine0-p0 (OK OK)
leaf1-p2<->spine0-p1 (OK OK)
lo UNKNOWN 127.0.0.1/8
nic0 UP 10.0.0.128/16
nic1 UP 10.1.0.128/16
10.0.0.64
PING 10.0.0.128 (10.0.0.128) 56(84) bytes of data.

--- 10.0.0.128 ping statistics ---
1 packets transmitted, 1 received, 0% packet loss
fine
"""


def answers(net: Live, script: Path, *lines: str) -> str:
    """Type lines into Mininet's command line, as `source` reads them from a file; return what it prints."""
    script.write_text("\n".join([*lines, "exit"]) + "\n")
    keyboard, hand = os.pipe()  # nobody types while a command runs
    printed = io.StringIO()
    with open(keyboard) as stdin, open(hand, "w"):
        screen = screen_of_mininet.setStream(printed)
        try:
            CLI(net.network.mininet, stdin=stdin, script=str(script))
        finally:
            screen_of_mininet.setStream(screen)
    return printed.getvalue()


def test_pingall_loses_nothing(booted: Booted) -> None:
    with booted(rail_fabric(4, 2, 2)) as net:
        assert net.network.mininet.pingAll() == 0


def test_pingall_sees_what_is_apart(booted: Booted) -> None:
    with booted(leaf_spine_fabric(3, 2, 1)) as net:
        subprocess.run(["ip", "link", "set", "spine0-p1", "down"], check=True)
        assert net.network.mininet.pingAll(timeout="2") == pytest.approx(100 * 4 / 6)


@pytest.mark.parametrize("kind", ["TCP", "UDP"])
def test_iperf_gives_the_rate(booted: Booted, kind: str) -> None:
    with booted(rail_fabric(2, 1, rate_bps=20e9)) as net:
        # A busy machine takes a part of two seconds away, so one run of a few has to be right.
        found = (iperf(net, kind) for _ in range(IPERF_RUNS))
        rate = 10 if kind == "UDP" else 20
        assert any(rates == [pytest.approx(rate, rel=0.1)] * 2 for rates in found)


def iperf(net: Live, kind: str) -> list[float]:
    """Return the rates that Mininet's iperf measured at both ends [Mbit/s]."""
    hosts = net.network.mininet.get("h0", "h1")
    asked, *measured = ["", *net.network.mininet.iperf(hosts, kind, udpBw="10M", seconds=2)][-3:]
    assert asked == ("10M" if kind == "UDP" else "")
    return [float(text.removesuffix(" Mbits/sec")) for text in measured]


def test_iperf_between_servers_that_are_apart_ends(booted: Booted) -> None:
    with booted(rail_fabric(2, 1, rate_bps=20e9)) as net:
        subprocess.run(["ip", "link", "set", "leaf0-p1", "down"], check=True)
        with pytest.raises(NetworkError, match="iperf from h0 to h1 did not end"):
            net.network.mininet.iperf(seconds=0)


def test_a_replay_goes_around_a_link_that_is_down_under_another_transport(
    booted: Booted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CLI, "__init__", lambda self, mininet: setattr(self, "mn", mininet))
    with booted(rail_fabric(2, 2, 1)) as net:
        cli = FabricCLI(net.network, {"uniform": single(uniform(4))})
        cli.onecmd("link h0 leaf0 down")
        cli.onecmd("replay uniform ecmp --transport tcp")
        assert "uniform, ecmp, link:h0-leaf0: CCT " in capsys.readouterr().out
        assert net.network.links_down() == [net.fabric.links[0]], "as before"
        tcp = net.network.host
        assert tcp != OF_DATAGRAMS
        with inside_namespace(net.network.wiring.namespaces[0]):
            routes = subprocess.run(
                ["ip", "route", "show", "table", str(FIRST_TABLE)], capture_output=True, text=True, check=True
            )
        assert f"initcwnd {tcp.initial_window_packets} " in routes.stdout
        cli.onecmd("mend")
        assert "mended: link:h0-leaf0" in capsys.readouterr().out
        assert net.network.links_down() == []
        cli.onecmd("fail controller")
        cli.onecmd("replay uniform")
        assert "uniform, rails, controller: CCT " in capsys.readouterr().out
        cli.onecmd("mend")
        assert net.network.northbound.status().ready


def test_a_link_that_was_down_carries_again(booted: Booted) -> None:
    with booted(rail_fabric(2, 1, 0)) as net:
        source, destination = net.fabric.nics
        pair = QueuePair(source, destination)
        net.network.mininet.configLinkStatus("h0", "leaf0", "down")
        assert not net.answered([pair])
        net.network.mininet.configLinkStatus("h0", "leaf0", "up")
        assert net.answered([pair], within_s=10.0) == {pair}


def test_commands_answer(booted: Booted, tmp_path: Path) -> None:
    commands = ["nodes", "net", "links", "h1 ip -br a", "py h0.IP()", "h0 ping -qc1 h1", "leaf0 echo fine"]
    with booted(rail_fabric(2, 2, 1)) as net:
        said = answers(net, tmp_path / "script", *commands)
    assert re.sub(VARYING, "", re.sub(r"  +", " ", said)) == ANSWERS


def test_dpctl_shows_the_rules(booted: Booted, tmp_path: Path) -> None:
    with booted(rail_fabric(2, 1, 0)) as net:
        said = answers(net, tmp_path / "script", "dpctl dump-flows -OOpenFlow13")
    assert 'nw_dst=10.0.0.128/26 actions=set_field:02:01:00:01:00:00->eth_dst,output:"leaf0-p1"' in said
