"""The hash that Open vSwitch makes of a connection."""

from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.packet.ecmp_hash import (
    TCP,
    UDP,
    Headers,
    chosen_bucket,
    chosen_buckets,
    datapath_chooses,
    forwarding_buckets,
    symmetric_hash,
)
from controller.packet.rules import Bucket

CONNECTION = Headers(
    "02:02:00:00:00:07", "02:00:00:00:00:01", IPv4Address("10.0.0.1"), IPv4Address("10.1.0.2"), 30000, 5001
)
SEEN_ON_THE_WIRE = {
    2: "001001011101110100001100",
    3: "201001021101110200001100",
    4: "203001321101110200331103",
    8: "704774321177764607537143",
    16: "f0477432 1f7f9aca 0de3714b".replace(" ", ""),
}
"""The port by which Open vSwitch 3.1 sent `CONNECTION` from 24 source ports on, for groups of n ports."""


@pytest.mark.parametrize("ports", SEEN_ON_THE_WIRE)
def test_choice_is_open_vswitchs(ports: int) -> None:
    group = forwarding_buckets(range(ports))
    chosen = [
        chosen_bucket(replace(CONNECTION, source_port=30000 + more), group, [True] * len(group))
        for more in range(24)
    ]
    assert "".join(f"{bucket.port:x}" for bucket in chosen if bucket) == SEEN_ON_THE_WIRE[ports]


@given(ports=st.integers(2, 16), source_port=st.integers(0, 65535), data=st.data())
def test_a_dead_port_moves_only_its_own_connections(
    ports: int, source_port: int, data: st.DataObject
) -> None:
    group, packet = forwarding_buckets(range(ports)), replace(CONNECTION, source_port=source_port)
    dead = data.draw(st.integers(0, ports - 1))
    before = chosen_bucket(packet, group, [True] * len(group))
    after = chosen_bucket(packet, group, [bucket.port != dead for bucket in group])
    assert before
    assert after
    assert after.port != dead
    assert before.port in (dead, after.port)


def test_no_live_port_is_no_choice() -> None:
    group = forwarding_buckets([0, 1])
    assert chosen_bucket(CONNECTION, group, [False] * 3) is None
    assert chosen_buckets(CONNECTION, np.arange(4, dtype=np.uint32), group, [False] * 3).tolist() == [-1] * 4


addresses = st.integers(0, 0xFFFFFFFF)
macs = st.lists(st.integers(0, 255), min_size=6, max_size=6).map(
    lambda six: ":".join(f"{x:02x}" for x in six)
)
headers = st.builds(
    Headers,
    macs,
    macs,
    addresses.map(IPv4Address),
    addresses.map(IPv4Address),
    st.integers(0, 65535),
    st.integers(0, 65535),
    st.sampled_from([TCP, UDP]),
)


@given(
    packet=headers,
    ip_dsts=st.lists(addresses, min_size=1, max_size=70),
    weights=st.lists(st.integers(1, 65535), max_size=12),
    data=st.data(),
)
def test_packets_at_once_choose_as_one_by_one(
    packet: Headers, ip_dsts: list[int], weights: list[int], data: st.DataObject
) -> None:
    """The first two buckets make the weights outgrow the datapath's table."""
    group = [Bucket(port, weight) for port, weight in enumerate((65535, 1, *weights))]
    live = data.draw(st.lists(st.booleans(), min_size=len(group), max_size=len(group)))
    found = chosen_buckets(packet, np.array(ip_dsts, dtype=np.uint32), group, live).tolist()
    one_by_one = [
        chosen_bucket(replace(packet, ip_dst=IPv4Address(address)), group, live) for address in ip_dsts
    ]
    assert [group[place] if place >= 0 else None for place in found] == one_by_one


def test_of_equal_scores_the_last_bucket_wins() -> None:
    """Buckets without weight all score 0."""
    group, live = [Bucket(0, 0), Bucket(1, 0), Bucket(2, 1)], [True, True, False]
    assert chosen_bucket(CONNECTION, group, live) is group[1]
    assert chosen_buckets(CONNECTION, np.arange(4, dtype=np.uint32), group, live).tolist() == [1] * 4


@pytest.mark.parametrize("ports", [2, 3, 5, 8, 32])
def test_connections_spread_evenly(ports: int) -> None:
    group = forwarding_buckets(range(ports))
    chosen = Counter(
        chosen_bucket(replace(CONNECTION, source_port=port), group, [True] * len(group))
        for port in range(200 * ports)
    )
    counts = [chosen[bucket] for bucket in group[:-1]]
    assert sum(counts) >= 200 * ports - 1
    assert min(counts) > 140
    assert max(counts) < 270


def test_hash_is_symmetric_and_knows_no_udp_ports() -> None:
    there = CONNECTION
    back = Headers(
        there.eth_dst, there.eth_src, there.ip_dst, there.ip_src, there.destination_port, there.source_port
    )
    assert symmetric_hash(there) == symmetric_hash(back)
    udp = replace(there, protocol=17)
    assert symmetric_hash(udp) == symmetric_hash(replace(udp, source_port=1))
    assert symmetric_hash(udp) != symmetric_hash(there)


def test_the_datapath_hashes_where_weights_fit_its_table() -> None:
    plain = [Bucket(0), Bucket(1)]
    assert datapath_chooses(plain)
    assert not datapath_chooses(forwarding_buckets([0, 1]))
