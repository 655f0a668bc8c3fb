"""Delay and loss of links: which port gets what, what the kernel reads, and what is refused."""

import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from testbed.core.packet_paths import paths_over
from testbed.machine.netlink import TICK_NS
from testbed.network import netem as module
from testbed.network.netem import (
    MOST_DELAY_S,
    ORPHAN_DELAY_S,
    Netem,
    check_delays,
    check_netem,
    link_netems,
)
from topologies.errors import MachineError, ScenarioError
from topologies.fat_tree import fat_tree_fabric
from topologies.rail import rail_fabric
from traffic.spraying.policy import QueuePair
from traffic.transports.loop import STUCK_S

PLAIN = rail_fabric(2, 2)
IMPAIRED = PLAIN.with_links(delay_s=2e-6, loss=0.01)
DELAYED = PLAIN.with_links(delay_s=2e-6, loss=0.0)


@pytest.mark.parametrize(
    ("netem", "ticks", "loss"),
    [
        (Netem(1e-3, 0.01), 15625, 0.01),
        (Netem(0.0, 0.5), 0, 0.5),
        (Netem(ORPHAN_DELAY_S), 1, 0.0),
        (Netem(1e-12), 1, 0.0),
    ],
)
def test_the_kernel_reads_what_was_meant(netem: Netem, ticks: int, loss: float) -> None:
    message = tcmsg(netem.request())
    message.decode()
    assert message.get_attr("TCA_KIND") == "netem"
    options = message.get_attr("TCA_OPTIONS")
    assert options["delay"] == ticks, f"in ticks of {TICK_NS} ns"
    assert options["loss"] / (2**32 - 1) == pytest.approx(loss)


def test_delays_are_dilated_and_losses_are_not() -> None:
    assert link_netems(PLAIN, 1000.0) == {}
    netems = link_netems(IMPAIRED, 1000.0)
    assert netems.keys() == IMPAIRED.link_at.keys()
    assert set(netems.values()) == {Netem(2e-3, 0.01)}
    assert set(link_netems(IMPAIRED, 1000.0, loss=False).values()) == {Netem(2e-3, 0.0)}
    assert set(link_netems(IMPAIRED, None).values()) == {Netem()}
    assert set(link_netems(IMPAIRED, 1000.0, delays=False).values()) == {Netem(0.0, 0.01)}
    assert link_netems(DELAYED, 1000.0, delays=False) == {}


def test_packets_leave_their_senders_account_at_packet_switches_only() -> None:
    orphaned = link_netems(PLAIN, None, orphan=True)
    assert {port.node for port in orphaned} == set(PLAIN.switch_index)
    assert set(orphaned.values()) == {Netem(ORPHAN_DELAY_S)}
    both = link_netems(IMPAIRED, 1000.0, orphan=True)
    assert set(both.values()) == {Netem(2e-3, 0.01)}, "a delay does that anyway"


@pytest.mark.parametrize(
    ("by_links", "time_factor", "by"),
    [(True, 1.0, "netem"), (True, 1e7, "netem"), (False, 1e7, "the engine of datagrams")],
)
def test_a_delay_that_cannot_be_honoured_is_refused_with_those_that_can(
    by_links: bool, time_factor: float, by: str
) -> None:
    with pytest.raises(ScenarioError, match=f"where {by} honours .* give a --link-delay-us of") as caught:
        check_delays(IMPAIRED, time_factor, by_links=by_links)
    least_us, most_us = (
        float(word) for word in str(caught.value).split("of ")[-1].split(",")[0].split(" to ")
    )
    for delay_us in (1.1 * least_us, 0.9 * most_us):
        check_delays(PLAIN.with_links(delay_s=delay_us * 1e-6, loss=0.0), time_factor, by_links=by_links)


def test_nothing_is_given_up_for_its_delay() -> None:
    tree = fat_tree_fabric(4, gpus=1)
    paths = paths_over(tree, datagrams=True)
    longest = max(len(paths.crossed(QueuePair(tree.nics[0], far))) for far in tree.nics[1:])
    assert 3 * longest * MOST_DELAY_S < STUCK_S, "an announcement, a grant, and bytes"


def test_the_engine_has_no_least_delay() -> None:
    check_delays(IMPAIRED, 1.0, by_links=False)


def test_no_netem_is_said_where_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "kernel_has_netem", lambda: False)
    check_netem(link_netems(PLAIN, None))
    check_netem(link_netems(DELAYED, None, delays=False))
    for netems in (
        link_netems(DELAYED, None),
        link_netems(IMPAIRED, None, delays=False),
        link_netems(PLAIN, None, orphan=True),
    ):
        with pytest.raises(MachineError, match=r"no netem.* \(--transport credit\)"):
            check_netem(netems)
