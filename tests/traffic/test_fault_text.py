"""Faults as people write them: what is written happens, and what is no fault is refused in a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Link, Nic, Port, Server, Switch
from topologies.rail import rail_fabric
from traffic.effects import Effect, Lossy, Slow
from traffic.fault_text import UNITS_S, WrittenFault

FABRIC = rail_fabric(4, 3, 2)
PREDICTED_S = 0.02


@given(server=st.integers(0, 3), nic=st.integers(0, 2), begin=st.integers(0, 200), more=st.integers(1, 200))
def test_shares_are_of_the_prediction(server: int, nic: int, begin: int, more: int) -> None:
    found = WrittenFault(f"nic:{server}:{nic}@{begin}%-{begin + more}%").over(FABRIC, PREDICTED_S)
    assert found.ports == (FABRIC.nic_port(Nic(server, nic)),)
    assert found.when.after_s == pytest.approx(begin * PREDICTED_S / 100)
    assert found.when.lasts_s == pytest.approx(more * PREDICTED_S / 100)


@given(value=st.floats(0, 1e3, allow_subnormal=False), unit=st.sampled_from(sorted(UNITS_S)))
def test_times_have_units_and_need_no_prediction(value: float, unit: str) -> None:
    found = WrittenFault(f"gpu:5@{value:f}{unit}").over(FABRIC, float("nan"))
    assert found.when.after_s == pytest.approx(float(f"{value:f}") * UNITS_S[unit])
    assert (found.gpus, found.ports, found.when.lasts_s) == ((5,), (), None)


def test_a_server_takes_its_gpus_along_unless_it_is_back() -> None:
    gone, back = (WrittenFault(f"server:2@{times}").over(FABRIC, PREDICTED_S) for times in ("1%", "1%-2%"))
    assert gone.ports == back.ports == tuple(Port("h2", nic) for nic in range(3))
    assert (gone.gpus, back.gpus) == ((6, 7, 8), ())


@pytest.mark.parametrize(
    "text",
    [
        "link:leaf1-spine0@5%",
        "link:spine0-leaf1@5%",
        "link:leaf1:4@5%",
        "link:spine0:1@5%",
        "port:leaf1:4@5%",
    ],
)
def test_links_are_named_by_their_nodes_or_a_port(text: str) -> None:
    (port,) = WrittenFault(text).over(FABRIC, PREDICTED_S).ports
    assert {port, FABRIC.peer(port)} == {Port("leaf1", 4), Port("spine0", 1)}


def test_nodes_of_links_may_have_hyphens_in_their_names() -> None:
    ends = [(Port("h0", 0), Port("tor-a", 0)), (Port("tor-a", 1), Port("tor-a-b", 1))]
    links = tuple(Link(a, b, 1e9) for a, b in ends)
    fabric = Fabric("hyphens", (Server("h0", 1, 1, 1e9),), (Switch("tor-a", 2), Switch("tor-a-b", 2)), links)
    assert WrittenFault("link:tor-a-b-tor-a@5%").over(fabric, 1.0).ports == (Port("tor-a", 1),)


NIC, UPLINK = (Port("h3", 1),), (Port("leaf0", 4),)


@pytest.mark.parametrize(
    ("text", "effect", "lasts_s"),
    [
        ("nic:3:1@40%-70%=0.5", Slow(NIC, 0.5), 0.3 * PREDICTED_S),
        ("nic:3:1@40%=1e-3", Slow(NIC, 1e-3), None),
        ("nic:3:1@1e-3s-2e-3s=0.25", Slow(NIC, 0.25), 1e-3),
        ("link:leaf0:4@40%-70%=0.5", Slow(UPLINK, 0.5), 0.3 * PREDICTED_S),
        ("port:leaf0:4@40%=loss:0.01", Lossy(UPLINK, 0.01), None),
        ("link:leaf0-spine0@2ms-3ms=loss:1e-4", Lossy((Port("leaf0", 4),), 1e-4), 1e-3),
        ("server:3@40%=0.5", Slow(tuple(Port("h3", nic) for nic in range(3)), 0.5), None),
    ],
)
def test_links_go_on_slower_or_lose_packets(text: str, effect: Effect, lasts_s: float | None) -> None:
    written = WrittenFault(text)
    found = written.over(FABRIC, PREDICTED_S)
    assert found.effects == (effect,), "and no GPU of a server is gone"
    assert found.when.lasts_s == (None if lasts_s is None else pytest.approx(lasts_s))
    assert (found.name, found.ports, found.gpus, found.only_impairs) == (text, (), (), True)
    assert found.loses == written.loses == isinstance(effect, Lossy)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("=0", "a link is slowed to 0 of its rate"),
        ("=1", "a link is slowed to 1 of its rate"),
        ("=1.5", "a link is slowed to 1.5 of its rate"),
        ("=loss:0", "a link is to lose packets with probability 0"),
        ("=loss:1", "a link is to lose packets with probability 1"),
        *[
            (end, "is not a valid fault")
            for end in (
                "=",
                "=-1",
                "=nan",
                "=inf",
                "=half",
                "=loss:",
                "=loss:-1",
                "=loss",
                "=0.5=0.5",
                "=50%",
            )
        ],
    ],
)
@pytest.mark.parametrize("what", ["nic:0:0@3%", "server:1@3%-5%"])
def test_shares_and_losses_that_make_no_sense_are_refused(what: str, end: str, why: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        WrittenFault(what + end)
    assert why in caught.value.sentence
    assert what in caught.value.sentence
    assert caught.value.hint


@pytest.mark.parametrize("what", ["gpu:3", "controller", "switches"])
@pytest.mark.parametrize("end", ["=0.5", "=loss:0.01"])
def test_only_links_are_slowed(what: str, end: str) -> None:
    with pytest.raises(
        ScenarioError, match="only links can be slowed, or lose packets; name nic, link, port"
    ):
        WrittenFault(f"{what}@40%{end}")


def test_times_may_have_exponents() -> None:
    found = WrittenFault("nic:0:0@1e-3s-2e-3s").over(FABRIC, PREDICTED_S)
    assert (found.when.after_s, found.when.lasts_s) == (1e-3, 1e-3)


@pytest.mark.parametrize("daemon", ["controller", "switches"])
def test_daemons_are_killed_by_name(daemon: str) -> None:
    assert WrittenFault(f"{daemon}@40%").over(FABRIC, PREDICTED_S).daemon == daemon


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "nic:3:1",
        "nic:3:1@40",
        "nic:3:1@4 0%",
        "moon:1@3%",
        "nic@3%-",
        "nic:1:1@-3%",
        f"nic:{'9' * 5000}:1@3%",
    ],
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="is not a valid fault") as caught:
        WrittenFault(text)
    assert "WHAT@TIME" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("nic:4:0", "server 4 of 4: there is none"),
        ("nic:0:3", "NIC 3 of 3: there is none on server 0"),
        ("nic:0", "'0' is not SERVER:NIC"),
        ("nic:0:0:0", "'0:0:0' is not SERVER:NIC"),
        ("server:4", "server 4 of 4: there is none"),
        ("server:x", "'x' is not the number of a server"),
        ("gpu:12", "GPU 12 of 12: there is none"),
        ("link:leaf0-leaf1", "no link joins 'leaf0-leaf1'"),
        ("port:leaf0:99", "'leaf0:99' is not a port with a link"),
        ("link:leaf0:99", "'leaf0:99' is not a port with a link"),
        ("port:h0", "'h0' is not a port with a link"),
        ("controller:1", "there is one controller, and no '1'"),
    ],
)
def test_what_the_fabric_lacks_is_refused(what: str, why: str) -> None:
    with pytest.raises(ScenarioError) as error:
        WrittenFault(f"{what}@3%").over(FABRIC, PREDICTED_S)
    assert error.value.sentence == f"'{what}@3%' on fabric 'rail': {why}"


def test_what_is_back_before_it_fails_is_refused() -> None:
    with pytest.raises(ScenarioError, match="is back before it fails"):
        WrittenFault("nic:0:0@3%-2%").over(FABRIC, PREDICTED_S)
