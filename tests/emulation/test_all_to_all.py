"""An all-to-all between nodes whose OCSTrx switch between rounds: packets take the closed form's time."""

import pytest

from controller.circuits.devices import ReconfigurationDelay
from testbed.network.network import Network
from testbed.run.dilation import Dilation
from testbed.run.live_backend import LiveBackend
from tests.emulation.box import Box
from tests.testbed.all_to_all_cases import DELAY_S, exchange, over_a_ring, sent_s

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=1e-5, volume=0.02)
"""32 Mbit/s a lane; 70 us of an OCSTrx are 0.14 s."""
LIGHT_S = 10 * DELAY_S
"""Six OCSes are lit one after the other beside their delay."""


@pytest.mark.real_cpus
def test_rounds_wait_for_their_circuits_and_take_their_closed_form(sandbox: Box | None) -> None:
    cases = [exchange(2, light_s=LIGHT_S), over_a_ring(2, both_ways=True, light_s=LIGHT_S)]
    runs = []
    with Network(cases[0].fabric, DILATION.rate) as network:
        delay = ReconfigurationDelay("ocstrx", DILATION.emulated_s(DELAY_S))
        for ocs in cases[0].fabric.switches:
            network.northbound.set_delay(ocs.name, delay)
        for case in cases:
            with LiveBackend(network, DILATION) as backend:
                runs.append(case.run(backend))
    for case, run in zip(cases, runs, strict=True):
        assert run.messages["end_s"].notna().all()
        assert 0.9 < sent_s(run) / case.closed_form_s < 1.25
    first, second = runs[0].tasks[runs[0].tasks["gpu"] == -1].sort_values("start_s").itertuples()
    lit = runs[0].events[(runs[0].events["what"] == "lit") & (runs[0].events["at_s"] > first.end_s)]
    assert lit["which"].str.split(n=1).str[0].tolist() in (["n0b1", "n3b0"], ["n3b0", "n0b1"])
    assert lit["at_s"].max() - first.end_s >= DELAY_S
    begins = runs[0].messages[runs[0].messages["node"] == second.node]
    assert begins["end_s"].min() > lit["at_s"].min(), "nothing arrives in the dark"
