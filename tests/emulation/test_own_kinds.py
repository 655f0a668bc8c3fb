"""Five kinds of a user's own, a file each outside of the checkout: emulated, predicted, audited together."""

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.experiment.circuits_registry import CIRCUITS
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.network.network import Network
from testbed.trust.trial import tried
from tests.docs.pages import file_of
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from topologies.own_routing import ROUTING
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.collectives.own_pattern import PATTERN
from traffic.collectives.point_to_point import PointToPoint
from traffic.effect_json import effect_of_document
from traffic.faults import Fault, When
from traffic.job import Collective, Job, chain
from traffic.metrics import communication_s
from traffic.scheme_setup import ROUTED
from traffic.transports.host_settings import TransportSetup

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

KINDS = ("circuits", "routing", "pattern", "fault", "transport")
FABRIC = replace(parallel_ocs_fabric(4, 2), servers_forward=True)
DILATION = Dilation(2e-4, 0.4)
"""NICs have 20 Mbit/s. An OCS that is dark for 25 us is so for 50 ms, and a hold of 200 us takes 0.4 s."""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the pages' code in a folder on Python's path."""
    for kind in KINDS:
        code = file_of(f"docs/howto/own_{kind}.md", f"own_{kind}.py")
        (tmp_path / f"own_{kind}.py").write_text(code)
    (tmp_path / "d_mod_k.py").write_text(file_of("docs/reference/extension_points.md", "d_mod_k.py"))
    monkeypatch.syspath_prepend(tmp_path)


def experiment() -> Experiment:
    """Return an AllReduce through servers that forward, over circuits that follow it, while a link is dead.

    That is since two effects that leave less than half of its rate compose.
    """
    pattern = PATTERN.value("own_pattern:Doubling", {"members": (0, 1, 2, 3), "bytes": 4_000_000})
    flaps = effect_of_document({"effect": "own_fault:Flaps", "fields": {"ports": [["h3", 1]], "left": 0.4}})
    nodes = tuple(Collective(f"gradients {number}", pattern) for number in range(2))
    return Experiment(
        FABRIC,
        chain("two of my own", 4, nodes),
        ROUTED,
        DILATION,
        circuits=CIRCUITS.named("own_circuits:ByBytesOwed", {"hold_s": 2e-4}),
        routing=ROUTING.named("own_routing:Valiant"),
        transport=TransportSetup("own_transport:Aimd"),
        faults=(Fault("flaps", (flaps, flaps), When(after_s=3e-4, lasts_s=4e-4), 1e-5),),
    )


def test_five_kinds_are_emulated_predicted_and_audited(
    sandbox: Box | None, machine: Machine, in_folder: None
) -> None:
    asked = experiment()
    assert {name.partition(":")[0] for name in asked.own} == {f"own_{kind}" for kind in KINDS}
    assert Experiment.from_json(asked.to_json()) == asked
    with Network(FABRIC, DILATION.rate, host=asked.host, routing=asked.bound_routing) as network:
        outcome = tried(asked, network)
    assert outcome.is_sound, outcome.verdict.reasons
    for run in outcome.runs.values():
        assert run.audit is not None
        assert run.audit.findings == ()
        assert run.messages["end_s"].notna().all()
        assert (run.events["what"] == "lit").any()
        assert {"failed", "detected", "gone around"} <= set(run.events["what"])
    ratio = communication_s(outcome.run.tables) / communication_s(outcome.predicted.tables)
    assert machine.busy or 0.9 < ratio < 3.5, "the transport halves its share for queue pairs that idle"


def test_packet_switches_have_the_rules_of_a_users_routing(
    sandbox: Box | None, machine: Machine, in_folder: None
) -> None:
    fabric = rail_fabric(4, 2, 2)
    messages = tuple((gpu, (gpu + 3) % 8, 4_000_000) for gpu in range(8))
    job = Job("shift", 8, (Collective("shift", PointToPoint(messages)),))
    asked = Experiment(fabric, job, "ecmp", DILATION, routing=ROUTING.named("d_mod_k:DModK"))
    with Network(fabric, DILATION.rate, host=asked.host, routing=asked.bound_routing) as network:
        outcome = tried(asked, network)
    assert outcome.is_sound, outcome.verdict.reasons
    assert (outcome.run.messages["path"] == outcome.predicted.messages["path"]).all()
    assert outcome.free is None, "the paths are those of the table, not of a hash"
    for path in outcome.run.tables.paths:
        if len(path) > 2:
            assert path[2].node == f"spine{fabric.nic_at(fabric.peer(path[-1])).server % 2}"
    ratio = communication_s(outcome.run.tables) / communication_s(outcome.predicted.tables)
    assert machine.busy or 0.95 < ratio < 1.15
