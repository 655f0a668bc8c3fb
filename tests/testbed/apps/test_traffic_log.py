"""Bytes between hosts are counted as their packets say."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.apps import traffic_log
from testbed.apps.traffic_log import BIN_S, ICMP, SYN, UDP, HostAddresses, TrafficLog
from tests.testbed.apps.heads import TCP_BYTES, Head, frames_of
from topologies.addresses import entropy_ip, host_ip, nic_ip
from topologies.fabric import Nic
from topologies.rail import rail_fabric

FABRIC = rail_fabric(3, 2)
HOSTS = [int(host_ip(server)) for server in range(3)]
HEADERS = 20 + TCP_BYTES


def logged(*rounds: Sequence[tuple[float, Head]], sent_by: int | None = None) -> TrafficLog:
    """Return the log of packets that came in some rounds, each with its time, by default from their hosts."""
    log, addresses = TrafficLog(FABRIC, 0.0), HostAddresses(FABRIC)
    for packets in rounds:
        frames = frames_of([head for _, head in packets])
        own = addresses.servers(frames["source"].astype(np.int64))
        server = own if sent_by is None else np.full(len(frames), sent_by)
        log.add(frames, np.array([at_s for at_s, _ in packets]), server)
    return log


def data(sequence: int, size: int, **more: int) -> Head:
    """Return a segment from host 0 to host 1."""
    return Head(HOSTS[0], HOSTS[1], sequence=sequence, size=size, **more)  # type: ignore[arg-type]


def flow(log: TrafficLog, number: int = 0) -> dict[str, object]:
    """Return a row of the flows."""
    return {str(name): value for name, value in log.flow_table(0.0).iloc[number].items()}


def test_addresses_of_a_host_and_of_its_nics_are_its_own() -> None:
    nic = Nic(2, 1)
    known = [host_ip(1), nic_ip(FABRIC, nic), entropy_ip(FABRIC, nic, 63), nic_ip(FABRIC, nic) - 1]
    found = HostAddresses(FABRIC).servers(np.array([*map(int, known), 1, 2**32 - 1]))
    assert found.tolist() == [1, 2, 2, 1, -1, -1]


def test_a_connection_counts_its_payload_once() -> None:
    log = logged(
        [(0.001, data(99, 0, flags=SYN)), (0.002, data(100, 1000)), (0.003, data(1100, 500))],
        [(0.004, data(1100, 500)), (0.021, data(1600, 400)), (0.022, data(2000, 0, flags=0x11))],
        [(0.023, data(2001, 0))],
    )
    found = flow(log)
    assert (found["payload_bytes"], found["resent_bytes"], found["packets"]) == (1900, 500, 7)
    assert found["wire_bytes"] == 7 * HEADERS + 2400
    assert (found["first_s"], found["last_s"]) == (0.001, 0.023)
    traffic = log.traffic(0.0)
    assert traffic["payload_bytes"].tolist() == [1500, 400]
    assert traffic["at_s"].tolist() == pytest.approx([0.0, 0.02])
    assert traffic[["source", "destination"]].to_numpy().tolist() == [[0, 1], [0, 1]]


def test_payload_that_the_tap_missed_is_known_by_what_follows() -> None:
    log = logged([(0.001, data(100, 1000))], [(0.002, data(5100, 1000))])
    assert flow(log)["payload_bytes"] == 6000


def test_fragments_of_datagrams_count_as_payload_and_are_one_flow() -> None:
    parts = [(8972, (40000, 5001), 0), (8980, (0x7575, 1), 1122), (2048, (0x7575, 2), 2245)]
    log = logged(
        [
            (0.001 * (1 + at), Head(HOSTS[0], HOSTS[1], ports, size=size, protocol=UDP, fragment=offset))
            for at, (size, ports, offset) in enumerate(2 * parts)
        ]
    )
    table = log.flow_table(0.0)
    assert table["payload_bytes"].tolist() == [2 * 8972, 2 * (8980 + 2048)]
    assert table["destination_port"].tolist() == [5001, 0]


def test_fragments_of_a_segment_count_once() -> None:
    rest = data(1, 500, flags=SYN, fragment=60)  # no header: what is read as one is payload
    log = logged([(0.001, data(100, 460)), (0.002, rest), (0.003, data(1060, 40))])
    assert log.flow_table(0.0)["payload_bytes"].sum() == 1000


def test_sequence_numbers_begin_again_from_0() -> None:
    most = (1 << 32) - 300
    log = logged([(0.001, data(most, 200)), (0.002, data(most + 200, 200))], [(0.003, data(most + 400, 100))])
    assert flow(log)["payload_bytes"] == 500


def test_a_connection_with_the_ports_of_an_earlier_one_is_another_flow() -> None:
    begun = data(7_000_000, 0, flags=SYN)
    log = logged(
        [
            (0.001, data(99, 0, flags=SYN)),
            (0.002, data(100, 10)),
            (0.003, begun),
            (0.004, data(7_000_001, 20)),
        ],
        [(0.005, begun), (0.006, data(7_000_021, 30))],
    )
    assert log.flow_table(0.0)["payload_bytes"].tolist() == [10, 50]


def test_a_packet_that_a_server_passes_on_is_its_senders() -> None:
    log = logged([(0.001, data(100, 1000))], sent_by=2)
    assert log.packets == 0
    assert log.traffic(0.0).empty
    assert log.flow_table(0.0).empty


def test_datagrams_and_other_packets_count() -> None:
    ends = (HOSTS[2], HOSTS[0])
    packets = [Head(*ends, size=100, protocol=UDP), Head(*ends, size=64, protocol=ICMP)]
    strange = Head(*ends, size=100, protocol=UDP, version=0x46)
    log = logged([(0.0, each) for each in (*packets, strange)])
    table = log.flow_table(0.0)
    assert table["protocol"].tolist() == ["udp", "icmp", "udp"]
    assert table["payload_bytes"].tolist() == [100, 0, 0]
    assert table["source_port"].tolist() == [40000, 0, 0]
    assert table["wire_bytes"].tolist() == [128, 84, 128]


def test_bins_become_wider_where_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_log, "MOST_ROWS", 64)
    rounds = [[(number * BIN_S + 0.001, data(100 + 10 * number, 10))] for number in range(1000)]
    log = logged(*rounds)
    traffic = log.traffic(0.0)
    assert len(traffic) <= 64
    assert traffic["payload_bytes"].sum() == 10_000
    assert log.bin_s == 32 * BIN_S
    assert traffic["at_s"].tolist() == pytest.approx(np.arange(len(traffic)) * log.bin_s)


def test_a_table_has_the_flows_with_the_most_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_log, "MOST_FLOWS", 2)
    log = logged(
        [(0.0, data(1, size)._replace(ports=(port, 1))) for port, size in ((1, 30), (2, 10), (3, 20))]
    )
    assert log.flow_table(0.0)["source_port"].tolist() == [1, 3]


def reference(rounds: Sequence[Sequence[Head]]) -> dict[int, tuple[int, int]]:
    """Return payload sent for the first time and again of each source port, byte by byte."""
    sent: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for head in (head for packets in rounds for head in packets):
        port = head.ports[0]
        top = sent.setdefault(port, head.sequence)
        new = max(head.sequence + head.size - top, 0) if head.size else 0
        sent[port] = top + new
        first, again = found.get(port, (0, 0))
        found[port] = first + new, again + max(head.size - new, 0)
    return found


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=20
        ),
        max_size=5,
    )
)
def test_many_flows_in_one_round_are_counted_as_one_after_the_other(
    rounds: list[list[tuple[int, int, int]]],
) -> None:
    heads = [
        [data(1000 + 10 * place, size)._replace(ports=(port, 9)) for port, place, size in packets]
        for packets in rounds
    ]
    log = logged(*[[(0.001 * number, head) for head in packets] for number, packets in enumerate(heads)])
    table: pd.DataFrame = log.flow_table(0.0)
    rows = zip(table["source_port"], table["payload_bytes"], table["resent_bytes"], strict=True)
    assert {port: (first, again) for port, first, again in rows} == reference(heads)
