"""An all-to-all between nodes whose OCSTrx switch between rounds: packets take the closed form's time."""

from dataclasses import replace

import pytest

from scenarios._infinitehbd.exchange.all_to_all import DELAY, EXCHANGE, TWO_WAY, all_to_alls
from testbed.experiment.dilation import Dilation
from testbed.network.network import Network
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.machine import Machine

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=1e-5, volume=0.03)
"""32 Mbit/s a lane; 70 us of an OCSTrx are 0.21 s."""


@pytest.mark.real_cpus
def test_rounds_wait_for_their_circuits_and_take_their_closed_form(
    sandbox: Box | None, machine: Machine
) -> None:
    points = {point.scheme: point for point in all_to_alls([2], 4, [32])}
    first = replace(points[EXCHANGE].experiment, dilation=DILATION)
    seen = []
    with Network(first.fabric, DILATION.rate, host=first.host) as network:
        for scheme in (TWO_WAY, EXCHANGE, EXCHANGE):
            outcome = tried(replace(points[scheme].experiment, dilation=DILATION), network)
            assert outcome.run.messages["end_s"].notna().all()
            assert machine.busy or 0.9 < outcome.cct_s / points[scheme].closed_form_s < 1.2
            # Connections of round 1 end while dark, and the next exchange has some between the same ends.
            assert outcome.measures.retransmits == outcome.measures.switch_drops == 0
            seen.append(outcome.run)
    run = seen[-1]
    first_s, second_s = run.tasks.sort_values("start_s")["end_s"]
    lit = run.events[(run.events["what"] == "lit") & run.events["at_s"].between(first_s, second_s)]
    assert sorted(lit["which"].str.split(n=1).str[0]) == ["n0b1", "n3b0"]
    assert lit["at_s"].min() - first_s >= 0.98 * DELAY.mean_s
    later = run.messages[run.messages["node"] == "round 2"]
    assert later["end_s"].min() > lit["at_s"].max(), "every pair waits for one of the two"
