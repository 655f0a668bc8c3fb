"""The filter in the kernel takes what is counted, and follows the packets that `is_followed` names."""

import struct

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.apps import traffic_tap
from testbed.apps.path_log import is_followed
from testbed.apps.traffic_log import HEAD_BYTES, ICMP, SYN, TCP, UDP
from testbed.apps.traffic_tap import ETH_P_IP, INTERFACE, PACKET_KIND, taken
from testbed.network.packet_ring import HEAD
from testbed.network.tap import PACKET_OUTGOING
from tests.testbed.apps.heads import Head, frames_of
from traffic.transports.packet_filter import Program

INCOMING = 3
FROM_NICS = [4, 5, 6, 9]


def returned(program: Program, packet: bytes, special: dict[int, int]) -> int:
    """Run a program of classic BPF over a packet (bpf(4) of BSD)."""
    accumulator = index = at = 0
    while program[at][0] != 0x06:
        code, jump_true, jump_false, k = program[at]
        at += 1
        if code in LOADS:
            accumulator = special[k] if k in special else loaded(packet, code, k, index)
        elif code in CONDITIONS:
            at += jump_true if CONDITIONS[code](accumulator, k) else jump_false
        elif code in (0xB1, 0x07):
            index = 4 * (packet[k] & 0xF) if code == 0xB1 else accumulator
        elif code == 0x05:
            at += k
        else:
            accumulator = {0x0C: accumulator + index, 0x54: accumulator & k}[code]
    return program[at][3]


LOADS = {0x20: "!I", 0x28: "!H", 0x30: "!B", 0x48: "!H", 0x50: "!B"}
"""Words, half words and bytes of a packet, from its start or from the index."""
CONDITIONS = {0x15: int.__eq__, 0x25: int.__gt__, 0x35: int.__ge__, 0x45: int.__and__}


def loaded(packet: bytes, code: int, place: int, index: int) -> int:
    """Return a number of a packet."""
    (found,) = struct.unpack_from(LOADS[code], packet, place + index * (code in (0x48, 0x50)))
    return int(found)


def packets_of(frames: NDArray[np.void]) -> list[bytes]:
    """Return the packets in frames, IP by their Ethernet header."""
    packets = [bytearray(frame.tobytes()[HEAD:]) for frame in frames]
    for packet in packets:
        struct.pack_into("!H", packet, 12, ETH_P_IP)
    return [bytes(packet) for packet in packets]


def test_what_leaves_a_port_is_taken_if_it_is_followed() -> None:
    rng = np.random.default_rng(1)
    frames = frames_of(
        [
            Head(
                1,
                2,
                protocol=[TCP, UDP, ICMP][number % 3],
                id=int(a),
                total=int(b),
                flags=SYN * (number % 5 == 0),
            )
            for number, (a, b) in enumerate(rng.integers(0, 1 << 16, (600, 2)))
        ]
    )
    leaving = {PACKET_KIND: PACKET_OUTGOING, INTERFACE: 4}
    found = [returned(taken(FROM_NICS), packet, leaving) == HEAD_BYTES for packet in packets_of(frames)]
    assert found == is_followed(frames).tolist()
    assert 0 < sum(found) < len(found)


@pytest.mark.parametrize("interface", range(12))
def test_all_that_comes_off_a_nic_is_taken(interface: int) -> None:
    (packet,) = packets_of(frames_of([Head(1, 2, protocol=ICMP)]))
    coming = {PACKET_KIND: INCOMING, INTERFACE: interface}
    assert returned(taken(FROM_NICS), packet, coming) == HEAD_BYTES * (interface in FROM_NICS)


def test_what_is_not_ip_is_not_taken() -> None:
    (packet,) = packets_of(frames_of([Head(1, 2)]))
    arp = packet[:12] + b"\x08\x06" + packet[14:]
    assert returned(taken(FROM_NICS), arp, {PACKET_KIND: INCOMING, INTERFACE: 4}) == 0


def test_a_filter_for_scattered_interfaces_is_no_longer_than_the_kernel_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scattered = list(range(1, 20_000, 2))
    assert len(taken(scattered)) < 4096
    monkeypatch.setattr(traffic_tap, "MOST_RANGES", 2)
    (packet,) = packets_of(frames_of([Head(1, 2)]))
    assert returned(taken([2, 5, 9]), packet, {PACKET_KIND: INCOMING, INTERFACE: 7}) == HEAD_BYTES
