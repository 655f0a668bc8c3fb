"""The bench: a figure's value follows what was measured."""

from contextlib import nullcontext

import pytest

from scenarios import bench
from testbed.run.dilation import Dilation
from testbed.run.emulate import Emulation
from testbed.run.experiment import Experiment
from testbed.run.outcome import Measures
from testbed.run.packet_paths import computed_paths
from testbed.run.predict import predict
from tests.testbed.cases import queue_pairs_of, slowed
from topologies.rail import rail_fabric
from traffic.steps import single
from traffic.transports.engine import Health
from traffic.workloads.synthetic import uniform

SMALL = Experiment(rail_fabric(2, 2), single(uniform(4)), "rails", Dilation(1.0, 1.0))


class IdleWatch:
    """A watch that sees a machine with nothing else to do."""

    def measures(self, _emulation: Emulation, _link_error: float) -> Measures:
        return Measures()


def emulation(slower: float) -> Emulation:
    """Return what an emulation of `SMALL` would be that took so many times the prediction."""
    run = slowed(predict(SMALL), slower)
    queue_pairs = queue_pairs_of(SMALL)
    paths = dict(zip(queue_pairs, computed_paths(SMALL.fabric, queue_pairs), strict=True))
    return Emulation(run, paths, Health(), 1.0)


@pytest.mark.parametrize(
    ("slower", "value", "words"),
    [
        (1.0, 1.0, "faithful; boot "),
        (1.2, 0.5, "strained; it took 1.20 times the prediction; boot "),
        (1.6, 0.0, "void; it took 1.60 times the prediction; boot "),
    ],
)
def test_figure_of_the_128_servers_follows_the_verdict(
    monkeypatch: pytest.MonkeyPatch, slower: float, value: float, words: str
) -> None:
    """Everything but the boot and the emulation is real, on two servers."""
    monkeypatch.setattr(bench, "_scaled", lambda *_: SMALL)
    monkeypatch.setattr(bench, "Network", lambda *_: nullcontext())
    monkeypatch.setattr(bench, "Watch", lambda _network: nullcontext(IdleWatch()))
    monkeypatch.setattr(bench, "emulate", lambda *_, **__: emulation(slower))
    measured, detail = bench.servers128_verdict()
    assert measured == value
    assert detail.startswith(words)
