"""mFabric's training step over several fabrics: what is run at one scale, and bad input."""

from pathlib import Path

import pytest

from scenarios._mfabric.region_plan import RegionalSetup
from testbed.report.run_json import experiments_of
from tests.scenarios import command
from traffic.collectives.ring import Ring

SMALL = ["--model-only", "--layers", "1", "--transport", "credit"]


@pytest.mark.drawn
def test_all_fabrics_carry_one_step(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = command.ran("mfabric_training", *SMALL, "--out", out)
    assert done.returncode == 0, done.stderr
    for first in ("block", "reuse", "copilot"):
        for claim in (
            "close to the fat-tree",
            "up to 1.6 times as fast as 3:1",
            "1.5 times as fast as TopoOpt",
        ):
            assert f"mFabric, {first}: {claim}" in done.stdout
    kept = experiments_of(out / "run.json")
    assert [each.label for each in kept] == [
        "fat-tree", "fat-tree, delegated", "fat-tree 3:1", "rail-optimised", "TopoOpt", "TopoOpt, rings",
        "mFabric, block", "mFabric, reuse", "mFabric, copilot",
    ]  # fmt: skip
    assert len({(each.job.name, each.job.note) for each in kept}) == 1
    rings = {each.label: sum(isinstance(n.pattern, Ring) for n in each.job.collectives) for each in kept}
    assert {label: count for label, count in rings.items() if count != 2} == {
        "fat-tree": 8, "fat-tree 3:1": 8, "rail-optimised": 8,
    }, "gradients have a ring for each NIC on packets"  # fmt: skip
    assert {sum(each.fabric.nic_rate_bps(nic) for nic in each.fabric.nics) for each in kept} == {6.4e12}
    following = [each.circuits for each in kept if isinstance(each.circuits, RegionalSetup)]
    assert [circuits.first for circuits in following] == ["block", "reuse", "copilot"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--fabrics", "torus"],
            "--fabrics: found 'torus', expected 'fat-tree', 'fat-tree-delegated'",
        ),
        (["--fabrics", ""], "--fabrics: the list is empty"),
        (["--layers", "0"], "experts in 0 layers"),
        (["--delay-ms", "-1"], "a delay of -1 ms"),
        (["--rate", "0"], "NICs of 0 Gbit/s"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    done = command.ran("mfabric_training", "--model-only", "--out", tmp_path / "out", *options)
    lines = done.stderr.strip().splitlines()
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    assert said in lines[0]
    assert not (tmp_path / "out").exists()
