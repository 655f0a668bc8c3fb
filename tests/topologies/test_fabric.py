"""What holds for every fabric, whoever built it, and what no fabric may be."""

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.topologies.strategies import fabrics
from topologies.big_switch import big_switch_fabric
from topologies.errors import FabricError
from topologies.fabric import Fabric, Link, Nic, Port, Server, Switch
from topologies.fat_tree import fat_tree_fabric
from topologies.khop_ring import KHopRing, khop_ring_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.mfabric import mfabric_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.patch_panel import patch_panel_fabric
from topologies.rail import rail_fabric

SERVERS = (Server("h0", 1, 2, 1e12), Server("h1", 1, 2, 1e12))
SWITCH = Switch("leaf0", 3)
OCS = Switch("leaf0", 3, "ocs", permitted=((1, 0, -1), (-1, 2, 1)))
LINKS = (Link(Port("h0", 0), Port("leaf0", 0), 1e9), Link(Port("h1", 0), Port("leaf0", 1), 1e9))
PAIR = Fabric("pair", SERVERS, (SWITCH,), LINKS)
LIGHT = Fabric("light", SERVERS, (OCS,), LINKS)


@settings(deadline=None)
@given(fabrics)
def test_json_brings_back_an_equal_value(fabric: Fabric) -> None:
    assert Fabric.from_json(fabric.to_json()) == fabric
    assert hash(Fabric.from_json(fabric.to_json())) == hash(fabric)


@given(fabrics)
def test_every_nic_has_a_link_and_every_port_one_at_most(fabric: Fabric) -> None:
    ends = [port for link in fabric.links for port in (link.a, link.b)]
    assert len(ends) == len(set(ends)) == len(fabric.link_at)
    for nic in fabric.nics:
        port = fabric.nic_port(nic)
        assert fabric.peer(fabric.peer(port)) == port
        assert fabric.peer(port).node in fabric.switch_index


@given(fabrics)
def test_no_switch_uses_more_ports_than_it_has(fabric: Fabric) -> None:
    for switch in fabric.switches:
        used = list(fabric.used_ports(switch.name))
        assert all(0 <= port.number < switch.ports for port in used)
        assert len(used) <= switch.ports


@given(fabrics)
def test_graph_is_the_same_fabric(fabric: Fabric) -> None:
    graph = fabric.graph()
    assert set(graph) == {*fabric.server_index, *fabric.switch_index}
    assert graph.number_of_edges() == len(fabric.links)
    for node, degree in graph.degree():
        assert degree == len(list(fabric.used_ports(node)))
    wired = {frozenset(data["ports"]) for _, _, data in graph.edges(data=True)}
    assert wired == {frozenset((link.a, link.b)) for link in fabric.links}


@given(fabrics)
def test_servers_are_joined(fabric: Fabric) -> None:
    assert nx.is_connected(fabric.graph())


@given(fabrics)
def test_gpus_are_numbered_server_by_server(fabric: Fabric) -> None:
    assert fabric.gpus == len(fabric.gpu_servers) == sum(server.gpus for server in fabric.servers)
    assert list(fabric.gpu_servers) == sorted(fabric.gpu_servers)
    for gpu, server in enumerate(fabric.gpu_servers):
        nic = fabric.pinned_nic(gpu)
        assert nic.server == server
        assert 0 <= nic.nic < fabric.servers[server].nics


@pytest.mark.parametrize(
    ("gpus", "nics", "beside"),
    [(4, 2, [0, 0, 1, 1]), (8, 8, list(range(8))), (3, 2, [0, 1, 1]), (2, 4, [0, 2]), (9, 8, [*range(8), 7])],
)
def test_gpus_that_follow_each_other_share_a_nic(gpus: int, nics: int, beside: list[int]) -> None:
    fabric = big_switch_fabric(2, nics=nics, gpus=gpus)
    assert [fabric.pinned_nic(gpu) for gpu in range(gpus)] == [Nic(0, nic) for nic in beside]


@given(st.integers(1, 9), st.integers(1, 9))
def test_gpus_and_nics_are_beside_each_other_by_one_map(gpus: int, nics: int) -> None:
    fabric = big_switch_fabric(2, nics=nics, gpus=gpus)
    for nic in fabric.nics:
        gpu = fabric.pinned_gpu(nic)
        assert fabric.gpu_servers[gpu] == nic.server
        assert fabric.pinned_gpu(fabric.pinned_nic(gpu)) == gpu
    owners = {fabric.pinned_gpu(nic) for nic in fabric.nics}
    for gpu in range(fabric.gpus):
        assert fabric.pinned_gpu(fabric.pinned_nic(gpu)) == max(o for o in owners if o <= gpu)


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"servers": ()}, "no server"),
        ({"servers": (SERVERS[0], SERVERS[0])}, "named 'h0'"),
        ({"switches": (SWITCH, replace(SWITCH, name="h1"))}, "named 'h1'"),
        ({"switches": (SWITCH, replace(SWITCH, name="leaf-00000000"))}, "'leaf-00000000'"),
        (
            {"switches": (SWITCH, Switch("leaf-000000", 101))},
            "'leaf-000000' has an interface 'leaf-000000-p100', and the kernel takes 15 characters",
        ),
        ({"switches": (SWITCH, replace(SWITCH, name=""))}, "''"),
        ({"switches": (SWITCH, replace(SWITCH, name="-x"))}, "a node is named '-x'"),
        ({"switches": (SWITCH, replace(SWITCH, name="a/b"))}, "a node is named 'a/b'"),
        ({"switches": (SWITCH, replace(SWITCH, name=".."))}, "a node is named '..'"),
        ({"switches": (SWITCH, replace(SWITCH, name="a\n"))}, r"a node is named 'a\n'"),
        ({"switches": (SWITCH, replace(SWITCH, name="\x1b[1m"))}, r"a node is named '\x1b[1m'"),
        ({"switches": (SWITCH, replace(SWITCH, name="\ud800"))}, r"a node is named '\ud800'"),
        (
            {"switches": (SWITCH, replace(SWITCH, name="h" * 5000))},
            "a node is named 'hhhhhhhhhhhhhhhhhhhhhhhh",
        ),
        ({"switches": (replace(SWITCH, ports=0),)}, "switch leaf0 of tier 0 has 0 ports"),
        ({"switches": (replace(SWITCH, ports=10**9),)}, "switch leaf0 of tier 0 has 1000000000 ports"),
        ({"switches": (replace(SWITCH, tier=-1),)}, "switch leaf0 of tier -1"),
        ({"name": "a\nb"}, r"a fabric is named 'a\nb'"),
        ({"name": "\ud800"}, r"a fabric is named '\ud800'"),
        ({"name": ""}, "a fabric is named ''"),
        ({"servers": (SERVERS[0], replace(SERVERS[1], nics=0))}, "h1 has 0 NICs"),
        ({"servers": (SERVERS[0], replace(SERVERS[1], gpus=0))}, "0 GPUs"),
        ({"servers": (SERVERS[0], replace(SERVERS[1], nvlink_bps=0))}, "NVLink of server h1"),
        ({"servers": (SERVERS[0], replace(SERVERS[1], nics=2))}, "NIC h1:1 has no link"),
        ({"links": LINKS[:1]}, "NIC h1:0 has no link"),
        ({"links": (LINKS[0], replace(LINKS[1], b=Port("leaf0", 0)))}, "share the port leaf0:0"),
        (
            {"links": (LINKS[0], replace(LINKS[1], b=Port("leaf0", 3)))},
            "ends at port 3 of leaf0, which has 3; count",
        ),
        (
            {"links": (LINKS[0], replace(LINKS[1], b=Port("leaf1", 0)))},
            "ends at 'leaf1', which is neither server nor switch",
        ),
        ({"links": (LINKS[0], replace(LINKS[1], b=Port("leaf0", -1)))}, "ends at port -1 of leaf0"),
        ({"links": (LINKS[0], replace(LINKS[1], rate_bps=0))}, "h1:0 - leaf0:1 has a rate of 0 bit/s"),
        ({"links": (LINKS[0], replace(LINKS[1], rate_bps=-1e9))}, "rate of -1e+09"),
        ({"links": (LINKS[0], replace(LINKS[1], rate_bps=math.nan))}, "rate of nan"),
        ({"links": (LINKS[0], replace(LINKS[1], rate_bps=math.inf))}, "rate of inf"),
        ({"links": (LINKS[0], replace(LINKS[1], rate_bps=0.5))}, "rate of 0.5 bit/s; give a rate from 1 to"),
        ({"links": (LINKS[0], replace(LINKS[1], rate_bps=1e19))}, "rate of 1e+19"),
        ({"links": (LINKS[0], replace(LINKS[1], rate_bps=1))}, "h0:0 - leaf0:0 has 1e+09 bit/s, and h1:0 - "),
        ({"links": (LINKS[0], replace(LINKS[1], b=Port("\x1b[1m", 1)))}, r"a link ends at '\x1b[1m', which"),
        ({"links": (LINKS[0], Link(Port("leaf0", 1), Port("leaf0", 2), 1e9))}, "joins leaf0 with itself"),
        ({"links": (Link(Port("h0", 0), Port("h1", 0), 1e9),)}, "h0:0 - h1:0 joins two servers"),
        ({"servers": (SERVERS[0], replace(SERVERS[1], nics=1 << 60))}, "h1 has 1152921504606846976 NICs"),
        ({"servers": (SERVERS[0], replace(SERVERS[1], gpus=10**9))}, "a fabric of 1000000002 GPUs"),
        ({"servers": (SERVERS[0], replace(SERVERS[1], nvlink_bps=1e-300))}, "h1 has a rate of 1e-300 bit/s"),
        ({"buffer_bytes": 0}, "hold 0 bytes"),
        ({"buffer_bytes": 5 << 30}, "hold 5368709120 bytes"),
        ({"switches": (replace(SWITCH, permitted=((1, 0, -1),)),)}, "packet switch leaf0 is limited to 1"),
        ({"switches": (replace(OCS, permitted=((1, 0),)),)}, "OCS leaf0 of 3 ports cannot show (1, 0)"),
        ({"switches": (replace(OCS, permitted=((2, 2, -1),)),)}, "cannot show (2, 2, -1)"),
        ({"switches": (replace(OCS, permitted=((1, 0, 2),)),)}, "cannot show (1, 0, 2)"),
        ({"switches": (replace(OCS, permitted=((1, 0, -1), (1, 3, -1))),)}, "cannot show (1, 3, -1)"),
        ({"switches": (replace(OCS, permitted=((1, -2, -1),)),)}, "cannot show (1, -2, -1)"),
    ],
)
def test_what_cannot_be_wired_is_named(change: dict[str, object], culprit: str) -> None:
    with pytest.raises(FabricError) as error:
        replace(PAIR, **change)  # type: ignore[arg-type]
    assert culprit in str(error.value)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    "build",
    [
        lambda n: rail_fabric(n, 4),
        lambda n: rail_fabric(4, 4, n),
        lambda n: leaf_spine_fabric(n, 1),
        lambda n: leaf_spine_fabric(n, n),
        lambda n: leaf_spine_fabric(4, 2, n),
        lambda n: fat_tree_fabric(2 * n),
        lambda n: fat_tree_fabric(4, edge_nics=n),
        lambda n: big_switch_fabric(n),
        lambda n: patch_panel_fabric(n),
        lambda n: parallel_ocs_fabric(n, 2),
        lambda n: parallel_ocs_fabric(2, n),
        lambda n: mfabric_fabric(n),
        lambda n: khop_ring_fabric(KHopRing(n, 4, 2)),
        lambda n: khop_ring_fabric(KHopRing(8, n, n)),
    ],
)
def test_a_builder_refuses_more_than_a_fabric_may_have_before_it_makes_it(
    build: Callable[[int], Fabric],
) -> None:
    with pytest.raises(FabricError, match=r"a fabric of \d+(\.\.\.)? links"):
        build(99_999_999_999_999_999_999)


def test_a_fabric_of_32768_gpus_fits() -> None:
    assert fat_tree_fabric(52, servers=4096, nics=8).gpus == 32_768


def test_a_cable_within_one_server_is_refused() -> None:
    link = Link(Port("h0", 0), Port("h0", 1), 1e9)
    with pytest.raises(FabricError, match="the link h0:0 - h0:1 joins h0 with itself"):
        Fabric("loop", (replace(SERVERS[0], nics=2),), (), (link,))


Place = tuple[str | int, ...]


def changed(document: object, place: Place, value: object) -> str:
    """Return a document with another value at a place, as text."""
    copy = json.loads(json.dumps(document))
    at = copy
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    return json.dumps(copy)


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (("format",), 99, "format: found 99, expected 1"),
        (("format",), None, "format: found null, expected 1"),
        (("name",), 7, "name: found 7, expected a text"),
        (("colour",), "red", "colour: unknown key"),
        (("buffer_bytes",), 1.5, "buffer_bytes: found 1.5, expected a whole number"),
        (("servers",), {}, "servers: found an object, expected a list"),
        (("servers", 0), "h0", "servers[0]: found 'h0', expected an object"),
        (("servers", 0, "gpus"), True, "servers[0].gpus: found true, expected a whole number"),
        (("servers", 0, "nics"), 1.5, "servers[0].nics: found 1.5, expected a whole number"),
        (("servers", 0, "nvlink_bps"), "fast", "servers[0].nvlink_bps: found 'fast', expected a number"),
        (("servers", 0, "nvlink_bps"), 10**400, "servers[0].nvlink_bps: found 1000000000000000000000000000"),
        (
            ("servers", 0, "nvlink_bps"),
            math.nan,
            "servers[0].nvlink_bps: found NaN, expected a finite number",
        ),
        (("switches", 0, "kind"), "eps", "switches[0].kind: found 'eps', expected 'packet' or 'ocs'"),
        (("switches", 0, "ports"), "3", "switches[0].ports: found '3', expected a whole number"),
        (("switches", 0, "tier"), None, "switches[0].tier: found null, expected a whole number"),
        (("links", 0, "a"), "h0", "links[0].a: found 'h0', expected a list"),
        (("links", 0, "a"), ["h0"], "links[0].a[1]: is missing"),
        (("links", 0, "a"), ["h0", 0.5], "links[0].a[1]: found 0.5, expected a whole number"),
        (("links", 0, "b"), [0, 0], "links[0].b[0]: found 0, expected a text"),
    ],
)
def test_json_of_another_form_is_refused_in_a_sentence(place: Place, value: object, why: str) -> None:
    with pytest.raises(FabricError) as error:
        Fabric.from_json(changed(json.loads(PAIR.to_json()), place, value))
    assert str(error.value).startswith(f"the text is not a valid fabric: {why}")
    assert error.value.hint


def test_whole_numbers_may_be_written_as_people_write_them() -> None:
    text = PAIR.to_json().replace('"gpus": 2', '"gpus": 2e0')
    assert text != PAIR.to_json()
    assert Fabric.from_json(text) == PAIR


def test_ocs_permits_what_one_of_its_permutations_has() -> None:
    assert OCS.permits([])
    assert OCS.permits([(0, 1), (1, 0)])
    assert OCS.permits([(2, 1)])
    assert not OCS.permits([(0, 1), (2, 1)])
    assert not OCS.permits([(0, 2)])
    assert not OCS.permits([(3, 0)])
    assert replace(OCS, permitted=()).permits([(0, 2), (2, 0)])


def test_permitted_permutations_are_read_back_and_left_out_where_there_are_none() -> None:
    assert Fabric.from_json(LIGHT.to_json()) == LIGHT
    assert json.loads(LIGHT.to_json())["switches"][0]["permitted"] == [[1, 0, -1], [-1, 2, 1]]
    assert "permitted" not in PAIR.to_json()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("any", "switches[0].permitted: found 'any', expected a list"),
        (["any"], "switches[0].permitted[0]: found 'any', expected a list"),
        ([[1, 0, None]], "switches[0].permitted[0][2]: found null, expected a whole number"),
        ([[1, 0, -1.5]], "switches[0].permitted[0][2]: found -1.5, expected a whole number"),
    ],
)
def test_permitted_permutations_of_another_form_are_refused(value: object, why: str) -> None:
    text = changed(json.loads(LIGHT.to_json()), ("switches", 0, "permitted"), value)
    with pytest.raises(FabricError) as error:
        Fabric.from_json(text)
    assert str(error.value).startswith(f"the text is not a valid fabric: {why}; ")


def test_a_missing_field_and_nesting_without_end_are_refused() -> None:
    document = json.loads(PAIR.to_json())
    del document["switches"][0]["ports"]
    for text, why in ((json.dumps(document), r"switches\[0\].ports: is missing"), ("[" * 100_000, "deep")):
        with pytest.raises(FabricError, match=f"the text is not a valid fabric: .*{why}"):
            Fabric.from_json(text)


def places(document: object, here: Place = ()) -> Iterator[Place]:
    """Yield where in a document there are values."""
    items = document.items() if isinstance(document, dict) else enumerate(document)  # type: ignore[arg-type]
    for step, value in items:
        yield (*here, step)
        if isinstance(value, dict | list):
            yield from places(value, (*here, step))


garbage = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 3), st.integers(), st.floats(), st.text(max_size=3),
        st.sampled_from(["h0", "leaf0", "ocs0", "ocs", "eps", 10**400, 1 << 62]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "a"]), inner),
    max_leaves=4,
)  # fmt: skip


@settings(deadline=None, max_examples=examples(50, 300))
@given(fabrics, st.data())
def test_changed_json_is_a_fabric_error_or_a_sound_fabric(fabric: Fabric, data: st.DataObject) -> None:
    document = json.loads(fabric.to_json())
    text = fabric.to_json()
    for _ in range(data.draw(st.integers(1, 3))):
        text = changed(document, data.draw(st.sampled_from(list(places(document)))), data.draw(garbage))
        document = json.loads(text)
    with contextlib.suppress(FabricError):
        read = Fabric.from_json(text)
        assert Fabric.from_json(read.to_json()) == read
        assert all(read.peer(read.peer(port)) == port != read.peer(port) for port in read.link_at)
        assert all(type(port.number) is int for port in read.link_at)
        assert {switch.kind for switch in read.switches} <= {"packet", "ocs"}


@given(st.one_of(st.text(), st.builds(repr, st.dictionaries(st.text(), st.integers()))))
def test_other_text_is_no_fabric(text: str) -> None:
    with pytest.raises(FabricError, match="not a valid fabric"):
        Fabric.from_json(text)


@settings(deadline=None)
@given(fabrics, st.data())
def test_damaged_json_is_a_fabric_error_or_a_fabric(fabric: Fabric, data: st.DataObject) -> None:
    text = fabric.to_json()
    place = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:place] + data.draw(st.sampled_from(['"', "{", "-", "9", "null", ""])) + text[place + 1 :]
    with contextlib.suppress(FabricError):
        Fabric.from_json(damaged)


@pytest.mark.parametrize(("delay_s", "loss"), [(0.0, 0.0), (1e-6, 0.0), (0.0, 0.25), (2e-6, 0.01)])
def test_delay_and_loss_of_links_are_read_back(delay_s: float, loss: float) -> None:
    fabric = rail_fabric(2, 2).with_links(delay_s=delay_s, loss=loss)
    assert Fabric.from_json(fabric.to_json()) == fabric
    assert ("delay_s" in fabric.to_json(), "loss" in fabric.to_json()) == (delay_s > 0, loss > 0)


@pytest.mark.parametrize(
    ("delay_s", "loss", "said"),
    [
        (-1e-6, 0.0, "a delay of -1e-06 s"),
        (math.inf, 0.0, "a delay of inf s"),
        (1e308, 0.0, "a delay of 1e.308 s; give it none, or at most 1 s"),
        (math.nan, 0.0, "a delay of nan s"),
        (0.0, 1.0, "a loss of 1"),
        (0.0, -0.1, "a loss of -0.1"),
        (0.0, math.nan, "a loss of nan"),
    ],
)
def test_a_delay_or_loss_that_makes_no_sense_is_refused(delay_s: float, loss: float, said: str) -> None:
    with pytest.raises(FabricError, match=said):
        rail_fabric(2, 2).with_links(delay_s=delay_s, loss=loss)


@pytest.mark.parametrize("servers_forward", [False, True])
def test_whether_servers_forward_is_read_back_and_left_out_where_they_do_not(servers_forward: bool) -> None:
    fabric = replace(PAIR, servers_forward=servers_forward)
    assert Fabric.from_json(fabric.to_json()) == fabric
    assert ("servers_forward" in fabric.to_json()) == servers_forward


@pytest.mark.parametrize("value", [1, "yes", None])
def test_whether_servers_forward_is_true_or_false(value: object) -> None:
    text = changed(json.loads(PAIR.to_json()), ("servers_forward",), value)
    with pytest.raises(FabricError, match=r"servers_forward: found .*, expected true or false"):
        Fabric.from_json(text)
