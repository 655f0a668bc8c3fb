"""TopoOpt's rings: the worked examples, that each ring is one cycle, and how far servers are apart."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.schedulers.totient import Rule, ring_over, selected_jumps, totient_jumps
from topologies.errors import DemandError


def hops_of(servers: int, coins: tuple[int, ...]) -> list[int]:
    """Return how many offsets are a number of hops away, from 1 on: breadth first, over sets as bits."""
    everything = (1 << servers) - 1
    seen, edge, found = 1, 1, []
    while edge:
        reached = 0
        for coin in coins:
            reached |= edge << coin | edge >> (servers - coin)
        edge = reached & everything & ~seen
        seen |= edge
        found.append(edge.bit_count())
    assert seen == everything
    return found[:-1]


def coins_of(servers: int, degree: int, duplex: bool, rule: Rule = "projected") -> tuple[int, ...]:
    """Return the jumps that servers have, in both directions if they are duplex."""
    count = degree // 2 if duplex else degree
    jumps = selected_jumps(totient_jumps(servers, servers, duplex=duplex), count, servers, rule=rule)
    return (*jumps, *(servers - jump for jump in jumps)) if duplex else jumps


def mean_and_most(servers: int, coins: tuple[int, ...]) -> tuple[float, int]:
    hops = hops_of(servers, coins)
    return sum(hop * offsets for hop, offsets in enumerate(hops, 1)) / (servers - 1), len(hops)


@pytest.mark.parametrize(
    ("servers", "members", "jumps"),
    [
        (12, 12, (1, 5, 7, 11)),
        (12, 6, (2, 10)),
        (12, 4, (3, 9)),
        (12, 3, (4, 8)),
        (12, 2, (6,)),
        (12, 1, ()),
        (16, 16, (1, 3, 5, 7, 9, 11, 13, 15)),
        (7, 7, (1, 2, 3, 4, 5, 6)),
    ],
)
def test_worked_examples_have_these_jumps(servers: int, members: int, jumps: tuple[int, ...]) -> None:
    assert totient_jumps(servers, members, duplex=False) == jumps
    half = tuple(jump for jump in jumps if 2 * jump <= servers)
    assert totient_jumps(servers, members) == half


@pytest.mark.parametrize(
    ("servers", "step", "ring"),
    [
        (12, 5, "0 5 10 3 8 1 6 11 4 9 2 7"),
        (16, 3, "0 3 6 9 12 15 2 5 8 11 14 1 4 7 10 13"),
        (16, 7, "0 7 14 5 12 3 10 1 8 15 6 13 4 11 2 9"),
    ],
)
def test_worked_rings_visit_servers_in_this_order(servers: int, step: int, ring: str) -> None:
    assert ring_over(range(servers), step) == tuple(map(int, ring.split()))


def test_every_jump_is_one_cycle_over_each_group_of_one_size() -> None:
    """Theorem 2, for all sizes of up to 64 servers; and all jumps from 1 to n - 1 are of some size."""
    for servers in range(2, 65):
        found: list[int] = []
        for members in (size for size in range(1, servers + 1) if servers % size == 0):
            jumps = totient_jumps(servers, members, duplex=False)
            stride = servers // members
            for jump in jumps:
                for first in range(stride):
                    cycle = [(first + turn * jump) % servers for turn in range(members)]
                    assert sorted(cycle) == list(range(first, servers, stride))
                    ring = ring_over(range(first, servers, stride), jump // stride)
                    assert ring == tuple(cycle)
            duplex = totient_jumps(servers, members)
            assert sorted({*duplex, *(servers - jump for jump in duplex)}) == list(jumps)
            found += jumps
        assert sorted(found) == list(range(1, servers))


@given(st.integers(1, 8), st.integers(2, 300), st.booleans())
def test_prime_steps_are_1_and_the_primes_that_do_not_divide(stride: int, members: int, duplex: bool) -> None:
    last = members // 2 if duplex else members - 1
    primes = [p for p in range(2, last + 1) if all(p % q for q in range(2, p)) and members % p]
    expected = tuple(stride * step for step in [1, *primes] if step <= last)
    assert totient_jumps(stride * members, members, duplex=duplex, primes_only=True) == expected


@given(st.permutations(range(20)), st.integers(2, 20), st.integers(1, 30))
def test_ring_over_any_members_steps_through_their_list(order: list[int], size: int, step: int) -> None:
    members = order[:size]
    if sum(1 for each in range(1, size + 1) if size % each == step % each == 0) > 1:
        with pytest.raises(DemandError, match="take a step coprime"):
            ring_over(members, step)
    else:
        ring = ring_over(members, step)
        assert sorted(ring) == sorted(members)
        follows = {members[place]: members[(place + step) % size] for place in range(size)}
        assert all(follows[a] == b for a, b in pairwise((*ring, ring[0])))


@pytest.mark.parametrize(
    ("servers", "degree", "duplex", "projected", "artifact"),
    [
        (12, 2, False, (1, 5), (1, 5)),
        (12, 3, False, (1, 5, 11), (1, 5, 7)),
        (12, 4, False, (1, 5, 7, 11), (1, 5, 7, 11)),
        (12, 4, True, (1, 5), (1, 5)),
        (16, 2, False, (1, 3), (1, 5)),
        (16, 3, False, (1, 3, 7), (1, 3, 7)),
        (16, 4, False, (1, 3, 5, 9), (1, 3, 5, 9)),
        (16, 4, True, (1, 3), (1, 5)),
        (16, 8, True, (1, 3, 5, 7), (1, 3, 5, 7)),
        (128, 4, True, (1, 11), (1, 13)),
        (128, 8, True, (1, 3, 11, 37), (1, 5, 13, 39)),
        (128, 4, False, (1, 3, 11, 37), (1, 5, 13, 39)),
    ],
)
def test_worked_examples_select_these_coins(
    servers: int, degree: int, duplex: bool, projected: tuple[int, ...], artifact: tuple[int, ...]
) -> None:
    candidates = totient_jumps(servers, servers, duplex=duplex)
    count = degree // 2 if duplex else degree
    assert selected_jumps(candidates, count, servers) == projected
    assert selected_jumps(candidates, count, servers, rule="artifact") == artifact


def test_eight_simplex_coins_of_128_servers() -> None:
    assert coins_of(128, 8, duplex=False) == (1, 3, 5, 9, 17, 31, 57, 105)


def test_jumps_of_groups_are_selected_as_those_of_as_many_servers() -> None:
    assert selected_jumps(totient_jumps(128, 16, duplex=False), 3, 16) == (8, 24, 56)


TABLE = {
    12: "1 3.27/6, 1 5 1.82/3, 1 5 1.82/3, 1 5 2.73/5, 1 5 7 11 1.82/3, 1 5 7 11 1.82/3",
    16: "1 4.27/8, 1 3 2.13/4, 1 3 5 7 1.47/2, 1 3 3.33/6, 1 3 5 9 2.00/3, * 1.47/2",
    24: "1 6.26/12, 1 5 2.43/4, 1 5 7 11 1.83/3, 1 5 4.00/7, 1 5 11 23 2.61/5, * 1.83/3",
    32: "1 8.26/16, 1 5 2.84/5, 1 3 7 15 2.00/3, 1 5 4.77/9, 1 3 7 17 2.71/5, * 2.00/3",
    48: "1 12.26/24, 1 7 3.45/6, 1 5 13 23 2.26/4, 1 7 6.00/11, 1 5 13 35 3.32/6, * 2.30/4",
    64: "1 16.25/32, 1 7 4.06/8, 1 3 9 25 2.35/4, 1 7 7.14/14, 1 3 9 25 3.52/6, * 2.44/4",
    96: "1 24.25/48, 1 11 4.76/8, 1 5 17 47 2.72/4, 1 11 8.84/17, 1 5 17 53 4.38/8, * 2.72/4",
    128: "1 32.25/64, 1 11 5.48/9, 1 3 11 37 2.93/5, 1 11 10.30/20, 1 3 11 37 4.52/8, * 3.06/5",
}
"""Coins, mean and most hops with 2, 4 and 8 duplex ports, then simplex; * for coins that are not written."""


@pytest.mark.parametrize("servers", TABLE)
def test_table_of_coins_and_hops(servers: int) -> None:
    kinds = [(duplex, degree) for duplex in (True, False) for degree in (2, 4, 8)]
    for (duplex, degree), text in zip(kinds, TABLE[servers].split(", "), strict=True):
        written, hops = text.rsplit(" ", 1)
        coins = coins_of(servers, degree, duplex)
        if written != "*":
            assert " ".join(str(coin) for coin in coins if not duplex or 2 * coin <= servers) == written
        mean, most = mean_and_most(servers, coins)
        assert f"{mean:.2f}/{most}" == hops


@pytest.mark.parametrize(
    ("servers", "degree", "hops"),
    [(32, 4, "2.71/4"), (64, 8, "2.44/4"), (96, 8, "2.74/4"), (128, 4, "5.62/10"), (128, 8, "2.96/5")],
)
def test_hops_by_the_artifacts_rule(servers: int, degree: int, hops: str) -> None:
    mean, most = mean_and_most(servers, coins_of(servers, degree, duplex=True, rule="artifact"))
    assert f"{mean:.2f}/{most}" == hops


def test_diameter_is_at_most_k_times_the_root() -> None:
    """Theorem 1: with k simplex coins, k n^(1/k), for all n to 256."""
    worst = 0.0
    for servers in range(3, 257):
        for count in range(1, 9):
            coins = coins_of(servers, count, duplex=False)
            worst = max(worst, len(hops_of(servers, coins)) / (len(coins) * servers ** (1 / len(coins))))
    assert worst == pytest.approx(0.996, abs=5e-4)


@given(
    st.integers(2, 400),
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from(["projected", "artifact"]),
    st.floats(0, 4),
)
def test_coins_are_distinct_candidates_and_the_first_is_1(
    servers: int, count: int, duplex: bool, rule: Rule, min_ratio: float
) -> None:
    candidates = totient_jumps(servers, servers, duplex=duplex)
    found = selected_jumps(candidates, count, servers, rule=rule, min_ratio=min_ratio)
    assert found[0] == 1
    assert len(found) == len(set(found)) <= min(count, len(candidates))
    assert set(found) <= set(candidates)
    if min_ratio <= 1:
        assert len(found) == min(count, len(candidates))


@given(st.integers(3, 400), st.integers(2, 8), st.booleans())
def test_each_coin_is_the_nearest_free_one_to_x_times_the_last(
    servers: int, count: int, duplex: bool
) -> None:
    candidates = totient_jumps(servers, servers, duplex=duplex)
    chosen = [0]
    for _ in range(min(count, len(candidates)) - 1):
        target = candidates[chosen[-1]] * servers ** (1 / count)
        distance = np.abs(np.array(candidates) - target).round(6)
        distance[chosen] = np.inf
        chosen.append(int(distance.argmin()))
    expected = tuple(candidates[place] for place in sorted(chosen))
    assert selected_jumps(candidates, count, servers) == expected


def test_min_ratio_takes_about_log_n_coins() -> None:
    """Appendix E.2: with more coins than log2 n a ratio of 2, and no more coins than that."""
    candidates = totient_jumps(128, 128, duplex=False)
    assert selected_jumps(candidates, 12, 128, min_ratio=2) == (1, 3, 5, 9, 17, 33, 65)
    assert selected_jumps(candidates, 7, 128, min_ratio=2) == selected_jumps(candidates, 7, 128)


def test_ties_are_ties_whatever_the_root_s_last_bit() -> None:
    """The fifth root of 243 is 3, and 2 and 4 are as near to it."""
    assert selected_jumps(totient_jumps(243, 243), 5, 243)[:2] == (1, 2)


def test_input_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(DemandError, match="groups of 5 of 12 servers"):
        totient_jumps(12, 5)
    with pytest.raises(DemandError, match="2 rings over 1 members"):
        selected_jumps((), 2, 1)
    assert selected_jumps((1, 3), 0, 8) == ()
