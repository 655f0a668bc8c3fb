"""How queue pairs weigh that share by what they have left, if they are of several communicators.

Within one communicator they weigh by what each has left, so that those which start together at a NIC end
together. Between communicators that would give a NIC to the longest backlog: a short ring beside a long
all-to-all would take as long as that. So the queue pair of each communicator that has most left weighs as
much as that of any other, and the others of a communicator in proportion.
"""

import numpy as np
from numpy.typing import NDArray


def fair_weights(left_bytes: NDArray[np.float64], communicator: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weight of each queue pair that shares with the others.

    Parameters
    ----------
    left_bytes
        What each has yet to deliver, not negative, shape (queue pairs,) [bytes].
    communicator
        The number of each one's communicator, from 0.

    Returns
    -------
    NDArray
        What is left of it, if all are of one communicator; shape (queue pairs,) [bytes].

    Examples
    --------
    >>> fair_weights(np.array([900.0, 300.0, 3.0, 1.5]), np.array([0, 0, 1, 1])).tolist()
    [900.0, 300.0, 900.0, 450.0]
    """
    if not len(left_bytes) or (communicator == communicator[0]).all():
        return left_bytes
    most = np.zeros(int(communicator.max()) + 1)
    np.maximum.at(most, communicator, left_bytes)
    mine = most[communicator]
    return np.asarray(left_bytes * np.divide(most.max(), mine, out=np.ones(len(mine)), where=mine > 0))
