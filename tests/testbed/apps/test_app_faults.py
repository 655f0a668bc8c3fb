"""Faults in an application's time, over a network that is not there: what is cut, killed, led around."""

import itertools
import math
from collections.abc import Collection

import pytest

from testbed.apps.app_faults import FaultsInTime, app_faults, at_real_times
from testbed.apps.app_record import AppEvent
from testbed.experiment.dilation import Dilation
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Link, Port
from topologies.rail import rail_fabric

FABRIC = rail_fabric(4, 2)


class Network:
    """Stands for a network: notes in order what happens to it."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.happened: list[str] = []

    def turn_links(self, links: Collection[Link], *, works: bool) -> None:
        """Note links that go down or up."""
        self.happened += [f"{link.a} {'up' if works else 'down'}" for link in links]

    def shape_link(self, port: Port, rate: float, loss: float) -> None:
        """Note a link that is slower."""
        self.happened.append(f"{port} at {rate:g}, loses {loss:g}")

    def follow(self, failed: Collection[Port]) -> None:
        """Note what switches and hosts go around."""
        self.happened.append(f"around {', '.join(map(str, failed)) or 'nothing'}")

    def kill(self, daemon: str, *, for_good: bool) -> None:
        """Note a daemon's end."""
        assert not for_good
        self.happened.append(f"{daemon} killed")

    def revive(self, daemon: str) -> None:
        """Note that it is back."""
        self.happened.append(f"{daemon} back")

    def mend(self) -> None:
        """Note that all works."""
        self.happened.append("mended")


@pytest.fixture
def network() -> Network:
    """Return a network that is not there."""
    return Network(FABRIC)


def faults_of(network: Network, *texts: str) -> FaultsInTime:
    """Return faults on a network."""
    end = lambda host: network.happened.append(f"processes of {host} end")  # noqa: E731
    return FaultsInTime(network, app_faults(texts, FABRIC), end)  # type: ignore[arg-type]


def test_a_nic_is_cut_when_it_is_due_and_led_around(network: Network) -> None:
    faults = faults_of(network, "nic:0:1@2s-3s")
    assert faults.next_s == 2.0
    assert faults.carry_out(lambda: 1.99) == []
    (failed,) = faults.carry_out(lambda: 2.01)
    assert failed == AppEvent(2.01, "failed", "nic:0:1@2s-3s")
    (back,) = faults.carry_out(lambda: 3.5)
    assert (back.what, faults.next_s) == ("mended", math.inf)
    assert network.happened == ["h0:1 down", "around h0:1", "h0:1 up", "around nothing"]


def test_a_server_loses_its_links_before_its_processes(network: Network) -> None:
    faults_of(network, "server:3@0.5s").carry_out(lambda: 1.0)
    assert network.happened == ["h3:0 down", "h3:1 down", "processes of 3 end", "around h3:0, h3:1"]


def test_a_server_whose_links_are_slower_keeps_its_processes(network: Network) -> None:
    faults_of(network, "server:3@0.5s=0.5").carry_out(lambda: 1.0)
    assert network.happened == ["h3:0 at 0.5, loses 0", "h3:1 at 0.5, loses 0", "around nothing"]


def test_nobody_is_asked_to_go_around_while_the_controller_is_gone(network: Network) -> None:
    faults = faults_of(network, "controller@1s-3s", "nic:0:0@2s")
    clock = itertools.chain([1.0], itertools.repeat(4.0))
    faults.carry_out(lambda: next(clock))
    happened = ["controller killed", "h0:0 down", "controller back", "around h0:0"]
    assert network.happened == happened


def test_faults_that_overlap_compose(network: Network) -> None:
    faults_of(network, "nic:0:0@1s-2s", "server:0@1.5s-3s").carry_out(lambda: 9.0)
    downs = [what for what in network.happened if not what.startswith("around")]
    assert downs == ["h0:0 down", "h0:1 down", "processes of 0 end", "h0:0 up", "h0:1 up"]


def test_faults_that_have_not_come_are_named_and_never_come(network: Network) -> None:
    faults = faults_of(network, "nic:0:0@1s", "nic:1:0@20s")
    faults.carry_out(lambda: 2.0)
    assert faults.missed == [AppEvent(20.0, "missed", "nic:1:0@20s")]
    faults.mend()
    assert network.happened == ["h0:0 down", "around h0:0", "h0:0 up", "mended", "around nothing"]
    assert faults.next_s == math.inf


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nic:0:1@40%", "how long an application takes is not known before; give seconds"),
        ("gpu:2@1s", "on no GPU of the fabric"),
        ("nic:9:1@1s", "there is none"),
        ("nic:0:1", "is not a valid fault"),
        ("nic:0:1@3s-2s", "is back before it fails"),
        ("spine0@3s", "is not a valid fault"),
    ],
)
def test_other_faults_are_refused(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        app_faults([text], FABRIC)


def test_a_prediction_has_real_times_since_the_job_began() -> None:
    (fault,) = app_faults(["nic:0:1@3s-5s"], FABRIC)
    when = at_real_times(fault, Dilation(1e-3, 1.0), begun_s=1.0).when
    assert (when.after_s, when.lasts_s) == pytest.approx((2e-3, 2e-3))
