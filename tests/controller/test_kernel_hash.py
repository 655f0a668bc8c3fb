"""The hash by which the Linux kernel chooses among the next hops of a route."""

from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.packet.ecmp_hash import TCP, UDP, Headers
from controller.packet.kernel_hash import hash_seed, kernels_bucket, kernels_buckets, multipath_hash
from controller.packet.rules import Bucket
from tests.controller.test_ecmp_hash import addresses, headers
from topologies.leaf_spine import leaf_spine_fabric

CONNECTION = Headers("", "", IPv4Address("10.0.0.1"), IPv4Address("10.1.0.2"), 30000, 5001)
SEED = 7
SEEN = {
    (TCP, (1, 1)): "111000010111000010011111",
    (UDP, (1, 1)): "001011000011101001010101",
    (TCP, (1, 1, 1)): "222010020121001120121121",
    (UDP, (1, 1, 1)): "012021000112112102020212",
    (TCP, (5, 7)): "111000010111001110111111",
    (UDP, (5, 7)): "011011000111101001010101",
    (TCP, (1,) * 8): "765122171474213371364464",
    (UDP, (1,) * 8): "037274010346437325151736",
    (TCP, tuple(range(1, 17))): "fed6987f7bfb86abf6aebcec",
    (UDP, tuple(range(1, 17))): "1bf8fb371abeb9fa7d6d5f9e",
    (TCP, (256, 1, 100)): "222000020020000020020020",
    (UDP, (256, 1, 100)): "002020000002002002000202",
}
"""By which next hop Linux 6.18 led `CONNECTION` from 24 source ports on, by protocol and weights."""


@pytest.mark.parametrize(("protocol", "weights"), SEEN)
def test_choice_is_linuxs(protocol: int, weights: tuple[int, ...]) -> None:
    hops = [Bucket(port, weight) for port, weight in enumerate(weights)]
    packets = [replace(CONNECTION, protocol=protocol, source_port=30000 + more) for more in range(24)]
    chosen = [kernels_bucket(packet, hops, [True] * len(hops), SEED) for packet in packets]
    assert "".join(f"{bucket.port:x}" for bucket in chosen if bucket) == SEEN[protocol, weights]


@given(
    packet=headers,
    ip_dsts=st.lists(addresses, min_size=1, max_size=70),
    weights=st.lists(st.integers(1, 256), min_size=1, max_size=12),
    seed=st.integers(1, (1 << 31) - 1),
    data=st.data(),
)
def test_packets_at_once_choose_as_one_by_one(
    packet: Headers, ip_dsts: list[int], weights: list[int], seed: int, data: st.DataObject
) -> None:
    hops = [Bucket(port, weight) for port, weight in enumerate(weights)]
    live = data.draw(st.lists(st.booleans(), min_size=len(hops), max_size=len(hops)))
    found = kernels_buckets(packet, np.array(ip_dsts, dtype=np.uint32), hops, live, seed).tolist()
    one_by_one = [
        kernels_bucket(replace(packet, ip_dst=IPv4Address(address)), hops, live, seed) for address in ip_dsts
    ]
    assert [hops[place] if place >= 0 else None for place in found] == one_by_one
    assert all(bucket is None or live[bucket.port] for bucket in one_by_one)


@given(packet=headers, seed=st.integers(1, (1 << 31) - 1))
def test_hash_is_symmetric(packet: Headers, seed: int) -> None:
    back = replace(
        packet,
        ip_src=packet.ip_dst,
        ip_dst=packet.ip_src,
        source_port=packet.destination_port,
        destination_port=packet.source_port,
    )
    assert multipath_hash(packet, seed) == multipath_hash(back, seed) < 1 << 31


def test_shares_are_as_the_weights_under_each_seed_and_seeds_choose_independently() -> None:
    hops = [Bucket(0, 5), Bucket(1, 7)]
    packets = [replace(CONNECTION, source_port=port) for port in range(6000)]
    both = Counter(
        tuple(bucket.port for seed in (1, 2) if (bucket := kernels_bucket(packet, hops, [True, True], seed)))
        for packet in packets
    )
    shares = {(one, two): hops[one].weight * hops[two].weight / 144 for one in (0, 1) for two in (0, 1)}
    assert {pair: both[pair] / 6000 for pair in shares} == pytest.approx(shares, abs=0.025)


def test_each_switch_has_a_seed_of_its_own_and_none_is_0() -> None:
    fabric = leaf_spine_fabric(4, 2, 2, nics=2)
    seeds = [hash_seed(fabric, switch.name) for switch in fabric.switches]
    assert len({*seeds, 0}) == len(fabric.switches) + 1
