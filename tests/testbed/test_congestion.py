"""What controls congestion: refused in a sentence where the kernel, or the emulated network, cannot do it."""

from typing import get_args

import pytest

from testbed.machine import congestion
from testbed.machine.congestion import check_congestion_control, check_known, check_marks
from testbed.machine.datapath import Datapath
from topologies.errors import MachineError
from traffic.packets import LEAST_MTU, MOST_MTU
from traffic.transports.host_settings import TransportSetup


def available() -> list[str]:
    """Return what this user may have TCP control congestion by."""
    with open("/proc/sys/net/ipv4/tcp_allowed_congestion_control") as allowed:
        return allowed.read().split()


def test_what_the_kernel_has_is_accepted_and_so_is_no_tcp() -> None:
    for name in available():
        check_congestion_control(name)
        check_known(name)
    check_congestion_control(None)


@pytest.mark.parametrize("name", ["none-such", "x" * 40])
def test_what_no_kernel_has_is_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(MachineError, match=f"this kernel's TCP cannot be set to '{name}'") as caught:
        check_congestion_control(name)
    assert "\n" not in str(caught.value)
    assert caught.value.hint is not None
    assert "reno" in caught.value.hint


@pytest.fixture
def red(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Have the kernel have RED, or not."""
    monkeypatch.setattr(congestion, "kernel_has_red", lambda: request.param)


@pytest.mark.parametrize("red", [False], indirect=True)
@pytest.mark.parametrize("datapath", get_args(Datapath))
@pytest.mark.parametrize(
    "setup",
    [TransportSetup("tcp:dctcp"), TransportSetup("credit", marks="switches")],
    ids=lambda each: each.name,
)
def test_without_red_what_switches_are_to_mark_is_refused(
    red: None, datapath: Datapath, setup: TransportSetup
) -> None:
    with pytest.raises(MachineError, match=f"this kernel has no RED, .* for {setup.marked_for}"):
        check_marks(setup.marked_for, datapath, 1500)


@pytest.mark.parametrize("red", [False], indirect=True)
@pytest.mark.parametrize("datapath", get_args(Datapath))
def test_without_red_nothing_else_is(red: None, datapath: Datapath) -> None:
    for other in (TransportSetup("tcp:bbr", marks="switches"), TransportSetup("credit")):
        check_marks(other.marked_for, datapath, MOST_MTU)


@pytest.mark.parametrize("red", [True], indirect=True)
def test_the_daemons_packets_are_marked_where_they_fit_a_page(red: None) -> None:
    for mtu in (LEAST_MTU, 3000):
        check_marks("tcp:dctcp", "netdev", mtu)
    with pytest.raises(MachineError, match="cannot mark packets of --mtu 9000") as caught:
        check_marks("tcp:dctcp", "netdev", 9000)
    assert caught.value.hint == "give --mtu 3000, or --datapath kernel"
    check_marks("tcp:dctcp", "kernel", MOST_MTU)
