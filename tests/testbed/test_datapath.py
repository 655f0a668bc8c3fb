"""The datapath: one decision, and a sentence where the machine cannot follow it."""

import math
from pathlib import Path

import pytest

from testbed.machine import datapath as module
from testbed.machine.datapath import (
    DEFAULT,
    bridge_type,
    check_datapath,
    datapath_named,
    default_datapath,
    lost_upcalls,
)
from topologies.errors import MachineError, ScenarioError

SHOWN = """system@ovs-system:
  lookups: hit:1057 missed:31 lost:{lost}
  flows: 4
"""


@pytest.fixture
def dpctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have an ``ovs-dpctl`` that a test writes."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    path = tmp_path / "ovs-dpctl"
    path.touch(mode=0o755)
    return path


def test_it_is_netdev_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEFAULT, raising=False)
    assert (default_datapath(), bridge_type(default_datapath())) == ("netdev", "netdev")
    monkeypatch.setenv(DEFAULT, "kernel")
    assert (default_datapath(), bridge_type(default_datapath())) == ("kernel", "system")
    monkeypatch.setenv(DEFAULT, "system")
    with pytest.raises(ScenarioError, match=r"the datapath 'system'.*netdev, kernel"):
        default_datapath()


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ScenarioError, match="the datapath ''"):
        datapath_named("")


def test_netdev_needs_nothing_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    check_datapath("netdev")


def test_a_kernel_without_the_module_is_said(dpctl: Path) -> None:
    dpctl.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(MachineError, match="no openvswitch module"):
        check_datapath("kernel")


@pytest.mark.parametrize("has_netem", [True, False])
def test_a_kernel_without_netem_is_said(
    dpctl: Path, monkeypatch: pytest.MonkeyPatch, has_netem: bool
) -> None:
    dpctl.write_text("#!/bin/sh\nexit 0\n")
    monkeypatch.setattr(module, "kernel_has_netem", lambda: has_netem)
    if has_netem:
        check_datapath("kernel")
    else:
        with pytest.raises(MachineError, match="no netem"):
            check_datapath("kernel")


def test_a_kernel_whose_namespaces_share_a_hash_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HASH_SEED", "net/ipv4/none")
    with pytest.raises(MachineError, match="one hash for all namespaces"):
        check_datapath("route")


@pytest.mark.parametrize("as_computed", [True, False])
def test_a_kernel_with_another_hash_is_said(monkeypatch: pytest.MonkeyPatch, as_computed: bool) -> None:
    monkeypatch.setattr(module, "HASH_SEED", "net/ipv4/ip_forward")
    monkeypatch.setattr(module, "picks_as_computed", lambda: as_computed)
    if as_computed:
        check_datapath("route")
    else:
        with pytest.raises(MachineError, match=r"hashes otherwise than Linux 6\.11"):
            check_datapath("route")


@pytest.mark.parametrize("lost", [0, 17])
def test_lost_upcalls_are_read_from_what_open_vswitch_shows(dpctl: Path, lost: int) -> None:
    dpctl.write_text(f"#!/bin/sh\ncat <<END\n{SHOWN.format(lost=lost)}END\n")
    assert lost_upcalls() == lost


def test_without_a_datapath_it_is_unknown_what_was_lost(dpctl: Path) -> None:
    dpctl.write_text("#!/bin/sh\nexit 1\n")
    assert math.isnan(lost_upcalls())
