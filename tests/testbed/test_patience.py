"""How long an emulation waits for bytes that make no progress."""

import pytest

from testbed.experiment.dilation import Dilation
from testbed.live.backend import patience_s
from topologies.fabric import Port
from traffic.effects import Down
from traffic.faults import Fault


@pytest.mark.parametrize(("known_s", "waits_s"), [((), 15.0), ((0.001,), 25.0), ((0.0, 0.001, 0.0005), 25.0)])
def test_what_a_fault_stops_is_not_stuck_before_that_is_known(
    known_s: tuple[float, ...], waits_s: float
) -> None:
    faults = tuple(
        Fault(str(number), (Down((Port("h0", 0),)),), detect_s=each) for number, each in enumerate(known_s)
    )
    assert patience_s(15.0, faults, Dilation(1e-4, 1.0)) == pytest.approx(waits_s)
