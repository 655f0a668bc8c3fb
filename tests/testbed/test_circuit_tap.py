"""What is kept of the packets that cross OCSes: all that is needed, in little memory."""

import tracemalloc

import numpy as np
from numpy.typing import NDArray

from testbed.network.circuit_tap import CROSSING, FRAME, CrossingLog
from topologies.fabric import Nic
from topologies.parallel_ocs import parallel_ocs_fabric

FABRIC = parallel_ocs_fabric(3, 2, packet_switch=True)
PORTS = {40 + 7 * number: port for number, port in enumerate(FABRIC.used_ports("ocs1"))}
PORTS |= {900 + number: port for number, port in enumerate(FABRIC.used_ports("ocs0"))}
"""By the numbers of their interfaces."""
CLOCK_S = -1000.0


def frames(*packets: tuple[float, Nic, int, int]) -> NDArray[np.void]:
    """Return frames of packets: wall time, the NIC that sent, the interface that it left by, bytes."""
    made = np.zeros(len(packets), FRAME)
    for frame, (at_s, nic, interface, size) in zip(made, packets, strict=True):
        frame["s"], frame["ns"] = divmod(round(at_s * 1e9), 10**9)
        frame["server"], frame["nic"], frame["interface"], frame["bytes"] = *nic, interface, size
    return made


def port(nic: Nic) -> int:
    """Return the port of the OCS that a NIC is on."""
    return FABRIC.peer(FABRIC.nic_port(nic)).number


def test_a_packet_is_of_the_ocs_that_it_left() -> None:
    log = CrossingLog(FABRIC, PORTS, CLOCK_S)
    log.add(frames((1000.5, Nic(0, 0), 901, 114), (1000.75, Nic(2, 1), 40, 9014)))
    log.add(frames())
    log.add(frames((1001.0, Nic(1, 0), 902, 60), (1002.0, Nic(200, 9), 900, 60)))
    found = {ocs: each[["at_s", "source", "out", "bytes"]].tolist() for ocs, each in log.crossings.items()}
    outs = {index: port.number for index, port in PORTS.items()}
    assert found == {
        "ocs0": [
            (0.5, port(Nic(0, 0)), outs[901], 100),
            (1.0, port(Nic(1, 0)), outs[902], 46),
            (2.0, -1, outs[900], 46),
        ],
        "ocs1": [(0.75, port(Nic(2, 1)), outs[40], 9000)],
    }


def test_a_nic_on_a_packet_switch_is_on_no_ocs() -> None:
    log = CrossingLog(FABRIC, PORTS, CLOCK_S)
    log.add(frames((1000.0, Nic(0, 2), 900, 60)))
    assert log.crossings["ocs0"]["source"].tolist() == [-1]


def test_no_packet_leaves_nothing() -> None:
    assert [len(each) for each in CrossingLog(FABRIC, PORTS, CLOCK_S).crossings.values()] == [0, 0]


def test_a_packet_takes_what_is_kept_of_it_and_no_copy() -> None:
    """Frames of 128 bytes were kept, and concatenated at the end."""
    round_of = frames(*[(1000.5, Nic(0, 0), 901, 114)] * 1000)
    log, rounds = CrossingLog(FABRIC, PORTS, CLOCK_S), 200
    tracemalloc.start()
    try:
        for _ in range(rounds):
            log.add(round_of)
        crossings = log.crossings
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    packets = rounds * len(round_of)
    assert len(crossings["ocs0"]) == packets
    assert peak < 1.5 * CROSSING.itemsize * packets
