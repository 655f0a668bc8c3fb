"""Copilot: the same least squares as SLSQP, in milliseconds, and better guesses than none."""

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import Bounds, LinearConstraint, minimize

from controller.schedulers import copilot
from controller.schedulers.copilot import (
    RIDGE,
    WINDOW,
    columns_on_simplex,
    predicted_tokens,
    top_k_accuracy,
    transition,
    transitions,
    window_weights,
)
from controller.schedulers.demand import Matrix
from tests.examples import examples
from topologies.errors import DemandError
from traffic.workloads.gate import gate_loads


def objective(matrix: Matrix, x: Matrix, y: Matrix, last: Matrix) -> float:
    """Return equation 1, and what makes its minimum unique, term by term."""
    misses = window_weights(len(x)) @ ((y - x @ matrix.T) ** 2).sum(axis=1)
    return float(misses + RIDGE * ((matrix - last) ** 2).sum())


def slsqp(x: Matrix, y: Matrix, last: Matrix) -> Matrix:
    """Return P by SLSQP: the reference."""
    experts = x.shape[1]
    weights = window_weights(len(x))[:, None]
    curvature, slope = (x * weights).T @ x, (y * weights).T @ x

    def value(flat: Matrix) -> float:
        return objective(flat.reshape(experts, experts), x, y, last)

    def gradient(flat: Matrix) -> Matrix:
        matrix = flat.reshape(experts, experts)
        both: Matrix = 2 * (matrix @ curvature - slope) + 2 * RIDGE * (matrix - last)
        return both.ravel()

    found = minimize(
        value,
        last.ravel(),
        jac=gradient,
        method="SLSQP",
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(np.tile(np.eye(experts), (1, experts)), 1, 1),
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    assert found.success
    result: Matrix = found.x.reshape(experts, experts)
    return result


def predicted_loads(loads: Matrix, window: int = WINDOW) -> Matrix:
    """Return what each layer but the first is predicted to see in each iteration but the first."""
    found: Matrix = np.einsum("tlab,tlb->tla", transitions(loads, window), loads[1:, :-1])
    return found


def uniform(experts: int) -> Matrix:
    return np.full((experts, experts), 1 / experts)


def test_eight_experts_and_a_window_of_16_have_slsqps_objective() -> None:
    loads = gate_loads(["start"] * 16, 2, seed=3)
    x, y, last = loads[:, 0], loads[:, 1], uniform(8)
    fast, reference = (objective(solve(x, y, last), x, y, last) for solve in (transition, slsqp))
    assert fast == pytest.approx(reference, abs=1e-6)


@st.composite
def windows(draw: st.DrawFn) -> tuple[Matrix, Matrix]:
    """Return any loads of few experts, over fewer or more iterations than experts."""
    shape = (2, draw(st.integers(1, 6)), draw(st.integers(2, 4)))
    weights = draw(arrays(np.float64, shape, elements=st.floats(1e-3, 1.0)))
    x, y = weights / weights.sum(axis=2, keepdims=True)
    return x, y


@settings(max_examples=examples(9, 30))
@given(windows())
def test_any_window_has_slsqps_objective_or_less(window: tuple[Matrix, Matrix]) -> None:
    x, y = window
    last = uniform(x.shape[1])
    fast = transition(x, y)
    assert (fast >= 0).all()
    assert fast.sum(axis=0) == pytest.approx(np.ones(len(fast)))
    # SLSQP sometimes stops above the least.
    assert objective(fast, x, y, last) <= objective(slsqp(x, y, last), x, y, last) + 1e-6


@given(st.permutations(range(5)), st.integers(0, 99))
def test_permuted_loads_are_found_out(order: list[int], seed: int) -> None:
    x = np.random.default_rng(seed).dirichlet(np.ones(5), 16)
    found = transition(x, x[:, order])
    assert found == pytest.approx(np.eye(5)[order], abs=0.05)


def test_without_news_the_last_matrix_stays() -> None:
    last = columns_on_simplex(np.random.default_rng(0).random((4, 4)))
    x = np.full((3, 4), 0.25)
    assert transition(x, x @ last.T, last) == pytest.approx(last, abs=1e-9)


@given(arrays(np.float64, (4, 3), elements=st.floats(-2, 2)), st.integers(0, 99))
def test_projection_is_the_nearest_on_the_simplex(matrix: Matrix, seed: int) -> None:
    near = columns_on_simplex(matrix)
    assert (near >= 0).all()
    assert near.sum(axis=0) == pytest.approx(np.ones(3))
    others = np.random.default_rng(seed).dirichlet(np.ones(4), (20, 3)).transpose(0, 2, 1)
    distances = ((others - matrix) ** 2).sum(axis=1)
    assert (((near - matrix) ** 2).sum(axis=0) <= distances + 1e-9).all()


def test_exact_ties_are_predicted_better_with_a_longer_window() -> None:
    loads = gate_loads(["start"] * 30, 4, noise=0.0, seed=1)
    errors = [np.abs(predicted_loads(loads, window) - loads[1:, 1:])[16:].mean() for window in (1, 16)]
    assert errors[1] < errors[0]
    assert errors[1] < 0.005


@pytest.mark.parametrize("phase", ["early", "stable"])
def test_copilot_ranks_experts_better_than_chance_and_than_the_layer_before(phase: str) -> None:
    loads = gate_loads([phase] * 40, 5, seed=2)
    true, guesses = loads[1:, 1:], np.random.default_rng(2).random(loads[1:, 1:].shape)
    predicted = predicted_loads(loads)
    for k in range(1, 5):
        copilots = top_k_accuracy(predicted, true, k)
        assert copilots > top_k_accuracy(loads[1:, :-1], true, k)
        assert copilots > top_k_accuracy(guesses, true, k)
        assert top_k_accuracy(guesses, true, k) == pytest.approx(k / 8, abs=0.1)
        assert top_k_accuracy(true, true, k) == 1


@given(st.integers(1, 4), st.integers(2, 6), st.integers(0, 99))
def test_sources_rows_keep_their_tokens_and_sum_to_the_loads(sources: int, experts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, 99, (sources, experts))
    matrix = rng.dirichlet(np.ones(experts), experts).T
    rows = predicted_tokens(matrix, tokens)
    assert rows.sum(axis=1) == pytest.approx(tokens.sum(axis=1))
    assert rows.sum(axis=0) == pytest.approx(matrix @ tokens.sum(axis=0))


def test_examples_print_what_they_say() -> None:
    assert doctest.testmod(copilot).failed == 0


def test_what_makes_no_sense_is_named() -> None:
    even = np.full((3, 4), 0.25)
    for call, culprit in (
        (lambda: transition(even, even[:2]), "shape (3, 4) before one of (2, 4)"),
        (lambda: transition(2 * even, even), "do not sum to 1"),
        (lambda: transition(-even, even), "none negative"),
        (lambda: transitions(even), "shape (3, 4)"),
        (lambda: transitions(even[None], 0), "windows of 0"),
        (lambda: top_k_accuracy(even, even, 5), "the top 5"),
        (lambda: top_k_accuracy(even, even[:2], 1), "(3, 4) and (2, 4)"),
    ):
        with pytest.raises(DemandError) as error:
            call()
        assert culprit in str(error.value)
