"""Dilation: how much slower and smaller the emulation is than what it stands for."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topologies.errors import ScenarioError


@dataclass(frozen=True, slots=True)
class Dilation:
    """The scale of an emulation; users write and read real units only.

    Raises
    ------
    ScenarioError
        If a factor is not a positive finite number.

    Examples
    --------
    A tenth of the rate and a hundredth of the bytes: all takes a tenth of the time, delays too.

    >>> dilation = Dilation(rate=0.1, volume=0.01)
    >>> dilation.emulated_s(2.0)
    0.2
    """

    rate: float
    """Emulated rate over real rate."""
    volume: float
    """Emulated bytes over real bytes."""

    def __post_init__(self) -> None:
        """Check the factors."""
        for name, factor in (("rate", self.rate), ("volume", self.volume)):
            if not (math.isfinite(factor) and factor > 0):
                raise ScenarioError(f"a {name} dilation of {factor:g}", "give a positive number")

    @property
    def time(self) -> float:
        """Emulated time over real time, of transfers and of every delay alike."""
        return self.volume / self.rate

    def emulated_s(self, real_s: float) -> float:
        """Return how long something real takes in the emulation [s]."""
        return real_s * self.time

    def emulated_bytes(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return sizes at emulated scale, in sum what the real ones are, but at least a byte each.

        Where the volume makes less than a byte of one, the bytes that fill it up come on top.
        """
        edges = np.rint(np.cumsum(sizes) * self.volume).astype(np.int64)
        return np.asarray(np.maximum(np.diff(edges, prepend=0), 1))

    def real_s(self, emulated_s: float) -> float:
        """Return how long something emulated would take in reality [s]."""
        return emulated_s / self.time


UNSCALED = Dilation(1.0, 1.0)
"""Reality; an experiment at this scale is emulated at one that the machine carries."""
