"""Drawings of fabrics: each server, switch, link and circuit is there once, and no word covers another."""

import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

from testbed.report.fabric_drawing import draw_fabric, fabric_caption, fabric_figure
from testbed.report.fabric_places import Places
from testbed.report.page import FORMATS
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Link, Port, Server, Switch
from topologies.fat_tree import fat_tree_fabric
from topologies.khop_ring import KHopRing, khop_ring_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.light import Configuration, duplex
from topologies.mfabric import mfabric_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.patch_panel import facing, patch_panel_fabric, sharded_panel_fabric
from topologies.rail import rail_fabric

UNEVEN = Fabric(
    "uneven",
    (Server("a", 1, 1, 1e12), Server("b", 2, 40, 1e12)),
    (Switch("x", 4), Switch("alone", 2, tier=5), Switch("light", 2, "ocs", tier=3)),
    (
        Link(Port("a", 0), Port("x", 0), 1e9),
        Link(Port("b", 0), Port("x", 1), 2e9),
        Link(Port("b", 1), Port("x", 2), 3e9),
        Link(Port("x", 3), Port("light", 0), 4e9),
    ),
)
"""Servers that differ, four rates, a switch without links, and an OCS behind a packet switch."""
WHOLE = [
    rail_fabric(8, 4),
    fat_tree_fabric(4),
    leaf_spine_fabric(8, 4, 2, nics=2, uplink_bps=50e9),
    big_switch_fabric(1),
    parallel_ocs_fabric(8, 2, packet_switch=True, packet_bps=25e9),
    patch_panel_fabric(12, nics=4),
    sharded_panel_fabric(4),
    mfabric_fabric(8, 4),
    khop_ring_fabric(KHopRing(4, 4, 2, closed=False)),
    UNEVEN,
]
"""Small enough to be drawn as a whole."""
LARGE = [
    rail_fabric(32, 8),
    fat_tree_fabric(8),
    mfabric_fabric(128, 16),
    khop_ring_fabric(KHopRing(8, 4, 2)),
    rail_fabric(512, 8, 64),
]
LIT: list[tuple[Fabric, Configuration]] = [
    (
        parallel_ocs_fabric(8, 4),
        {f"ocs{k}": tuple((i, (i + 1 + k) % 8) for i in range(8)) for k in range(4)},
    ),
    (parallel_ocs_fabric(8, 2), {"ocs1": duplex([(0, 5), (1, 7)])}),
    (patch_panel_fabric(12, nics=4), {"panel0": duplex([(4 * i, (4 * i + 5) % 48) for i in range(12)])}),
    (mfabric_fabric(8, 4), {"ocs0": duplex([(0, 6), (1, 12)])}),
    (sharded_panel_fabric(4), {"flip0": facing(4, 0), "panel0": duplex([(0, 5)])}),
]


def ids(artist: Artist) -> list[str]:
    """Return the names of all artists in one."""
    own = [gid] if (gid := artist.get_gid()) else []
    return own + [name for child in artist.get_children() for name in ids(child)]


def named(figure: Figure, kind: str) -> Counter[str]:
    """Return how often each artist of a kind is drawn, by its name without the kind."""
    return Counter(name.partition("|")[2] for name in ids(figure) if name.partition("|")[0] == kind)


def ends(figure: Figure, gid: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return both ends of a drawn line."""
    (found,) = (patch for patch in figure.axes[0].patches if patch.get_gid() == gid)
    assert isinstance(found, PathPatch)
    vertices = np.asarray(found.get_path().vertices)
    return tuple(vertices[0]), tuple(vertices[-1])


@pytest.mark.parametrize("fabric", WHOLE, ids=lambda fabric: fabric.name)
def test_all_of_a_small_fabric_is_drawn_once(fabric: Fabric) -> None:
    figure = fabric_figure(fabric)
    assert named(figure, "server") == Counter(server.name for server in fabric.servers)
    for kind in ("packet", "ocs"):
        assert named(figure, kind) == Counter(s.name for s in fabric.switches if s.kind == kind)
    assert named(figure, "link") == Counter(map(str, fabric.links))
    gpus = sum(server.gpus for server in fabric.servers if server.gpus <= 16)
    assert sum(named(figure, "gpu").values()) == gpus


@pytest.mark.parametrize("fabric", LARGE, ids=lambda fabric: f"{fabric.name} of {len(fabric.servers)}")
def test_of_a_large_fabric_a_part_is_drawn_and_the_rest_is_counted(fabric: Fabric) -> None:
    figure, places = fabric_figure(fabric), Places(fabric)
    drawn = [named(figure, kind) for kind in ("server", "packet", "ocs", "link")]
    assert max(count for counter in drawn for count in counter.values()) == 1
    nodes = sum(len(counter) for counter in drawn[:3])
    assert nodes + sum(more.count for more in places.more) == len(fabric.servers) + len(fabric.switches)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert [str(more) for more in places.more] == [text for text in texts if text.startswith("...")]
    between = {str(link) for link in fabric.links if {link.a.node, link.b.node} <= places.boxes.keys()}
    assert set(drawn[3]) == between


@pytest.mark.parametrize("fabric", [*WHOLE, *LARGE], ids=lambda fabric: f"{fabric.name} {fabric.gpus}")
def test_the_caption_counts_what_the_fabric_has(fabric: Fabric) -> None:
    servers, *rest = fabric_caption(fabric).split("; ")
    assert servers.startswith(f"{len(fabric.servers):,} server")
    assert sum(int(n) for n in re.findall(r"(\d+) (?!.bit|x)", rest[0])) == len(fabric.switches)
    nics = [server.nics for server in fabric.servers]
    assert f"{max(nics)} NIC" in servers


@pytest.mark.parametrize(("fabric", "lit"), LIT, ids=lambda value: getattr(value, "name", ""))
def test_a_circuit_is_drawn_between_the_links_of_the_nodes_that_it_joins(
    fabric: Fabric, lit: Configuration
) -> None:
    figure = fabric_figure(fabric, lit)
    for ocs, circuits in lit.items():
        for a, b in circuits:
            both = (b, a) in circuits
            first, last = sorted((a, b)) if both else (a, b)
            gid = f"{ocs}|{first}{'<>' if both else '>'}{last}"
            assert named(figure, "circuit")[gid] == 1
            assert named(figure, "arrow")[f"circuit|{gid}"] == (not both)
            for at, port in zip(
                ends(figure, f"circuit|{gid}"), (Port(ocs, first), Port(ocs, last)), strict=True
            ):
                link = fabric.link_at[port]
                assert at in ends(figure, f"link|{link}")
                assert fabric.peer(port).node in named(figure, "server") + named(figure, "ocs")
    count = sum(map(len, lit.values()))
    assert fabric_caption(fabric, lit).endswith(f"; {count} circuits lit")


@pytest.mark.parametrize("fabric", [*WHOLE, *LARGE], ids=lambda fabric: f"{fabric.name} {fabric.gpus}")
def test_no_box_stands_on_another(fabric: Fabric) -> None:
    places = Places(fabric)
    for one, other in combinations(places.boxes.values(), 2):
        apart_x = abs(one.x - other.x) >= (one.wide + other.wide) / 2
        apart_y = abs(one.y - other.y) >= (one.high + other.high) / 2
        assert apart_x or apart_y, (one, other)
    assert all(0 <= x <= places.wide for x, _y in places.ports.values())


@pytest.mark.parametrize("fabric", [*WHOLE[:4], *LARGE[:4]], ids=lambda f: f"{f.name} {f.gpus}")
def test_no_word_is_written_over_another(fabric: Fabric) -> None:
    figure = fabric_figure(fabric)
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    texts = [*figure.axes[0].texts, *figure.texts, *figure.legends]
    boxes = [text.get_window_extent(renderer) for text in texts]
    assert all(not one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0 for box in boxes)


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_has_the_format_of_its_ending(form: str, tmp_path: Path) -> None:
    draw_fabric(big_switch_fabric(2), tmp_path / f"a.{form}")
    begins = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    assert (tmp_path / f"a.{form}").read_bytes().startswith(begins[form])


@pytest.mark.parametrize("path", ["a.jpg", "a", "nowhere/a.png"])
def test_another_ending_or_a_folder_that_is_not_there_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no drawing is made as|cannot be written"):
        draw_fabric(big_switch_fabric(2), tmp_path / path)
    assert list(tmp_path.iterdir()) == []
