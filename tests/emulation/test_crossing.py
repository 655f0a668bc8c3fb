"""Orchestrated jobs on a booted DCN: kernels count over ToR uplinks what is counted to leave ToRs."""

from dataclasses import replace
from pathlib import Path

import pytest

from scenarios._infinitehbd.orchestration.crossing import crossings, wire_share
from scenarios._infinitehbd.orchestration.placements import (
    BEST,
    OPTIMISED,
    RANKED,
    UNCONSTRAINED,
    JobRequest,
    OrchestratedCluster,
)
from testbed.experiment.dilation import Dilation
from testbed.network.network import Network
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from topologies.addresses import interface

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=1e-4, volume=2e-2)
"""40 Mbit/s; 2 MB a message."""


def counted_bytes(network: Network) -> tuple[int, int]:
    """Return what the kernel counts at ToRs: from all NICs, and sent up; headers, acknowledgements too."""
    fabric = network.fabric
    spines = {switch.name for switch in fabric.switches if switch.tier == 1}
    at_tors = {port: fabric.peer(port).node for port in fabric.link_at if port.node.startswith("leaf")}
    rows = (line.split(":") for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:])
    columns = {name.strip(): list(map(int, text.split())) for name, text in rows}
    from_nics = sum(
        columns[interface(fabric, port)][0] for port, peer in at_tors.items() if peer not in spines
    )
    up = sum(columns[interface(fabric, port)][8] for port, peer in at_tors.items() if peer in spines)
    return from_nics, up


def test_kernels_count_over_uplinks_what_leaves_tors_and_what_crosses_takes_longer(
    sandbox: Box | None, machine: Machine
) -> None:
    request = JobRequest(OrchestratedCluster(16, 2, 8, tp_gpus=16), frozenset({3}), 75)
    found = {(each.numbering, each.placement): each for each in crossings(request, 3, 0)}
    none, best, ranked = (
        found[point] for point in ((RANKED, OPTIMISED), (BEST, UNCONSTRAINED), (RANKED, UNCONSTRAINED))
    )
    assert none.share == 0 < best.least < best.share < ranked.share
    first = replace(best.experiment, dilation=DILATION)
    with Network(first.fabric, DILATION.rate, host=first.host) as network:
        for each in (none, best, ranked):
            before = counted_bytes(network)
            outcome = tried(replace(each.experiment, dilation=DILATION), network, 0.0)
            from_nics, up = (after - now for after, now in zip(counted_bytes(network), before, strict=True))
            assert outcome.emulated is not None
            assert up / from_nics == pytest.approx(each.share, rel=0.03, abs=0.002)
            assert wire_share(outcome.emulated, network.fabric) == pytest.approx(
                each.share, rel=0.03, abs=0.002
            )
            assert machine.busy or outcome.cct_s == pytest.approx(each.busiest_s, rel=0.15)
