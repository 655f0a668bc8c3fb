"""How late the kernel forwards: hardly, unless a shaper stands still, which is then seen for as long."""

import time

import pytest

from testbed.machine.kernel import inside_namespace
from testbed.machine.netlink import Batch, shaper_request
from testbed.machine.pulse import FRAME, QUEUE_BYTES, ROUND_S, TICK_S, PulseWatch
from testbed.machine.residue import until
from tests.emulation.box import Box
from tests.emulation.machine import Machine

pytestmark = pytest.mark.emulation

STOOD_S = 0.3


def test_packets_are_late_while_a_shaper_stands_still_alone(sandbox: Box | None, machine: Machine) -> None:
    began_s = time.monotonic()
    with PulseWatch() as watch:
        assert until(lambda: time.monotonic() > began_s + 5 * ROUND_S, STOOD_S + 10)
        before_s = watch.longest_s
        with inside_namespace(watch.namespace):
            batch = Batch()
            slow = shaper_request(
                round(len(FRAME) / (STOOD_S + TICK_S)), len(FRAME), QUEUE_BYTES, change=True
            )
            batch.add_qdisc("slow a shaper down", slow, watch.shapers[0])
            batch.commit()
        assert until(lambda: watch.longest_s >= 0.9 * STOOD_S, 10.0)
    assert machine.busy or before_s < 2 * TICK_S
    assert watch.late_s >= watch.longest_s
