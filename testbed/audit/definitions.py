"""What each pattern owes, as it is defined beside it; never by its operations."""

from collections.abc import Callable

from traffic.collectives.all_to_all import AllToAll, owed_in_all_to_all
from traffic.collectives.fan import Fan, owed_in_fan
from traffic.collectives.node_all_to_all import (
    ExchangeRound,
    RingAllToAll,
    owed_in_exchange_round,
    owed_in_ring_all_to_all,
)
from traffic.collectives.owed import Owed
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint, owed_point_to_point
from traffic.collectives.ring import Ring, owed_in_ring

DEFINITIONS: dict[type, Callable[..., Owed]] = {
    AllToAll: owed_in_all_to_all,
    ExchangeRound: owed_in_exchange_round,
    Fan: owed_in_fan,
    PointToPoint: owed_point_to_point,
    Ring: owed_in_ring,
    RingAllToAll: owed_in_ring_all_to_all,
}
"""By class. What a user derives from one of them is another pattern."""


def owed_by(pattern: Pattern) -> Owed | None:
    """Return what a pattern owes, from its definition; None for a user's own."""
    define = DEFINITIONS.get(type(pattern))
    return define(pattern) if define else None
