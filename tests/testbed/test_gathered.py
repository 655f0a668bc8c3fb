"""What is left of a delegated all-to-all goes on another GPU's lane: closed forms of what crosses NVLink."""

from dataclasses import replace

import numpy as np
import pytest

from testbed.core.run import Run
from tests.testbed.test_delegated import Case, took_s
from topologies.fabric import Nic
from topologies.mfabric import mfabric_fabric
from traffic.delegated import Delegated, DelegatedSetup
from traffic.faults import cut
from traffic.records import legs_of

CIRCUIT_BPS, PACKET_BPS, NVLINK_BPS = 40e9, 16e9, 32e9
SIZE = 50_000_000
"""Owed by GPU 0 of server 0; it takes 10 ms over a circuit."""
AFTER_S = 4e-3
"""How long after the transfer began a NIC fails."""


def seconds(size: float, rate_bps: float) -> float:
    return 8 * size / rate_bps


def fault(case: Case, nic: Nic, after_s: float, lasts_s: float | None = None) -> Case:
    """Return a case in which a NIC fails some time after the all-to-all began."""
    failing = cut("nic", (case.fabric.nic_port(nic),), "send", after_s, lasts_s=lasts_s)
    return replace(case, faults=(failing,))


def over_a_circuit(to_gpu: int, *, packet_bps: float = PACKET_BPS, nvlink_bps: float = NVLINK_BPS) -> Case:
    """Return two servers joined by a circuit of NIC 1, which is GPU 1's; NIC 0, GPU 0's, is a packet NIC."""
    fabric = mfabric_fabric(
        2,
        gpus=2,
        nics=2,
        packet_nics=1,
        rate_bps=CIRCUIT_BPS,
        packet_bps=packet_bps,
        nvlink_bps=nvlink_bps,
        one_packet_switch=True,
    )
    owed = np.zeros((4, 4), dtype=np.int64)
    owed[0, 2 + to_gpu] = SIZE
    return Case(fabric, owed, ((0, 1), (1, 0)))


def over_packets(nvlink_bps: float) -> Case:
    """Return two servers whose circuits are dark; packet NICs 0 and 2 are those of their GPUs 0 and 1."""
    fabric = mfabric_fabric(
        2,
        gpus=2,
        nics=4,
        packet_nics=2,
        rate_bps=PACKET_BPS,
        nvlink_bps=nvlink_bps,
        one_packet_switch=True,
    )
    owed = np.zeros((4, 4), dtype=np.int64)
    owed[0, 2] = SIZE
    return Case(fabric, owed, ())


def carried(run: Run) -> dict[str, int]:
    """Return the bytes of each path."""
    return dict(legs_of(run.messages).groupby("path")["bytes"].sum())


@pytest.mark.parametrize("server", [0, 1], ids=["source", "destination"])
@pytest.mark.parametrize("to_gpu", [0, 1])
def test_what_a_circuit_leaves_over_goes_to_the_packet_nics_gpu(server: int, to_gpu: int) -> None:
    case = over_a_circuit(to_gpu)
    gather_s = seconds(SIZE, NVLINK_BPS)
    left = SIZE - CIRCUIT_BPS * AFTER_S / 8
    run = fault(case, Nic(server, 1), gather_s + AFTER_S).run()
    cross_s = AFTER_S + seconds(left, NVLINK_BPS) + seconds(left, PACKET_BPS)
    elsewhere = left if to_gpu else SIZE - left  # what came over packets is at GPU 0
    assert took_s(run) == pytest.approx(gather_s + cross_s + seconds(elsewhere, NVLINK_BPS), rel=0.01)
    assert sorted(carried(run).values()) == pytest.approx(sorted([left, SIZE - left]))


def test_what_was_gathered_for_a_nic_that_failed_meanwhile_crosses_nvlink_again() -> None:
    case = over_a_circuit(1)
    run = fault(case, Nic(0, 1), seconds(SIZE, NVLINK_BPS) / 2).run()
    # Gather, to the packet NIC's GPU, over packets, and to GPU 1, where a circuit would have brought it.
    assert took_s(run) == pytest.approx(3 * seconds(SIZE, NVLINK_BPS) + seconds(SIZE, PACKET_BPS), rel=0.01)


def test_what_goes_back_to_a_nic_crosses_nvlink_back() -> None:
    case = over_a_circuit(1)
    gather_s, away_s = seconds(SIZE, NVLINK_BPS), 12e-3
    run = fault(case, Nic(0, 1), gather_s + AFTER_S, away_s).run()
    left = SIZE - CIRCUIT_BPS * AFTER_S / 8
    by_packets = PACKET_BPS * (away_s - seconds(left, NVLINK_BPS)) / 8
    assert 0 < by_packets < left
    back_s = seconds(left - by_packets, NVLINK_BPS) + seconds(left - by_packets, CIRCUIT_BPS)
    scatter_s = seconds(by_packets, NVLINK_BPS)
    assert took_s(run) == pytest.approx(gather_s + AFTER_S + away_s + back_s + scatter_s, rel=0.01)


def test_what_crosses_nvlink_when_its_new_lane_fails_goes_to_another() -> None:
    """The circuit fails and is back while what it left over is on its way to the packet NIC, which fails."""
    case = over_a_circuit(1)
    gather_s, left = seconds(SIZE, NVLINK_BPS), SIZE - CIRCUIT_BPS * AFTER_S / 8
    hop_s = seconds(left, NVLINK_BPS)
    circuit, packets = (
        cut(f"nic {nic}", (case.fabric.nic_port(Nic(0, nic)),), "send", after_s, lasts_s=lasts_s)
        for nic, after_s, lasts_s in (
            (1, gather_s + AFTER_S, hop_s / 2),
            (0, gather_s + AFTER_S + hop_s * 3 / 4, None),
        )
    )
    run = replace(case, faults=(circuit, packets)).run()
    cross_s = AFTER_S + 2 * hop_s + seconds(left, CIRCUIT_BPS)
    assert took_s(run) == pytest.approx(gather_s + cross_s, rel=0.01)  # all is at GPU 1 in the end


def test_a_source_nic_over_packets() -> None:
    """NVLink is slower than a NIC, so that nothing hides what crosses it."""
    nvlink_bps = PACKET_BPS / 2
    case, gather_s = over_packets(nvlink_bps), seconds(SIZE / 2, nvlink_bps)
    left = SIZE / 2 - PACKET_BPS * AFTER_S / 8
    run = fault(case, Nic(0, 0), gather_s + AFTER_S).run()
    # What is left goes from NIC 2 to both NICs there, a half behind the other over NVLink and over the NIC.
    cross_s = AFTER_S + seconds(left, nvlink_bps) + seconds(left / 2, PACKET_BPS)
    scatter_s = seconds(SIZE / 2 + left / 2, nvlink_bps)
    assert took_s(run) == pytest.approx(gather_s + cross_s + scatter_s, rel=0.01)


def test_a_destination_nic_over_packets() -> None:
    nvlink_bps = PACKET_BPS
    case, gather_s = over_packets(nvlink_bps), seconds(SIZE / 2, nvlink_bps)
    left = SIZE / 2 - PACKET_BPS * AFTER_S / 8
    run = fault(case, Nic(1, 2), gather_s + AFTER_S).run()
    # NIC 0 there takes both halves' rest, half of the one from each NIC, and GPU 1 scatters what it has.
    cross_s = AFTER_S + 2 * seconds(left, PACKET_BPS)
    assert took_s(run) == pytest.approx(gather_s + cross_s + seconds(SIZE / 2 - left, nvlink_bps), rel=0.01)


def test_what_flows_on_at_once_crosses_nvlink_beside_its_lane() -> None:
    """At both ends, over an NVLink that is slower than the packet NICs, and faster than the circuit."""
    nvlink_bps = 1.5 * CIRCUIT_BPS
    case = over_a_circuit(1, packet_bps=2 * CIRCUIT_BPS, nvlink_bps=nvlink_bps)
    run = fault(replace(case, scheme=Delegated(DelegatedSetup(pipelined=True))), Nic(0, 1), AFTER_S).run()
    left = SIZE - CIRCUIT_BPS * AFTER_S / 8
    assert took_s(run) == pytest.approx(AFTER_S + seconds(left, nvlink_bps), rel=0.01)
