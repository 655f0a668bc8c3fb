"""What links' delay and loss do to a prediction and to a bound, by hand and as properties."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.trust.outcome import bound_s
from tests.examples import examples
from topologies.fabric import Fabric, Port
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.metrics import communication_s
from traffic.path_effects import path_effects
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import uniform

RATE_BPS = 100e9


def experiment(fabric: Fabric, scheme: str = "rails") -> Experiment:
    """Return an all-to-all on a fabric."""
    return Experiment(fabric, single(uniform(fabric.gpus)), scheme, Dilation(1.0, 1.0))


@pytest.mark.parametrize(("transport", "ways"), [("tcp", 1), ("credit", 3)])
def test_one_message_takes_its_bytes_its_losses_and_its_way_as_by_hand(transport: str, ways: int) -> None:
    fabric = rail_fabric(2, 1, 0, rate_bps=RATE_BPS)
    matrix = np.array([[0, 10_000_000], [0, 0]])
    job, setup = single(Demand("one", matrix)), TransportSetup(transport)
    plain = Experiment(fabric, job, "rails", Dilation(1.0, 1.0), transport=setup)
    sending_s = 8 * 10_000_000 / RATE_BPS
    assert communication_s(predict(plain).tables) == pytest.approx(sending_s)
    impaired = replace(plain, fabric=fabric.with_links(delay_s=5e-6, loss=0.1))
    # Two links: 10 us one way, and there and back before where receivers grant; 0.9 x 0.9 of what is sent
    # gets through, so 1 / 0.81 as much is sent.
    assert communication_s(predict(impaired).tables) == pytest.approx(sending_s / 0.81 + ways * 10e-6)
    assert bound_s(impaired) == pytest.approx(sending_s + 10e-6)


@pytest.mark.parametrize("scheme", ["ecmp", "rails", "reps", "minrtt", "plb", "pxn"])
@given(delay_us=st.floats(0, 100), loss=st.floats(0, 0.2))
@settings(max_examples=examples(5, 10), deadline=None)
def test_delay_and_loss_only_ever_add_and_the_bound_stays_below(
    scheme: str, delay_us: float, loss: float
) -> None:
    plain = experiment(rail_fabric(3, 2, 2), scheme)
    impaired = replace(plain, fabric=plain.fabric.with_links(delay_s=delay_us * 1e-6, loss=loss))
    before_s, after_s = communication_s(predict(plain).tables), communication_s(predict(impaired).tables)
    # Every path has two links or four; each loses its share of what is sent. Receivers grant: three ways.
    assert before_s * (1 - 1e-9) <= after_s <= before_s / (1 - loss) ** 4 + 3 * 4e-6 * delay_us + 1e-12
    assert bound_s(plain) <= bound_s(impaired) <= after_s * (1 + 1e-9)


def test_each_link_counts_once_for_each_way_that_crosses_it() -> None:
    fabric = rail_fabric(2, 2, 1)
    slow = replace(fabric.link_at[Port("spine0", 0)], delay_s=1.0, loss=0.5)
    uneven = replace(fabric, links=tuple(slow if link.a == slow.a else link for link in fabric.links))
    over, past = (Port("leaf0", 2), Port("spine0", 1)), (Port("leaf1", 2), Port("spine0", 0))
    effects = path_effects([(Port("h0", 0), *over), (Port("h0", 1), *past), (Port("h0", 0),)], uneven)
    assert effects.delay_s.tolist() == [1.0, 1.0, 0.0]
    assert effects.delivered.tolist() == [0.5, 0.5, 1.0]
