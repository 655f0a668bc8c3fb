"""A user's own congestion control: what it answers is looked at before it is used."""

from collections.abc import Callable, Sequence
from math import isnan
from numbers import Real

import numpy as np

from topologies.errors import ScenarioError
from topologies.own import own_code
from traffic.congestion.control import Acknowledged, CongestionControl, Lost, Pipe, Sent
from traffic.transports.transport import UNLIMITED_BYTES

PARTS = "on_events", "may_send", "next_s", "rates_changed"


def checked(name: str, make: Callable[..., CongestionControl]) -> Callable[..., CongestionControl]:
    """Return what makes a user's own congestion control, checked whenever it is used."""

    def made(pipe: Pipe, rng: np.random.Generator) -> CongestionControl:
        with own_code("transport", name):
            return OwnControl(name, make(pipe, rng))

    return made


class OwnControl:
    """A congestion control whose answers are checked.

    Parameters
    ----------
    name
        How it was named: ``module:Class``.
    own
        The user's.
    """

    def __init__(self, name: str, own: CongestionControl) -> None:
        self._name, self._own = name, own

    def on_events(
        self,
        sent: Sequence[Sent],
        acknowledged: Sequence[Acknowledged],
        lost: Sequence[Lost],
        now_s: float,
    ) -> None:
        """Have it hear what happened."""
        with own_code("transport", self._name):
            self._own.on_events(sent, acknowledged, lost, now_s)

    def may_send(self, now_s: float) -> int:
        """Return what it allows, whole bytes; ScenarioError if that is not a number of bytes."""
        with own_code("transport", self._name):
            size = self._own.may_send(now_s)
        self._check(size, "may_send")
        return int(min(max(size, 0), UNLIMITED_BYTES))

    def next_s(self, now_s: float) -> float:
        """Return when it is to be asked; ScenarioError if that is not a time."""
        with own_code("transport", self._name):
            next_s = self._own.next_s(now_s)
        self._check(next_s, "next_s")
        return float(next_s)

    def rates_changed(self, pipe: Pipe) -> None:
        """Have it go by another path."""
        with own_code("transport", self._name):
            self._own.rates_changed(pipe)

    @property
    def window_bytes(self) -> float:
        """What it says may be on its way [bytes]; infinity if it says nothing."""
        with own_code("transport", self._name):
            window = getattr(self._own, "window_bytes", float("inf"))
        self._check(window, "window_bytes")
        return float(window)

    def _check(self, answer: object, what: str) -> None:
        if isinstance(answer, Real) and not isnan(answer):
            return
        raise ScenarioError(
            f"{what} of the transport {self._name!r} returned {answer!r}", "return a number, not NaN"
        )
