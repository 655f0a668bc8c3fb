"""`mn --custom topologies/mn.py`: read as mn reads it, and built as Mininet's Topo without root."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools import CHECKOUT

FILE = CHECKOUT / "topologies" / "mn.py"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the file defines when executed as mn does: its text, in a namespace with no __file__."""
    customs: dict[str, Any] = {}
    exec(compile(FILE.read_text(), str(FILE), "exec"), customs, customs)  # as mn does
    return customs


def test_topos_is_the_only_public_name(names: dict[str, Any]) -> None:
    assert [name for name in names if not name.startswith("_")] == ["topos"]
    assert list(names["topos"]) == ["rail", "fat_tree", "leaf_spine", "big_switch", "parallel_ocs"]


@pytest.mark.parametrize(
    ("name", "arguments", "hosts", "switches", "links"),
    [
        ("rail", (4, 2), 4, 6, 16),
        ("fat_tree", (4,), 16, 20, 48),
        ("leaf_spine", (4, 2), 4, 4, 8),
        ("big_switch", (3,), 3, 1, 3),
        ("parallel_ocs", (3, 2), 3, 2, 6),
    ],
)
def test_topo_is_the_fabric(
    names: dict[str, Any], name: str, arguments: tuple[int, ...], hosts: int, switches: int, links: int
) -> None:
    topo = names["topos"][name](*arguments)
    assert (len(topo.hosts()), len(topo.switches()), len(topo.links())) == (hosts, switches, links)
    dpids = [topo.nodeInfo(switch)["dpid"] for switch in topo.switches()]
    assert sorted(int(dpid, 16) for dpid in dpids) == list(range(1, switches + 1))
    assert all(len(dpid) == 16 for dpid in dpids)


def test_ports_and_rates_are_the_fabrics(names: dict[str, Any]) -> None:
    topo = names["topos"]["rail"](2, 2, 1, mbps=40, uplink_bps=200e9)
    links = {
        (info["node1"], info["port1"], info["node2"], info["port2"], info["bw"])
        for _, _, info in topo.links(withInfo=True)
    }
    assert links == {
        ("h0", 0, "leaf0", 1, 40.0),
        ("h0", 1, "leaf1", 1, 40.0),
        ("h1", 0, "leaf0", 2, 40.0),
        ("h1", 1, "leaf1", 2, 40.0),
        ("leaf0", 3, "spine0", 1, 80.0),
        ("leaf1", 3, "spine0", 2, 80.0),
    }


@pytest.mark.parametrize(
    ("name", "arguments", "options", "culprit"),
    [
        ("rail", (0, 2), {}, "0 servers"),
        ("rail", (2.5, 2), {}, "float"),
        ("rail", (), {}, "'servers' and 'rails'"),
        ("rail", (2, 2), {"colour": 1}, "colour"),
        ("rail", (2, 2), {"mbps": 1001}, "1001 Mbit/s"),
        ("rail", (2, 2), {"mbps": 0}, "0 Mbit/s"),
        ("rail", (2, 2), {"mbps": float("nan")}, "nan Mbit/s"),
        ("leaf_spine", (4, 2), {"mbps": 600, "uplink_bps": 200e9}, "1200 Mbit/s"),
        ("fat_tree", (3,), {}, "3-port"),
    ],
)
def test_a_wrong_topo_ends_mn_with_a_sentence(
    names: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    name: str,
    arguments: tuple[float, ...],
    options: dict[str, float],
    culprit: str,
) -> None:
    # SystemExit and not an Exception, or mn would clean the whole machine.
    with pytest.raises(SystemExit) as ended:
        names["topos"][name](*arguments, **options)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("--topo: ")
    assert culprit in line


def run(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run code in an isolated Python: no editable install, no checkout on its path."""
    command = [sys.executable, "-S", "-c", f"import sys; sys.path += {packages()}; {code}"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True)


def packages() -> list[str]:
    """Return where Python's packages lie, without what the editable install adds."""
    return [path for path in sys.path if path.endswith("-packages")]


EXECUTE = f"sys.path.pop(0); c = {{}}; exec(open({str(FILE)!r}).read(), c, c); print(len(c['topos']))"


def test_the_checkout_is_found_from_the_working_directory() -> None:
    ran = run(EXECUTE, CHECKOUT)
    assert (ran.returncode, ran.stdout.strip()) == (0, "5"), ran.stderr


def test_outside_the_checkout_it_says_what_to_type(tmp_path: Path) -> None:
    ran = run(EXECUTE, tmp_path)
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert "run mn as root" in line
    assert ": .venv/bin/python /usr/bin/mn --custom topologies/mn.py" in line


@pytest.mark.parametrize(("arguments", "loops"), [((4, 2), True), ((4, 2, 1), False), ((4, 2, 0), False)])
def test_loops_are_warned_of(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str], arguments: tuple[int, ...], loops: bool
) -> None:
    names["topos"]["rail"](*arguments)
    assert ("--switch ovsbr,stp=1" in capsys.readouterr().err) is loops
