"""What controls congestion: refused in a sentence where the kernel, or the emulated network, cannot do it."""

import pytest

from testbed.machine.congestion import check_congestion_control
from topologies.errors import MachineError


def available() -> list[str]:
    """Return what this user may have TCP control congestion by."""
    with open("/proc/sys/net/ipv4/tcp_allowed_congestion_control") as allowed:
        return allowed.read().split()


def test_what_the_kernel_has_is_accepted_and_so_is_no_tcp() -> None:
    for name in available():
        if name != "dctcp":
            check_congestion_control(name)
    check_congestion_control(None)


@pytest.mark.parametrize("name", ["none-such", "x" * 40])
def test_what_no_kernel_has_is_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(MachineError, match=f"this kernel's TCP cannot be set to '{name}'") as caught:
        check_congestion_control(name)
    assert "\n" not in str(caught.value)
    assert caught.value.hint is not None
    assert "reno" in caught.value.hint


def test_dctcp_is_refused_as_no_port_marks_packets() -> None:
    with pytest.raises(MachineError, match="tcp:dctcp needs ports that mark packets"):
        check_congestion_control("dctcp")
