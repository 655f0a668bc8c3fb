"""Bookings of a message that chooses its lanes when their paths change under way."""

from types import SimpleNamespace
from typing import cast

import pytest

from testbed.core.backend import Left
from testbed.core.lanes import rename
from testbed.core.ops import Choosing
from testbed.core.state import State
from testbed.live.backend import LiveBackend
from traffic.spraying.minrtt import MinRtt
from traffic.transports.packet_feeder import PacketFeeder

LANE, OP, CHOSE_PS, NOW_PS = 5, 0, 100, 200


@pytest.mark.parametrize(("carried", "counts_from_ps"), [(0, CHOSE_PS), (8, NOW_PS)])
def test_bytes_on_the_way_count_from_when_they_were_sent_unless_others_arrived_before(
    carried: int, counts_from_ps: int
) -> None:
    lane = SimpleNamespace(number=LANE, is_sprayed=True, around=frozenset())
    ops = SimpleNamespace(
        choosing={OP: Choosing((LANE,), MinRtt(), 0)},
        chose_ps={OP: CHOSE_PS},
        put=lambda *_: None,
        landed=lambda *_: None,
    )
    lanes = SimpleNamespace(open={LANE: lane}, over={LANE: 0})
    backend = SimpleNamespace(packet_paths=SimpleNamespace(failed=frozenset("x")))
    state = cast(State, SimpleNamespace(now_ps=NOW_PS, ops=ops, lanes=lanes, backend=backend))
    steps = rename(state, everywhere=True)
    next(steps)
    with pytest.raises(StopIteration):
        steps.send([Left(OP, LANE, carried=carried)] if carried else [])
    assert ops.chose_ps == {OP: counts_from_ps}


def test_the_audit_hears_how_much_is_on_the_way_of_what_is_booked() -> None:
    feeders = {
        op: cast(PacketFeeder, SimpleNamespace(on_the_way={3: 40, 4: 70}.get, carried=lambda _op: {}))
        for op in (3, 4)
    }
    backend = cast(
        LiveBackend,
        SimpleNamespace(_choosing=feeders, on_the_way=50, _since_asked=lambda *_, **_named: []),
    )
    assert LiveBackend.carried(backend, [3]) == []
    assert backend.on_the_way == 50
    assert LiveBackend.carried(backend, [4]) == []
    assert backend.on_the_way == 70
