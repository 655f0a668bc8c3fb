"""The examples of docs/examples over an emulated network: what they print, what they sent, and what fails."""

import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.report.app_files import read_app
from tests.tools import CHECKOUT, need_sandbox

pytestmark = pytest.mark.emulation

APP, EXAMPLES = CHECKOUT / "scenarios" / "app.py", CHECKOUT / "docs" / "examples"
MPI = ("/usr/bin/python3", str(EXAMPLES / "alltoall_mpi.py"))
RING = ("/usr/bin/python3", str(EXAMPLES / "ring_over_circuits.py"))
JAX = (sys.executable, str(EXAMPLES / "moe_jax.py"))
RAIL = ("rail", "--set", "servers=4", "--set", "rails=2", "--per", "host")
CIRCUITS = ("parallel_ocs", "--set", "servers=5", "--set", "ocses=2")
END_S = 280.0
"""How long a run may take: another emulation may have to end before [s]."""
ROW = re.compile(r"(?:h0: )?(\d+(?:,\d+)+)")

needs_jax = pytest.mark.skipif(
    find_spec("jax") is None, reason="needs JAX: sudo bash vagrant/provision.sh --jax"
)


def app(out: Path, *options: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Return the output of a run of scenarios/app.py."""
    need_sandbox()
    words = [sys.executable, str(APP), *options, "--emulated-rate", "50", "--out", str(out), "--", *command]
    return subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=END_S, cwd=out.parent
    )


def matrices(printed: str, size: int) -> list[NDArray[np.int64]]:
    """Return the matrices that a program printed as CSV."""
    rows = [[int(each) for each in found.split(",")] for found in ROW.findall(printed)]
    return [np.array(rows[at : at + size]) for at in range(0, len(rows), size)]


def losses(printed: str) -> list[str]:
    """Return the losses of all steps, as they were printed."""
    return re.findall(r"step \d+ loss (\S+)", printed)


@pytest.mark.slow
def test_mpi_s_blocks_and_sums_are_right(tmp_path: Path) -> None:
    sizes = ("--sizes", "1000,300000", "--repeat", "2")
    ran = app(tmp_path / "out", *RAIL, "--launch", "mpirun", command=[*MPI, *sizes])
    assert ran.returncode == 0, ran.stderr
    assert "h0: all blocks and sums are right\n" in ran.stdout
    captured = np.loadtxt(tmp_path / "out" / "hosts.csv", delimiter=",")[~np.eye(4, dtype=bool)]
    blocks = 2 * 301_000
    assert captured.min() == pytest.approx(blocks, rel=0.01), "some hosts meet in no AllReduce"
    assert captured.max() < 3 * blocks


def test_a_ring_that_moves_has_right_sums_and_meets_no_dark_circuit(tmp_path: Path) -> None:
    ran = app(tmp_path / "out", *CIRCUITS, command=[*RING, "--numbers", "20000"])
    assert ran.returncode == 0, ran.stderr
    assert len(re.findall("20000 sums are right", ran.stdout)) == 2 * 5
    tables = read_app(tmp_path / "out").tables
    lit = tables.light[tables.light["circuits"] != ""].groupby("ocs")["circuits"].agg(list).to_dict()
    assert lit == {
        "ocs0": ["0>1 1>2 2>3 3>4 4>0", "0>2 1>3 2>4 3>0 4>1"],
        "ocs1": ["0>4 1>0 2>1 3>2 4>3", "0>3 1>4 2>0 3>1 4>2"],
    }
    packets = tables.links.groupby(tables.links["port"].str[0])["packets"].sum()
    assert packets["h"] == packets["o"] > 0, "an OCS sends on all packets that light may carry"


@pytest.mark.slow
def test_a_script_of_a_shell_runs_iperf3_from_host_to_host(tmp_path: Path) -> None:
    fabric = ("rail", "--set", "servers=2", "--set", "rails=2", "--launch", "ssh")
    ran = app(tmp_path / "out", *fabric, command=["sh", str(EXAMPLES / "hosts.sh")])
    assert ran.returncode == 0, ran.stderr
    (rate,) = re.findall(r"([\d.]+) Mbits/sec +receiver", ran.stdout)
    assert 42 < float(rate) <= 50, "one flow takes one NIC of 50 Mbit/s"


@pytest.mark.slow
@needs_jax
def test_jax_learns_as_over_loopback_and_sends_what_its_shapes_say(tmp_path: Path) -> None:
    alone = subprocess.run(JAX, capture_output=True, text=True, timeout=END_S, check=True)
    file = str(tmp_path / "demand.csv")
    ran = app(tmp_path / "out", *RAIL, "--launch", "jax", "--demand", file, command=[*JAX, "--demand", file])
    assert ran.returncode == 0, ran.stderr
    assert losses(ran.stdout) == losses(alone.stdout)
    assert len(losses(ran.stdout)) == 10
    said = np.sum(matrices(ran.stdout, 4), axis=0)
    np.testing.assert_array_equal(read_app(tmp_path / "out").demand, said)
    captured = np.loadtxt(tmp_path / "out" / "hosts.csv", delimiter=",")
    others = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(captured[others], said[others], rtol=0.03)
    replayed = replay(tmp_path / "out" / "matrix.csv", tmp_path / "replayed")
    for scheme in ("rails", "ecmp", "pxn"):
        assert re.search(rf"^ +{scheme} ", replayed, re.MULTILINE)


def replay(matrix: Path, out: Path) -> str:
    """Return the table that a study of a matrix prints, by the model."""
    scenario = str(CHECKOUT / "scenarios" / "rails_sparse.py")
    fabric = ("--model-only", "--servers", "4", "--rails", "2", "--seeds", "1")
    words = [sys.executable, scenario, *fabric, "--trace", str(matrix), "--out", str(out)]
    return subprocess.run(words, capture_output=True, text=True, timeout=END_S, check=True).stdout
