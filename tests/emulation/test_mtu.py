"""Packets and port buffers of a size that was asked for: the kernel has them, and results say so."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from pyroute2.netlink.rtnl import RTM_NEWLINK

from testbed.machine.netlink import Batch
from testbed.network.readback import port_settings, unmet
from testbed.network.wiring import interface_indices
from tests.emulation.conftest import Booted
from tests.emulation.machine import Machine
from tests.tools import CHECKOUT, need_sandbox
from topologies.addresses import interface, nic_ip
from topologies.fabric import Nic, Port
from topologies.rail import rail_fabric
from traffic.packets import frame_bytes

pytestmark = pytest.mark.emulation

MTU, PACKETS = 3000, 200
ICMP_BYTES = 28


def test_the_kernel_has_the_mtu_and_the_buffer_and_another_mtu_is_noticed(booted: Booted) -> None:
    fabric = rail_fabric(2, 2, 1).with_buffer(PACKETS * frame_bytes(MTU))
    with booted(fabric, mtu=MTU) as net:
        settings = port_settings(net.network)
        assert {setting.mtu for setting in settings.values()} == {MTU}
        of_switches = [
            setting.shape for port, setting in settings.items() if port.node in fabric.switch_index
        ]
        assert {shape and shape.queue_bytes for shape in of_switches} == {PACKETS * frame_bytes(MTU)}
        assert unmet(net.network, settings) == []
        h0 = net.network.mininet.get("h0")
        for payload, passes in ((MTU - ICMP_BYTES, True), (MTU - ICMP_BYTES + 1, False)):
            ping = (
                f"ping -M do -c1 -W3 -s {payload} -I {nic_ip(fabric, Nic(0, 0))} {nic_ip(fabric, Nic(1, 0))}"
            )
            assert ("1 received" in h0.cmd(ping)) == passes
        port, batch = Port("leaf0", 0), Batch()
        index = interface_indices()[interface(fabric, port)]
        batch.add("change an MTU", RTM_NEWLINK, {"index": index}, [("IFLA_MTU", 9000)])
        batch.commit()
        assert unmet(net.network, port_settings(net.network)) == [
            f"port {port} has an MTU of 9000, not {MTU}"
        ]


@pytest.mark.slow
@pytest.mark.usefixtures("modest")
def test_a_scenario_runs_in_small_packets_and_says_what_it_kept(tmp_path: Path, machine: Machine) -> None:
    need_sandbox()
    small = ["--servers", "2", "--rails", "2", "--seeds", "1", "--schemes", "rails,reps"]
    words = [
        *small,
        "--transport",
        "credit",
        "--mtu",
        str(MTU),
        "--buffer",
        str(PACKETS),
        "--emulated-rate",
        "10",
        "--out",
        "out",
    ]
    command = [sys.executable, str(CHECKOUT / "scenarios" / "rails_uniform.py"), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert {experiment["mtu"] for experiment in run["experiments"]} == {MTU}
    [settings] = run["settings"].values()
    assert settings["mtu"] == MTU
    assert {port["mtu"] for port in settings["ports"].values()} == {MTU}
    queues = {port["queue_bytes"] for name, port in settings["ports"].items() if not name.startswith("h")}
    assert queues == {PACKETS * frame_bytes(MTU)}
    numbers = next(iter(run["similitude"].values()))  # the workload comes before the constants
    found = {number["name"]: number for number in numbers}
    product = found["bandwidth-delay product (BDP) [packets]"]["emulated"]
    assert found["port buffer / BDP"]["emulated"] == pytest.approx(PACKETS / product)
    assert "What the emulation keeps" in (tmp_path / "out" / "report.html").read_text()
    table = pd.read_csv(tmp_path / "out" / "summary.csv")
    # Acknowledgements, one a packet, take 3 % of such links: strained. Other work may make a run void.
    assert machine.busy or (table["verdict"] != "void").any(), table["reasons"]
    assert table.loc[table["verdict"] == "faithful", "over_predicted"].between(0.9, 1.15).all()
