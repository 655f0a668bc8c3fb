"""What is checked of a demand matrix before it is scheduled."""

import math
from numbers import Real
from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topologies.errors import DemandError

Matrix = NDArray[np.float64]

SMALLEST, LARGEST = 1e-100, 1e100
"""Between these the largest entry must be, so that no sum, share or entry per delay leaves the doubles."""


def checked_demand(demand: ArrayLike, switches: int = 1, delay: float = 0.0) -> Matrix:
    """Return the demand as a float matrix, after checking all arguments of a scheduler.

    Parameters
    ----------
    demand
        What input port i owes output port j [seconds at line rate, or any one unit], n x n.
    switches
        How many parallel OCSes there are.
    delay
        Reconfiguration delay before every permutation [the demand's unit].

    Raises
    ------
    DemandError
        As `checked_matrix`; if all entries are below ``SMALLEST``, but not all zero; if there is no
        switch, or no whole number of them; if the delay is no number, negative or above ``LARGEST``.

    Examples
    --------
    >>> checked_demand([[0, 2], [1, 0]]).tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    matrix = checked_matrix(demand)
    if 0 < matrix.max() < SMALLEST:
        raise DemandError(
            f"a demand of at most {matrix.max():g}",
            f"take a unit in which its largest entry is {SMALLEST:g} or more",
        )
    _check_switches(switches)
    if not (isinstance(delay, Real) and math.isfinite(delay) and delay >= 0):
        raise DemandError(f"a reconfiguration delay of {delay}", "it must be a finite number, zero or more")
    if delay > LARGEST:
        raise DemandError(
            f"a reconfiguration delay of {delay:g}", f"take a unit in which it is at most {LARGEST:g}"
        )
    return matrix


def checked_matrix(demand: ArrayLike) -> Matrix:
    """Return the demand, or the part of one, as a float matrix.

    A part may hold nothing but entries below ``SMALLEST``: what is left of a larger demand.

    Raises
    ------
    DemandError
        If the matrix is not square, or has no port, or an entry is negative, infinite, above
        ``LARGEST`` or not a number.
    """
    try:
        matrix = np.array(demand, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DemandError(f"the demand matrix is not a table of numbers: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        shape = " x ".join(str(length) for length in matrix.shape) or "a single number"
        raise DemandError(f"a demand matrix of shape {shape}", "give one row and one column per port")
    bad = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))
    if bad.size:
        row, column = bad[0]
        raise DemandError(
            f"demand[{row}, {column}] is {matrix[row, column]}",
            "every entry must be a finite number, zero or more",
        )
    if matrix.max() > LARGEST:
        raise DemandError(
            f"a demand of up to {matrix.max():g}",
            f"take a unit in which its largest entry is {LARGEST:g} or less",
        )
    return matrix


def _check_switches(switches: int) -> None:
    try:
        number = index(switches)
    except TypeError as error:
        raise DemandError(f"a schedule for {switches} switches", "ask for a whole number of them") from error
    if number < 1:
        raise DemandError(f"a schedule for {switches} switches", "ask for at least one")
