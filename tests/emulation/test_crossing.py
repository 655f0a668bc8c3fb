"""Orchestrated jobs on a booted DCN: kernels count over ToR uplinks what X_mate says leaves ToRs."""

from dataclasses import replace
from pathlib import Path

import pytest

from controller.schedulers.infinitehbd import FatTree
from scenarios._infinitehbd.crossing import Setting, crossed_share, crossings
from testbed.network.network import Network
from testbed.run.dilation import Dilation
from testbed.run.emulate import emulate
from tests.emulation.box import Box
from topologies.addresses import interface

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=1e-4, volume=2e-2)
"""40 Mbit/s; 2 MB a message."""


def sent_up_bytes(network: Network) -> int:
    """Return what the kernel counts as sent over all uplinks of ToRs, headers and acknowledgements too."""
    fabric = network.fabric
    tiers = {switch.name: switch.tier for switch in fabric.switches}
    up = [interface(fabric, port) for port in fabric.link_at if tiers.get(port.node) == 0
          and tiers.get(fabric.peer(port).node) == 1]  # fmt: skip
    rows = (line.split(":") for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:])
    sent = {name.strip(): int(columns.split()[8]) for name, columns in rows}
    return sum(sent[name] for name in up)


def test_kernels_count_over_uplinks_what_leaves_tors(sandbox: Box | None) -> None:
    setting = Setting(FatTree(16, 2, 8), frozenset({3}), hops=3, gpus_per_node=8, tp_gpus=16, share=0.75)
    found = [each for each in crossings(setting, 0) if each.figure == "X_mate"]
    assert min(each.share for each in found) == 0 < max(each.share for each in found)
    first = replace(found[0].experiment, dilation=DILATION)
    with Network(first.fabric, DILATION.rate, host=first.host) as network:
        for each in found:
            before = sent_up_bytes(network)
            run = emulate(replace(each.experiment, dilation=DILATION), network).run
            counted = sent_up_bytes(network) - before
            total = float(run.records["bytes"].sum()) * DILATION.volume
            assert crossed_share(run, network.fabric) == pytest.approx(each.share)
            assert each.share - 0.002 < counted / total < 1.05 * each.share + 0.01
