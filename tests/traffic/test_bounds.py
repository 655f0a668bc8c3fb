"""The lower bound: its closed form is the LP's optimum on rails, and uniform splitting reaches it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.traffic.cases import Work, work_of, works
from topologies.errors import DemandError
from topologies.fabric import Port
from topologies.rail import rail_fabric
from traffic.bounds import lower_bound_s, nic_rates, optimal_split, server_matrix


def test_the_bound_is_the_busiest_servers_load_over_all_its_nics() -> None:
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 1] = 1000  # stays inside server 0
    matrix[0, 2], matrix[1, 3], matrix[2, 0] = 30, 50, 10
    work = work_of(rail_fabric(2, 2, rate_bps=8.0), matrix)
    assert server_matrix(work.messages, work.fabric).tolist() == [[0, 80], [10, 0]]
    assert lower_bound_s(work.messages, work.fabric) == 40.0


def test_a_bound_has_what_the_bucket_of_each_nic_lends() -> None:
    """100 bytes go over NICs of 1 and 3 bytes a second; 12 and 20 left at once, 8 and 40 came."""
    slow_and_fast = rail_fabric(2, 2, 0, rate_bps=8.0)
    links = tuple(
        replace(link, rate_bps=8.0 * (3 if "leaf1" in {link.a.node, link.b.node} else 1))
        for link in slow_and_fast.links
    )
    fabric = replace(slow_and_fast, links=links)
    work = work_of(fabric, np.kron([[0, 1], [0, 0]], np.full((2, 2), 25)))
    out = {Port("h0", 0): 12.0, Port("h0", 1): 20.0}
    into = {Port("leaf0", 1): 8.0, Port("leaf1", 1): 40.0}
    assert lower_bound_s(work.messages, fabric) == 25.0
    assert lower_bound_s(work.messages, fabric, {**out, **into}) == (100 - 32) / 4
    assert lower_bound_s(work.messages, fabric, dict.fromkeys((*out, *into), 100.0)) == 0.0


def test_nothing_owed_takes_no_time() -> None:
    work = work_of(rail_fabric(2, 2), np.zeros((4, 4), dtype=np.int64))
    assert lower_bound_s(work.messages, work.fabric) == 0.0
    assert optimal_split(np.zeros((2, 2), dtype=np.int64), np.ones((2, 2))).time_s == 0.0


@settings(max_examples=examples(9, 30))
@given(work=works())
def test_theorem_3_is_theorem_2(work: Work) -> None:
    split = optimal_split(server_matrix(work.messages, work.fabric), nic_rates(work.fabric))
    assert split.time_s == pytest.approx(lower_bound_s(work.messages, work.fabric), rel=1e-6)


@settings(max_examples=examples(9, 30))
@given(work=works(), factors=st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=16, max_size=16))
def test_the_split_is_feasible_and_the_bound_holds_with_uneven_rates(
    work: Work, factors: list[float]
) -> None:
    matrix = server_matrix(work.messages, work.fabric)
    rate_bps = nic_rates(work.fabric)
    rate_bps *= np.array(factors)[: rate_bps.size].reshape(rate_bps.shape)
    split = optimal_split(matrix, rate_bps)
    assert split.share.sum(axis=2) == pytest.approx(np.ones(matrix.shape))
    assert (split.share >= -1e-9).all()
    sent, received = (8 * (matrix[:, :, None] * split.share).sum(axis=axis) / rate_bps for axis in (1, 0))
    assert max(sent.max(), received.max()) == pytest.approx(split.time_s, rel=1e-6, abs=1e-9)
    load = np.maximum(matrix.sum(axis=1), matrix.sum(axis=0))
    assert split.time_s >= (8 * load / rate_bps.sum(axis=1)).max() * (1 - 1e-6)


@given(work=works())
def test_splitting_every_pair_uniformly_gives_uniform_receiving(work: Work) -> None:
    matrix, rails = server_matrix(work.messages, work.fabric), work.fabric.servers[0].nics
    load = matrix[:, :, None] * np.full(rails, 1 / rails)
    sent, received = load.sum(axis=1), load.sum(axis=0)
    assert sent == pytest.approx(np.repeat(sent.mean(axis=1), rails).reshape(sent.shape))
    assert received == pytest.approx(np.repeat(received.mean(axis=1), rails).reshape(received.shape))


def test_a_uniform_sending_load_alone_does_not_give_uniform_receiving() -> None:
    """What Theorem 3 says is more than its proof shows: server 0 sends 1 on each rail, by destination."""
    load = np.zeros((3, 3, 2))
    load[0, 1, 0] = load[0, 2, 1] = 1.0
    assert load.sum(axis=1)[0].tolist() == [1.0, 1.0]
    assert load.sum(axis=0)[1].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("matrix", "rate_bps"), [((2, 3), (2, 1)), ((3, 3), (2, 1))])
def test_shapes_that_do_not_fit_are_refused(matrix: tuple[int, int], rate_bps: tuple[int, int]) -> None:
    with pytest.raises(DemandError, match="a matrix of shape"):
        optimal_split(np.ones(matrix, dtype=np.int64), np.ones(rate_bps))
