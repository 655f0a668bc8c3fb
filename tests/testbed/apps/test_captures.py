"""Captures as they are asked for."""

import shutil

import pytest

from testbed.apps.captures import captures_of
from topologies.errors import LightrailError, MachineError
from topologies.fabric import Nic
from topologies.rail import rail_fabric

FABRIC = rail_fabric(3, 2)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tcpdump be installed."""
    monkeypatch.setattr(shutil, "which", lambda name, path: f"/usr/bin/{name}")


@pytest.mark.usefixtures("installed")
def test_each_nic_has_a_file_of_its_own() -> None:
    found = captures_of("h0:0, h2:1,h0:0", FABRIC)
    assert [(each.nic, each.name) for each in found] == [
        (Nic(0, 0), "pcap/h0-nic0.pcap"),
        (Nic(2, 1), "pcap/h2-nic1.pcap"),
    ]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h0", "not a NIC"),
        ("h0:2", "has 2 NICs"),
        ("h9:0", "not a NIC"),
        (" ,", "names no NIC"),
        ("h0:²", "not a"),
    ],
)
def test_what_is_no_nic_is_refused(text: str, said: str) -> None:
    with pytest.raises(LightrailError, match=said):
        captures_of(text, FABRIC)


def test_without_tcpdump_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    with pytest.raises(MachineError, match="apt-get install tcpdump"):
        captures_of("h0:0", FABRIC)
