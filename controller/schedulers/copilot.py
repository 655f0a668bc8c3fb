"""mFabric's Copilot: which experts a layer will load, from those of the layer before.

    X_i, Y_i     loads of layer l - 1 and of l in the i-th iteration of the window, shares of E experts
    w_i          weight of an iteration
    P            E x E, entries from 0, columns that sum to 1: where an expert's load goes in the next layer

P minimises sum_i w_i ||Y_i - P X_i||^2, and is found anew before each iteration; what layer l will see is
then P X, with the loads that layer l - 1 has now. The first layer has no prediction.

The paper gives neither window nor weights, and names SLSQP as its solver. Here the window has 16 iterations
and weights fall by 0.8; since with fewer iterations than experts P is not unique, RIDGE ||P - P_last||^2 is
added. SLSQP has E^2 variables: hundreds of milliseconds for 8 experts. The projected gradient needs a
thousand steps, because all loads lie near their mean and other directions are flat. Splitting the square from
the constraints (ADMM) needs a hundred. It ends when the Frank-Wolfe gap proves that the objective is within
TOLERANCE of the least.

References
----------
mFabric, appendix B.1, equation 1 as published (MixNet), and Figure 19; S. Boyd et al., "Distributed
Optimization and Statistical Learning via ADMM", 2011, sections 3.4.3 and 5.2.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from controller.schedulers.demand import Matrix
from topologies.errors import DemandError

WINDOW = 16
"""Iterations that a prediction looks back on."""
DECAY = 0.8
"""Weight of an iteration over that of the next."""
RIDGE = 1e-6
"""What holds P to the last one where the window leaves it open."""
TOLERANCE = 5e-7
"""Above the least objective at most."""
MOST_STEPS = 10_000
STIFFNESS = 5e-4
"""The least penalty of ADMM over the steepest curvature, for loads that hardly vary: of 1e-4 to 3e-3 the
fastest, with 8 to 256 experts. Where they vary it is the curvatures' geometric mean."""
OVER_RELAXATION = 1.6


def transition(before: ArrayLike, after: ArrayLike, last: Matrix | None = None) -> Matrix:
    """Return P for a window of iterations.

    Parameters
    ----------
    before, after
        Loads of two layers that follow each other, oldest iteration first, shape (iterations, experts).
    last
        P of the iteration before; by default every expert's load goes to all alike.

    Returns
    -------
    numpy.ndarray
        P, shape (experts, experts): column a says where the load of expert a goes.

    Raises
    ------
    DemandError
        If the loads are not two windows of one shape, or a row is not of shares that sum to 1.
    """
    x, y = _checked(before), _checked(after)
    if x.shape != y.shape:
        raise DemandError(f"a window of shape {x.shape} before one of {y.shape}", "give both one shape")
    last = _uniform(x.shape[1]) if last is None else last
    weights = window_weights(len(x))[:, None]
    curvature = 2 * ((x * weights).T @ x + RIDGE * np.eye(len(last)))
    slope = 2 * ((y * weights).T @ x + RIDGE * last)
    return _least_on_simplices(curvature, slope, last)


def window_weights(iterations: int) -> NDArray[np.float64]:
    """Return w, oldest first, summing to 1."""
    weights = DECAY ** np.arange(iterations - 1, -1, -1.0)
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def transitions(loads: ArrayLike, window: int = WINDOW) -> Matrix:
    """Return P of each layer but the first before each iteration but the first.

    Parameters
    ----------
    loads
        Shares per expert, shape (iterations, layers, experts).
    window
        Iterations that P looks back on; the first have fewer.

    Returns
    -------
    numpy.ndarray
        Shape (iterations - 1, layers - 1, experts, experts), beside ``loads[1:, 1:]``.

    Raises
    ------
    DemandError
        If the loads are not shares of such a shape, or there is no window.
    """
    shares = _checked(loads)
    if shares.ndim != 3 or window < 1:
        raise DemandError(
            f"predictions for loads of shape {shares.shape} from windows of {window}",
            "give iterations, layers and experts, and a window of one or more",
        )
    iterations, layers, experts = shares.shape
    found = np.empty((max(iterations - 1, 0), layers - 1, experts, experts))
    for layer in range(1, layers):
        matrix = _uniform(experts)
        for now in range(1, iterations):
            seen = slice(max(now - window, 0), now)
            matrix = transition(shares[seen, layer - 1], shares[seen, layer], matrix)
            found[now - 1, layer - 1] = matrix
    return found


def predicted_tokens(matrix: Matrix, tokens: ArrayLike) -> Matrix:
    """Return what each source will send in the next layer, shape (sources, experts), in the tokens' unit.

    Parameters
    ----------
    matrix
        P.
    tokens
        What each source sends to each expert in this layer.

    Notes
    -----
    The paper predicts loads only; P is applied to each source's row alike.
    """
    rows: Matrix = np.asarray(tokens, dtype=float) @ matrix.T
    return rows


def top_k_accuracy(predicted: ArrayLike, true: ArrayLike, k: int) -> float:
    """Return which part of the k most loaded experts was predicted to be among them, on average.

    Parameters
    ----------
    predicted, true
        Loads of one shape, experts last; for a guess, ``predicted`` may be any numbers. Among equal ones
        the first experts come first.
    k
        1 up to the number of experts.

    Raises
    ------
    DemandError
        If there are not so many experts, or the shapes differ.

    References
    ----------
    mFabric, Figure 19.

    Examples
    --------
    >>> top_k_accuracy([[0.5, 0.3, 0.2]], [[0.4, 0.2, 0.4]], 2)
    0.5
    """
    guess, truth = np.asarray(predicted, dtype=float), np.asarray(true, dtype=float)
    if guess.shape != truth.shape or not 1 <= k <= truth.shape[-1]:
        raise DemandError(
            f"the top {k} of loads of shapes {guess.shape} and {truth.shape}",
            "give two of one shape, and no more than there are experts",
        )
    marked = np.zeros((2, *truth.shape), dtype=bool)
    for marks, loads in zip(marked, (guess, truth), strict=True):
        np.put_along_axis(marks, np.argsort(-loads, axis=-1, kind="stable")[..., :k], True, axis=-1)
    return float(marked.all(axis=0).sum(axis=-1).mean() / k)


def _least_on_simplices(curvature: Matrix, slope: Matrix, start: Matrix) -> Matrix:
    """Return the P of least tr(P A P') / 2 - tr(B P') whose columns are on the simplex, from a start."""
    curvatures = np.linalg.eigvalsh(curvature)
    stiffness = max(STIFFNESS * curvatures[-1], np.exp(np.log(curvatures).mean()))
    inverse = np.linalg.inv(curvature + stiffness * np.eye(len(start)))
    matrix, scaled_dual = start, np.zeros_like(start)
    for step in range(1, MOST_STEPS + 1):
        free = (slope + stiffness * (matrix - scaled_dual)) @ inverse
        free = OVER_RELAXATION * free + (1 - OVER_RELAXATION) * matrix + scaled_dual
        matrix = columns_on_simplex(free)
        scaled_dual = free - matrix
        if step % 10 == 0 and _gap(matrix, curvature, slope) <= TOLERANCE:
            break
    return matrix


def _gap(matrix: Matrix, curvature: Matrix, slope: Matrix) -> float:
    """Return the Frank-Wolfe gap, which no objective is farther from the least than."""
    gradient = matrix @ curvature - slope
    return float(np.vdot(gradient, matrix) - gradient.min(axis=0).sum())


def columns_on_simplex(matrix: Matrix) -> Matrix:
    """Return the nearest matrix of entries from 0 whose columns sum to 1.

    References
    ----------
    J. Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High Dimensions", ICML 2008.
    """
    falling = np.sort(matrix, axis=0)[::-1]
    levels = (np.cumsum(falling, axis=0) - 1) / np.arange(1, len(matrix) + 1)[:, None]
    last_positive = (falling > levels).sum(axis=0) - 1
    nearest: Matrix = np.maximum(matrix - levels[last_positive, np.arange(matrix.shape[1])], 0.0)
    return nearest


def _uniform(experts: int) -> Matrix:
    return np.full((experts, experts), 1 / experts)


def _checked(loads: ArrayLike) -> Matrix:
    shares = np.asarray(loads, dtype=float)
    if shares.ndim < 2 or not shares.size or not (shares >= 0).all():
        raise DemandError(f"loads of shape {shares.shape}", "give shares of experts, none negative")
    if not np.allclose(shares.sum(axis=-1), 1.0):
        raise DemandError("loads that do not sum to 1", "give shares of all tokens")
    return shares
