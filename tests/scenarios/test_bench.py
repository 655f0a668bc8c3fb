"""The bench: a figure's value follows what was measured."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from scenarios._bench import sizes
from testbed.core.packet_paths import paths_over
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.live.emulate import EmulatedRun
from testbed.model.predict import predict
from testbed.trust.outcome import Measures
from tests.testbed.cases import HEALTHY, queue_pairs_of, slowed
from topologies.rail import rail_fabric
from traffic.steps import single
from traffic.transports.loop import Health
from traffic.workloads.synthetic import uniform

SMALL = Experiment(rail_fabric(2, 2), single(uniform(4)), "rails", Dilation(1.0, 1.0))
LENDS_NOTHING = SimpleNamespace(wiring=SimpleNamespace(shapes={}))
"""What the bench asks a network."""


class SeenWatch:
    """A watch that sees what a test says."""

    unmet = ()

    def __init__(self, seen: Measures) -> None:
        self._seen = seen

    def measures(self, _emulation: EmulatedRun, _link_error: float) -> Measures:
        return self._seen


def emulation(slower: float) -> EmulatedRun:
    """Return what an emulation of `SMALL` would be that took so many times the prediction."""
    run = slowed(predict(SMALL), slower)
    queue_pairs = queue_pairs_of(SMALL)
    own = paths_over(SMALL.fabric)
    paths = {queue_pair: own[queue_pair] for queue_pair in queue_pairs}
    return EmulatedRun(run, paths, Health(), 1.0)


@pytest.mark.parametrize(
    ("stall_s", "value", "words"),
    [
        (0.0, 1.0, "faithful; boot "),
        (0.2, 0.5, "strained; the engine stood still for 0.20 s; boot "),
        (2.0, 0.0, "void; the engine stood still for 2.00 s; boot "),
    ],
)
def test_figure_of_the_128_servers_follows_the_verdict(
    monkeypatch: pytest.MonkeyPatch, stall_s: float, value: float, words: str
) -> None:
    """Everything but the boot and the emulation is real, on two servers."""
    monkeypatch.setattr(sizes, "scaled", lambda *_, **__: SMALL)
    monkeypatch.setattr(sizes, "Network", lambda *_: nullcontext(LENDS_NOTHING))
    monkeypatch.setattr(
        sizes, "Watch", lambda _network: nullcontext(SeenWatch(replace(HEALTHY, stall_s=stall_s)))
    )
    monkeypatch.setattr(sizes, "worst_link_error", lambda *_: 0.0)
    monkeypatch.setattr(sizes, "emulate", lambda *_, **__: emulation(1.6))
    measured, detail = sizes.servers128_verdict()
    assert measured == value
    assert detail.startswith(words)
