"""Captures: what is asked for, and files that other programs read."""

import socket
import time
from functools import partial
from pathlib import Path

import pytest
from scapy.utils import RawPcapReader

from testbed.apps.captures import HEAD_BYTES, SO_TIMESTAMPNS, captures_of, write_packets
from testbed.machine.processes import beside
from testbed.machine.residue import until
from topologies.errors import LightrailError
from topologies.fabric import Nic
from topologies.rail import rail_fabric

FABRIC = rail_fabric(3, 2)


def test_each_nic_has_a_file_of_its_own() -> None:
    found = captures_of("h0:0, h2:1,h0:0", FABRIC)
    assert [(each.nic, each.name) for each in found] == [
        (Nic(0, 0), "pcap/h0-nic0.pcap"),
        (Nic(2, 1), "pcap/h2-nic1.pcap"),
    ]


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


def test_a_file_has_what_pcap_savefile_says(tmp_path: Path) -> None:
    tap, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    packets = [b"short", b"long" * 1000]
    for packet in packets:
        sender.send(packet)
    file = tmp_path / "a.pcap"
    with tap, sender, file.open("wb") as written, beside(partial(write_packets, tap, written.fileno())):
        size = 24 + 2 * 16 + 5 + HEAD_BYTES
        assert until(lambda: file.stat().st_size == size, 10)
    with RawPcapReader(str(file)) as read:
        found = [(data, about.wirelen, about.sec) for data, about in read]
    assert [(data, length) for data, length, _ in found] == [(b"short", 5), (packets[1][:HEAD_BYTES], 4000)]
    assert all(abs(at_s - time.time()) < 60 for _, _, at_s in found)
