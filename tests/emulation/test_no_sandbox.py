"""Networks on the machine's own Open vSwitch, played by one that the test starts in its sandbox."""

import os
import resource
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from testbed.machine.datapath import bridge_type, default_datapath
from testbed.machine.residue import MARKER, processes, until
from testbed.machine.sandbox import RUN_DIRECTORY
from testbed.network import network as network_module
from testbed.network.bridges import make_bridges
from testbed.network.mark import Mark
from testbed.network.openvswitch import PrivateOpenVSwitch, vsctl
from testbed.network.wiring import wire
from tests.emulation.box import Box
from tests.emulation.conftest import Booted
from tests.emulation.live import RATE_FACTOR
from tests.tools import CHECKOUT
from topologies.addresses import interface
from topologies.errors import MachineError, NetworkError
from topologies.fabric import Fabric, Link
from topologies.rail import rail_fabric
from traffic.transports.host_settings import OF_DATAGRAMS

pytestmark = pytest.mark.emulation

INTERNAL = ("set", "interface", "mine", "type=internal")
DATAPATH = f"datapath_type={bridge_type(default_datapath())}"
END_S = 30.0
KILLED = """
import sys
from testbed.network import network
from tests.emulation.live import RATE_FACTOR, Live
from topologies.rail import rail_fabric

def stand(*_arguments):
    print("there", flush=True)
    sys.stdin.read()

network.inside_sandbox = lambda: False
if sys.argv[1] == "wired":
    network.make_bridges = stand
with Live(rail_fabric(2, 2), RATE_FACTOR):
    stand()
"""
"""A run that comes to a moment of its life, and stays there."""


@contextmanager
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a machine with its own Open vSwitch, on which networks boot as with ``--no-sandbox``."""
    monkeypatch.setattr(network_module, "inside_sandbox", lambda: False)
    RUN_DIRECTORY.mkdir(exist_ok=True)
    try:
        with PrivateOpenVSwitch(RUN_DIRECTORY, default_datapath()):
            yield
    finally:
        shutil.rmtree(RUN_DIRECTORY)


def things() -> dict[str, object]:
    """Return what is made outside of servers, and how many descriptors this process has."""
    return {
        "interfaces": {name for _, name in socket.if_nameindex()},
        "bridges": set(vsctl("list-br").split()),
        "queues": vsctl("--bare", "--columns=_uuid", "list", "QoS").split(),
        "files": {path.name for path in RUN_DIRECTORY.glob("lightrail-*")},
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def renamed(fabric: Fabric, old: str, new: str) -> Fabric:
    """Return a fabric whose switch has another name."""
    switches = tuple(replace(each, name=new) if each.name == old else each for each in fabric.switches)
    ends = {port: port._replace(node=new) for port in fabric.link_at if port.node == old}
    links = tuple(
        Link(ends.get(link.a, link.a), ends.get(link.b, link.b), link.rate_bps) for link in fabric.links
    )
    return replace(fabric, switches=switches, links=links)


def test_a_second_boot_leaves_the_first_alone_and_says_what_to_do(
    sandbox: Box | None, booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = rail_fabric(2, 2)
    with machine(monkeypatch):
        before = things()
        with booted(fabric) as first:
            assert first.reaches(0, 3)
            running = things()
            with pytest.raises(NetworkError) as caught, booted(fabric):
                pass
            assert str(caught.value) == (
                "this machine has a bridge named leaf0 already; "
                f"end the run that made it (process {os.getpid()}), or leave --no-sandbox out"
            )
            assert things() == running
            assert first.reaches(0, 3)
        assert things() == before


@pytest.mark.parametrize("moment", ["wired", "up"])
def test_a_boot_removes_what_a_killed_run_left_and_nothing_else(
    sandbox: Box | None, booted: Booted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: str
) -> None:
    mark = uuid.uuid4().hex
    with machine(monkeypatch):
        vsctl("add-br", "theirs", "--", "set", "bridge", "theirs", DATAPATH)
        before = things()
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, moment],
            cwd=CHECKOUT,
            env=os.environ | {MARKER: mark, "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as run:
            assert run.stdout
            assert run.stdout.readline() == "there\n"
            run.kill()
        assert until(lambda: not processes(mark), END_S)  # its controller has the port
        left = things()
        assert left["interfaces"] != before["interfaces"]
        assert (left["bridges"] == before["bridges"]) is (moment == "wired")
        with booted(rail_fabric(2, 2)) as net:
            assert net.reaches(0, 3)
        assert things() == before
        vsctl("del-br", "theirs")  # its interface would outlive a daemon that is killed


def test_a_second_boot_of_other_names_has_a_controller_of_its_own(
    sandbox: Box | None, booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = renamed(renamed(rail_fabric(2, 1, 1), "leaf0", "other0"), "spine0", "other1")
    with machine(monkeypatch), booted(rail_fabric(2, 2)) as first:
        running = things()
        with booted(other) as second:
            assert second.reaches(0, 1)
            assert first.reaches(0, 3)
        assert things() == running
        assert first.reaches(0, 3)


def test_a_machine_whose_open_vswitch_is_not_started_is_a_sentence(
    sandbox: Box | None, booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_module, "inside_sandbox", lambda: False)
    with pytest.raises(MachineError) as caught, booted(rail_fabric(2, 1)):
        pass
    assert str(caught.value) == (
        f"make a directory in {RUN_DIRECTORY}: No such file or directory; "
        "start it (service openvswitch-switch start), or leave --no-sandbox out"
    )


def test_as_many_descriptors_as_this_user_may_have_are_allowed(
    sandbox: Box | None, booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))  # as a stock Debian has 1,024
    with machine(monkeypatch), booted(rail_fabric(2, 2)):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert soft == hard >= before[1]


def test_no_packet_but_the_runs_own_comes_to_a_switch(
    sandbox: Box | None, booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Path("/proc/sys/net/ipv6/conf")
    if not settings.exists():
        pytest.skip("this kernel has no IPv6")
    (settings / "default/disable_ipv6").write_text("0")  # as on a machine
    fabric = rail_fabric(2, 2)
    with machine(monkeypatch), booted(fabric):
        ends = [interface(fabric, port) for port in fabric.link_at if port.node in fabric.switch_index]
        assert {(settings / end / "disable_ipv6").read_text().strip() for end in ends} == {"1"}


def test_a_bridge_of_somebody_else_outlives_a_boot_that_fails_in_the_transaction(
    sandbox: Box | None, booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine(monkeypatch):
        vsctl("add-br", "leaf0", "--", "set", "bridge", "leaf0", DATAPATH)
        vsctl("add-port", "leaf0", "mine", "--", *INTERNAL)
        before = things()
        with pytest.raises(NetworkError, match="leaf0 already; remove it, or"), booted(rail_fabric(2, 2)):
            pass
        assert things() == before
        monkeypatch.setattr(network_module, "check_names", lambda *_: None)  # it came a moment later
        with pytest.raises(NetworkError, match="leaf0 already exists"), booted(rail_fabric(2, 2)):
            pass
        assert things() == before
        assert vsctl("list-ports", "leaf0").split() == ["mine"]
        vsctl("del-br", "leaf0")  # its interface would outlive a daemon that is killed


def test_bridges_of_a_transaction_that_was_committed_too_late_are_deleted(
    sandbox: Box | None, booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*arguments: object) -> None:
        make_bridges(*arguments)  # type: ignore[arg-type]
        raise NetworkError("ovs-vsctl: no answer within 30 s")

    monkeypatch.setattr(network_module, "make_bridges", late)
    with machine(monkeypatch):
        before = things()
        with pytest.raises(NetworkError, match="no answer"), booted(rail_fabric(2, 2)):
            pass
        assert things() == before


def test_wiring_that_fails_halfway_removes_what_it_made_and_nothing_else(
    sandbox: Box | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine(monkeypatch):
        before = things()
        made = partial(wire, rate_factor=RATE_FACTOR, private=False, netems={}, host=OF_DATAGRAMS)
        wiring = made(rail_fabric(2, 2, 1), mark=Mark.own())
        held = things()
        with pytest.raises(NetworkError, match=r"create the link .*: File exists"):
            made(rail_fabric(2, 2, 2), mark=Mark.own())  # the links to spine1 are new
        assert things() == held
        wiring.close()
        assert things() == before
