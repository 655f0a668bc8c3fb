"""A user's own congestion control: each of its answers is checked before it is used."""

from collections.abc import Callable, Iterable, Sequence
from math import inf, isnan
from numbers import Real

import numpy as np

from topologies.errors import ScenarioError
from topologies.own import OwnCode
from traffic.congestion.control import (
    Acknowledged,
    CongestionControl,
    Granted,
    Lost,
    Pipe,
    ReceiverControl,
    Sent,
)
from traffic.transports.transport import UNLIMITED_BYTES

PARTS = "on_events", "may_send", "next_s", "rates_changed"
GRANTED_PARTS = "announcement", "on_granted"
"""What it has besides, where receivers grant."""
RECEIVER_PARTS = "expect", "on_announced", "on_arrived", "grants", "granted_bytes", "rates_changed"


def checked(name: str, make: Callable[..., CongestionControl]) -> Callable[..., CongestionControl]:
    """Return the factory of a user's own congestion control, checked whenever it is used."""

    def made(pipe: Pipe, rng: np.random.Generator, *seen: object) -> CongestionControl:
        own = _Own(name).asked(make, pipe, rng, *seen)
        return OwnGranted(name, own) if isinstance(own, Granted) else OwnControl(name, own)

    return made


def checked_receiver(
    name: str, make: Callable[[float, int], ReceiverControl[object, object]]
) -> Callable[[float, int], ReceiverControl[object, object]]:
    """Return the factory of its receivers, checked likewise."""
    return lambda rate_bytes_s, packet_bytes: OwnReceiver(
        name, _Own(name).asked(make, rate_bytes_s, packet_bytes)
    )


def checked_overview(name: str, make: Callable[..., object]) -> Callable[..., object]:
    """Return the factory of what its congestion controls share, checked likewise."""
    return lambda *seen: _Own(name).asked(make, *seen)


class _Own(OwnCode):
    """A user's code, by the name ``module:Class``."""

    def __init__(self, name: str) -> None:
        super().__init__("transport", name)

    def number(self, answer: object, of: str, unit: str) -> float:
        """Return an answer that is a number; ScenarioError if it is none."""
        if isinstance(answer, Real) and not self.asked(isnan, answer):  # an integer may be too large
            return answer if isinstance(answer, int) else float(answer)
        found = "NaN" if isinstance(answer, Real) else f"an object of type {type(answer).__name__}"
        raise ScenarioError(
            f"{of} of the transport {self._name!r} is {found}, not a number of {unit}",
            f"return a number of {unit}: infinity is one, NaN and None are not",
        )


class OwnControl(_Own):
    """A congestion control whose answers are checked.

    Parameters
    ----------
    name
        How it was named: ``module:Class``.
    own
        The user's.
    """

    def __init__(self, name: str, own: CongestionControl) -> None:
        super().__init__(name)
        self._control = own

    def on_events(
        self,
        sent: Sequence[Sent],
        acknowledged: Sequence[Acknowledged],
        lost: Sequence[Lost],
        now_s: float,
    ) -> None:
        """Have it hear what happened."""
        self.asked(self._control.on_events, sent, acknowledged, lost, now_s)

    def may_send(self, now_s: float) -> int:
        """Return the bytes that it allows: whole ones, none if they are negative."""
        size = self.number(self.asked(self._control.may_send, now_s), "may_send", "bytes")
        return int(min(max(size, 0), UNLIMITED_BYTES))

    def next_s(self, now_s: float) -> float:
        """Return when it is to be asked; in the next turn if that is over."""
        return self.number(self.asked(self._control.next_s, now_s), "next_s", "seconds")

    def rates_changed(self, pipe: Pipe) -> None:
        """Have it go by another path."""
        self.asked(self._control.rates_changed, pipe)

    @property
    def window_bytes(self) -> float:
        """The window that it names [bytes], at least nothing; infinity if it names none."""
        window = self.asked(getattr, self._control, "window_bytes", inf)
        return max(self.number(window, "window_bytes", "bytes"), 0.0)


class OwnGranted(OwnControl):
    """One that asks its receiver; parameters are those of `OwnControl`."""

    def __init__(self, name: str, own: CongestionControl) -> None:
        super().__init__(name, own)
        assert isinstance(own, Granted)
        self._granted: Granted[object, object] = own

    def announcement(self, total_bytes: int, sent_bytes: int) -> object | None:
        """Return its announcement, if it has news."""
        return self.asked(self._granted.announcement, total_bytes, sent_bytes)

    def on_granted(self, grant: object) -> None:
        """Have it hear a grant."""
        self.asked(self._granted.on_granted, grant)


class OwnReceiver(_Own):
    """A receiver whose answers are checked.

    Parameters
    ----------
    name
        How the congestion control was named: ``module:Class``.
    own
        The user's.
    """

    def __init__(self, name: str, own: ReceiverControl[object, object]) -> None:
        super().__init__(name)
        self._receiver = own
        self._expected = set[int]()

    def expect(self, source: int) -> None:
        """Have it record a source."""
        self._expected.add(source)
        self.asked(self._receiver.expect, source)

    def on_announced(self, source: int, announcement: object) -> None:
        """Have it hear an announcement."""
        self.asked(self._receiver.on_announced, source, announcement)

    def on_arrived(self, source: int, size: int) -> None:
        """Have it hear that bytes are no longer on their way."""
        self.asked(self._receiver.on_arrived, source, size)

    def grants(self, now_s: float) -> Iterable[tuple[int, object]]:
        """Return its grants, to sources that it knows."""
        granted = self.asked(lambda: [(source, grant) for source, grant in self._receiver.grants(now_s)])
        if any(self.asked(self._is_strange, source) for source, _ in granted):
            raise ScenarioError(
                f"the receiver of the transport {self._name!r} granted something to a source that does "
                "not send to it",
                "grant to sources of which it heard by expect",
            )
        return granted

    def _is_strange(self, source: int) -> bool:
        return source not in self._expected

    def granted_bytes(self, source: int) -> int:
        """Return the bytes that it granted a source."""
        size = self.number(self.asked(self._receiver.granted_bytes, source), "granted_bytes", "bytes")
        return int(min(max(size, 0), UNLIMITED_BYTES))

    def rates_changed(self, rate_bytes_s: float) -> None:
        """Have it grant at another rate."""
        self.asked(self._receiver.rates_changed, rate_bytes_s)
