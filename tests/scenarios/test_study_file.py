"""Studies from TOML files: their points, what is said of mistakes in them, and the page that teaches them."""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.experiment import Experiment
from testbed.report.claims import Claim
from testbed.report.page import Findings
from testbed.study.study import Study, no_claims
from testbed.study.study_file import Whole, study_of_file
from testbed.study.study_tables import FORMS, OTHERS
from testbed.study.toml_document import Override, assigned, lines_of, value_of
from tests.calibrated import calibrated
from tests.scenarios.command import ran
from tests.tools import CHECKOUT
from topologies.errors import LightrailError, ScenarioError
from topologies.fabric import Fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.steps import single
from traffic.workloads.synthetic import sparse, uniform

PAGE = (CHECKOUT / "docs" / "reference" / "study.md").read_text()
RAIL = """[fabric]
builder = "rail"
servers = 4
rails = 2
"""
UNIFORM = """[[workload]]
generator = "uniform"
"""
SMALL = RAIL + UNIFORM
OCSES = (
    """[fabric]
builder = "parallel_ocs"
servers = 4
ocses = 2
"""
    + UNIFORM
)
SPECTRA = """rule = "scheduled"
scheduler = "spectra"
delay = { delay_s = 0.01 }
"""


def study(folder: Path, text: str, *assignments: str) -> Study:
    """Return the study of a file of this text."""
    (folder / "study.toml").write_text(text)
    return study_of_file(folder / "study.toml", [assigned(each) for each in assignments])


written_in_c = max


def wired() -> Fabric:
    """Return a fabric."""
    return rail_fabric(2, 1)


def wired_by(matrix: np.ndarray) -> Fabric:
    """Return a fabric by a parameter whose type no file can have."""
    raise AssertionError


def not_wired() -> Fabric:
    """Return a text all the same."""
    return cast(Fabric, "fabric")


def no_points() -> list[Experiment]:
    """Return texts all the same."""
    return cast(list[Experiment], "points")


def of_nothing() -> Findings:
    """Return findings about nothing."""
    raise AssertionError


def of_rows(table: pd.DataFrame) -> list[Claim]:
    """Return no claims."""
    return []


def rows(found: Study, *what: str) -> list[tuple[object, ...]]:
    """Return some attributes of each point."""
    return [tuple(getattr(each, name) for name in what) for each in found.experiments]


# Points


def test_points_are_the_cross_product_in_a_fixed_order(tmp_path: Path) -> None:
    found = study(
        tmp_path,
        """
        scheme = ["rails", "ecmp"]
        [[fabric]]
        builder = "rail"
        servers = 4
        rails = 2
        rate_gbps = [100, 200.5]
        [[fabric]]
        builder = "leaf_spine"
        servers = 4
        leaves = 2
        nics = 2
        nvlink_gbps = 900
        [[workload]]
        generator = "sparse"
        sparsity = [0.5, 0]
        tokens = [64, 128]
        [[workload]]
        generator = "uniform"
        [grid]
        seed = [3, "0..1"]
        """,
    )
    fabrics = [
        *(rail_fabric(4, 2, rate_bps=gbps * 1e9) for gbps in (100, 200.5)),
        leaf_spine_fabric(4, 2, nics=2, nvlink_bps=900e9),
    ]
    shapes: list[tuple[float, int] | None] = [*product((0.5, 0.0), (64, 128)), None]
    expected = [
        (
            fabric,
            uniform(8) if shape is None else sparse(8, shape[0], tokens=shape[1], seed=seed),
            scheme,
            seed,
        )
        for fabric, shape, seed, scheme in product(fabrics, shapes, (3, 0, 1), ("rails", "ecmp"))
    ]
    assert len(found.experiments) == len(expected) == 90
    for each, (fabric, demand, scheme, seed) in zip(found.experiments, expected, strict=True):
        assert (each.fabric, each.scheme, each.seed) == (fabric, scheme, seed)
        assert each.job.nodes == single(demand).nodes


def test_what_a_name_leaves_open_is_said_after_the_workload_s(tmp_path: Path) -> None:
    found = study(
        tmp_path, SMALL + "[grid]\nseed = [0, 1]\nspines = [1, 2]\nscheme = ['ecmp', 'rails']\nloss = 0.01\n"
    )
    names = [f"uniform, spines {spines}" for spines in (1, 2) for _ in range(4)]
    assert [each.job.name for each in found.experiments] == names
    assert {link.loss for each in found.experiments for link in each.fabric.links} == {0.01}
    varied = [{"spines": spines} for spines in (1, 2) for _ in range(4)]
    assert found.parameters == dict(zip((each.key for each in found.experiments), varied, strict=True))
    assert found.grid == "8 points: spines 1, 2; seed 0, 1; scheme ecmp, rails"


def test_a_study_without_lists_is_a_point_under_ecmp(tmp_path: Path) -> None:
    found = study(tmp_path, SMALL)
    assert found.experiments == [Experiment(rail_fabric(4, 2), single(uniform(8)), "ecmp")]
    assert (found.name, found.title, [*found.parameters.values()]) == ("study", "study", [{}])


def test_the_command_line_takes_the_place_of_the_file(tmp_path: Path) -> None:
    text = (
        "seeds = 5\nscheme = 'ecmp'\n"
        + RAIL
        + "[[workload]]\ngenerator = 'sparse'\n[grid]\nsparsity = [0.5, 0]\n"
    )
    words = [
        "grid.seed=1..2",
        "workload.sparsity=0.25",
        "scheme=rails,reps:8",
        "fabric.servers=2",
        "volume=0.5",
    ]
    found = study(tmp_path, text, *words)
    assert rows(found, "scheme", "seed") == [
        *product(("rails", "reps:8"), (1,)),
        *product(("rails", "reps:8"), (2,)),
    ]
    assert {(each.job.name, len(each.fabric.servers)) for each in found.experiments} == {("sparse 0.25", 2)}
    assert found.usual.volume == 0.5
    (tmp_path / "other.json").write_text(rail_fabric(3, 1).to_json())
    other = study(tmp_path, text, "sparsity=0", f"fabric={tmp_path / 'other.json'}")
    assert other.fabrics == [rail_fabric(3, 1)]


def test_mtu_buffer_transport_and_faults_are_the_points_or_the_study_s(tmp_path: Path) -> None:
    head = "mtu = [1500, 9000]\nbuffer = 10\ntransport = ['tcp', 'credit']\n"
    head += "faults = 'gpu:0@1ms'\ndetect_us = 7\n"
    found = study(tmp_path, head + "emulated_rate_mbps = 40\n" + SMALL)
    assert [(each.mtu, each.fabric.buffer_bytes // 10 > each.mtu) for each in found.experiments] == [
        (1500, True),
        (9000, True),
    ]
    assert (found.transports, found.usual.emulated_rate_mbps) == ("tcp,credit", 40)
    assert found.failures
    assert ([fault.text for fault in found.failures.faults], found.failures.detect_s) == (["gpu:0@1ms"], 7e-6)


def test_files_and_modules_are_found_beside_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    (tmp_path / "of_study.py").write_text(
        "import numpy as np\nfrom testbed.report.claims import Claim\nfrom topologies.fabric import Fabric\n"
        "from topologies.rail import rail_fabric\nfrom traffic.demand import Demand\n"
        "def wired(rails: int, fast_bps: float = 1e9) -> Fabric:\n"
        "    return rail_fabric(2, rails, rate_bps=fast_bps)\n"
        "def sent(gpus, seed, size: int) -> Demand:\n"
        "    return Demand('mine', np.full((gpus, gpus), size + seed), '')\n"
        "def claims(table) -> list[Claim]: return []\n"
    )
    (tmp_path / "matrix.txt").write_text("0 5\n7 0\n")
    (tmp_path / "fabric.json").write_text(rail_fabric(2, 1).to_json())
    found = study(
        tmp_path,
        """
        claims = "of_study:claims"
        [[fabric]]
        builder = "of_study:wired"
        rails = 1
        fast_gbps = 2
        [[fabric]]
        file = "fabric.json"
        [[workload]]
        generator = "of_study:sent"
        size = 9
        seed = 4
        [[workload]]
        trace = "matrix.txt"
        [[workload]]
        trace = "gone.txt"
        if_found = true
        """,
    )
    assert found.fabrics == [rail_fabric(2, 1, rate_bps=2e9), rail_fabric(2, 1)]
    assert [name for name, _ in rows(found, "seed", "job")] == [4, 0, 4, 0]
    assert [each.job.collectives[0].pattern.name for each in found.experiments] == ["all-to-all"] * 4
    assert found.claims(pd.DataFrame()) == []


def test_a_function_may_take_lists_pairs_and_paths(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(
        "from pathlib import Path\nfrom topologies.fabric import Fabric\n"
        "from topologies.rail import rail_fabric\n"
        "def wired(sizes: tuple[int, int], more: list[float], sheet: Path) -> Fabric:\n"
        "    assert (more, sheet) == ([1, 0.5], Path('x'))\n    return rail_fabric(*sizes)\n"
    )
    text = (
        "[fabric]\nbuilder = 'typed:wired'\nsizes = [[2, 3], [4, 1]]\nmore = [[1, 0.5]]\nsheet = 'x'\n"
        + UNIFORM
    )
    assert study(tmp_path, text).fabrics == [rail_fabric(2, 3), rail_fabric(4, 1)]
    with pytest.raises(ScenarioError, match=r"line 3, fabric.sizes: found 2, expected a list"):
        study(tmp_path, text.replace("[[2, 3], [4, 1]]", "2"))


def test_circuits_carry_all_or_leave_a_rest_to_the_scheme(tmp_path: Path) -> None:
    text = """
    [fabric]
    builder = "parallel_ocs"
    servers = 4
    ocses = 2
    packet_switch = REST
    [[workload]]
    generator = "uniform"
    [circuits]
    rule = "scheduled"
    scheduler = ["spectra", "less"]
    delay = { device = "ideal", delay_s = 0.01 }
    """
    alone = study(tmp_path, text.replace("REST", "false"))
    assert [each.circuits_name.partition(",")[0] for each in alone.experiments] == ["spectra", "less"]
    assert {each.spraying for each in alone.experiments} == {""}
    rest = study(tmp_path, "scheme = 'reps'\n" + text.replace("REST", "true"))
    assert {each.spraying for each in rest.experiments} == {"reps"}
    for scheme in ("reps", "ecmp"):  # also the one that a study has by default
        said = f"line 1, scheme: the circuits carry all, and leave nothing to {scheme}"
        with pytest.raises(ScenarioError, match=said):
            study(tmp_path, f"scheme = '{scheme}'\n" + text.replace("REST", "false"))


def test_a_function_makes_points(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    text = """
        claims = "steps:claims"
        findings = "steps:findings"
        rings_s = 7
        most_nic_mbps = 20
        [points]
        function = "steps:points"
        servers = [2, 3]
        rate_gbps = 50
        """
    found = study(tmp_path, text, "seed=4", "rings=one")
    assert [(each.fabric, each.seed) for each in found.experiments] == [
        (rail_fabric(servers, 1, rate_bps=50e9), 4) for servers in (2, 3)
    ]
    assert (found.rings_s, found.most_nic_bps) == (7, 20e6)
    assert [claim.text for claim in found.claims(pd.DataFrame())] == ["one of 2", "one of 3"]
    assert found.findings([]).leads
    with pytest.raises(ScenarioError, match="--set rings: the findings are about one value of it; give one"):
        study(tmp_path, text, "rings=one,two")
    of_two = study(tmp_path, text.replace("findings", "#"), "rings=one,two", "seed=0..1")
    named = [(f"uniform, rings {rings}", seed) for rings in ("one", "two") for seed in (0, 1)]
    assert [(each.job.name, each.seed) for each in of_two.experiments[::2]] == named
    assert [claim.text for claim in of_two.claims(pd.DataFrame())][-1] == "two of 3"


STEPS = """
from dataclasses import dataclass
from testbed.report.claims import Claim
from testbed.report.page import Findings
from testbed.experiment.experiment import Experiment
from topologies.rail import rail_fabric
from traffic.steps import single
from traffic.workloads.synthetic import uniform

@dataclass(frozen=True)
class Step:
    experiment: Experiment
    rings: str

def points(servers: list[int], rate_bps: float, seed: int, rings: str = "one") -> list[Step]:
    fabrics = [rail_fabric(each, 1, rate_bps=rate_bps) for each in servers]
    return [Step(Experiment(each, single(uniform(each.gpus)), "ecmp", seed=seed), rings) for each in fabrics]

def claims(table, points) -> list[Claim]:
    return [Claim(f"{each.rings} of {len(each.experiment.fabric.servers)}", "", (0, 1)) for each in points]

def findings(outcomes) -> Findings:
    return Findings(leads=True)
"""


words = st.text("abcdefgh _-.:=[]#'\"\\{}", max_size=12)
scalars = st.one_of(
    st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False), words
)


@given(value=st.one_of(scalars, st.lists(scalars, max_size=3)))
def test_a_value_that_is_written_is_read(value: object) -> None:
    written = toml(value)
    assert value_of(written) == value
    assert assigned(f"a.b={written}") == Override("a.b", value, "--set a.b")


def toml(value: object) -> str:
    """Return a value as TOML has it."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


@given(
    seeds=st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True),
    schemes=st.lists(
        st.sampled_from(["ecmp", "rails", "pxn", "reps:4"]), min_size=1, max_size=3, unique=True
    ),
    sparsities=st.lists(st.sampled_from([0, 0.25, 0.5]), min_size=1, max_size=3, unique=True),
    in_grid=st.sets(st.sampled_from(["seed", "scheme", "workload.sparsity"])),
    listed=st.booleans(),
)
def test_a_random_study_has_the_points_of_itertools(
    tmp_path_factory: pytest.TempPathFactory,
    seeds: list[int],
    schemes: list[str],
    sparsities: list[float],
    in_grid: set[str],
    listed: bool,
) -> None:
    def line(key: str, values: Sequence[object], dotted: str = "") -> str:
        text = toml([*values] if listed or len(values) > 1 else values[0])
        return "" if (dotted or key) in in_grid else f"{key} = {text}\n"

    values: Mapping[str, Sequence[object]] = {
        "seed": seeds,
        "scheme": schemes,
        "workload.sparsity": sparsities,
    }
    grid = "".join(f"{key} = {toml([*values[key]])}\n" for key in sorted(in_grid))
    body = RAIL + "[[workload]]\ngenerator = 'sparse'\ntokens = 8\n"
    text = line("seed", seeds) + line("scheme", schemes) + body
    text += line("sparsity", sparsities, "workload.sparsity") + f"[grid]\n{grid}"
    found = study(tmp_path_factory.mktemp("random"), text)
    names = [f"sparse {sparsity:g}" for sparsity in sparsities]
    asked = [(each.job.name, each.seed, each.scheme) for each in found.experiments]
    assert asked == [*product(names, seeds, schemes)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["\n", "# [a] x = 1\n", "", "[t]\n", "[[l]]\n"]),
            st.sampled_from(["1", "'''\na = 2\n[b]\n'''", "[\n  1,\n# ]\n]"]),
        ),
        max_size=6,
    )
)
def test_each_key_is_found_in_its_line(parts: list[tuple[str, str]]) -> None:
    text, count = "", 0
    expected: dict[tuple[str | int, ...], int] = {}
    table: tuple[str | int, ...] = ()
    for number, (before, value) in enumerate(parts):
        if before == "[t]\n" and "[t]" in text:
            continue
        if before in ("[t]\n", "[[l]]\n"):
            table = ("t",) if before == "[t]\n" else ("l", count)
            count += before == "[[l]]\n"
            for size in range(1, len(table) + 1):
                expected.setdefault(table[:size], text.count("\n") + 1)
        text += before
        expected[(*table, f"k{number}")] = text.count("\n") + 1
        text += f"k{number} = {value}\n"
    assert lines_of(text, []) == expected


# Mistakes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            RAIL + "servres = 3\n" + UNIFORM,
            "study.toml, line 5, fabric.servres: unknown key; did you mean servers?",
        ),
        ("shceme = 'ecmp'\n" + SMALL, "study.toml, line 1, shceme: unknown key; did you mean scheme?"),
        (SMALL + "[grdi]\nseed = 1\n", "study.toml, line 7, grdi: unknown key; did you mean grid?"),
        (
            SMALL + "[grid]\nspinse = 1\n",
            "study.toml, line 8, grid.spinse: unknown key 'spinse'; did you mean spines?",
        ),
        (
            SMALL + "[grid]\nfabric.spinse = 1\n",
            "line 8, grid.fabric.spinse: unknown key 'fabric.spinse'; did you mean spines?",
        ),
        (SMALL + "[grid]\n'fabric.rails' = 1\n", "line 8, grid.fabric.rails: it is given elsewhere too; "),
        ("seeds = 2\n" + SMALL + "[grid]\nseed = 1\n", "line 9, grid.seed: it is given elsewhere too; "),
        (SMALL + "[grid]\nseed = 1\nseeds = 2\n", "line 9, grid.seeds: it is given elsewhere too; "),
        (
            SMALL + "[grid]\nhidden = [8, 0]\n",
            "study.toml, line 5, workload, with line 8, grid.hidden: a workload of 0 numbers per token; ",
        ),
        (
            SMALL + "[grid]\nspines = -1\nloss = 0.1\n",
            "line 1, fabric, with line 8, grid.spines and line 9, grid.loss: a rail fabric of 4 servers, ",
        ),
        (SMALL + "[options]\nrails = 'rials'\n", "line 8, options.rails: unknown key 'rials'; did you mean"),
        (SMALL + "[options]\nrails = 3\n", "line 8, options.rails: unknown key '3'; there are about, "),
        ("grid = 1\n" + SMALL, "study.toml, line 1, grid: found 1, expected a table; write [grid]"),
        ("fabric = 1\n" + UNIFORM, "study.toml, line 1, fabric: found 1, expected a table; write [fabric]"),
        (
            SMALL.replace('"rail"', '"rial"'),
            "line 2, fabric.builder: unknown builder 'rial', did you mean rail?; ",
        ),
        (
            SMALL.replace('"uniform"', '"mine"'),
            "line 6, workload.generator: unknown generator 'mine'; choose among",
        ),
        (SMALL.replace('"uniform"', "3"), "line 6, workload.generator: found 3, expected a text; "),
        (
            SMALL.replace('builder = "rail"\n', ""),
            "study.toml, line 1, fabric: no builder or file is given; ",
        ),
        (SMALL + "trace = 'a'\n", "line 5, workload: both generator and trace are given; "),
        (SMALL.replace("servers = 4\n", ""), "study.toml, line 1, fabric: servers is missing; "),
        (SMALL.replace("4", "'many'"), "line 3, fabric.servers: found 'many', expected a whole number; "),
        (SMALL.replace("4", "[4, 2.5]"), "line 3, fabric.servers: found 2.5, expected a whole number; "),
        (SMALL.replace("4", "true"), "line 3, fabric.servers: found true, expected a whole number; "),
        (
            SMALL.replace("4", "2026-01-01"),
            "line 3, fabric.servers: found '2026-01-01', expected a whole number; ",
        ),
        (
            SMALL.replace("4", "0"),
            "study.toml, line 1, fabric: a rail fabric of 0 servers, 2 rails and 0 spines; ",
        ),
        (SMALL + "loss = nan\n", "line 7, workload.loss: unknown key; "),
        (RAIL + "loss = nan\n" + UNIFORM, "line 5, fabric.loss: found NaN, expected a finite number; "),
        (RAIL + "loss = 7\n" + UNIFORM, "study.toml, line 1, fabric: "),
        ("scheme = []\n" + SMALL, "study.toml, line 1, scheme: the list is empty; give a value, or several"),
        ("seed = [1, '0..2']\n" + SMALL, "study.toml, line 1, seed: 1 is there twice; leave out one of them"),
        ("seed = '4..0'\n" + SMALL, "study.toml, line 1, seed: the range 4..0 is empty; write 0..4"),
        ("seed = -1\n" + SMALL, "study.toml, line 1, seed: found -1, expected 0 or more; "),
        ("seed = 1\nseeds = 1\n" + SMALL, "study.toml, line 2, seeds: both seed and seeds are given; "),
        ("seeds = 0\n" + SMALL, "study.toml, line 1, seeds: 0 seeds; take 1 to 10000"),
        ("seed = '0..100000'\n" + SMALL, "line 1, seed: 0..100000 are 100,001 values; give at most 100,000"),
        (
            "seed = '0..999'\n" + SMALL + "tokens = '1..101'\n",
            "study.toml: 101,000 points; at most 100,000 are",
        ),
        (
            SMALL + "tokens = '1..999'\nhidden = '1..999'\n",
            "line 5, workload: 998,001 points; at most 100,000 are",
        ),
        (
            "scheme = ['ecmp', 'pxm']\n" + SMALL,
            "line 1, scheme: there is no scheme named 'pxm'; choose among ecmp, ",
        ),
        (
            SMALL + "scheme = 'pxm'\n",
            "line 7, workload.scheme: there is no scheme named 'pxm'; choose among ecmp, ",
        ),
        ("transport = 'tpc'\n" + SMALL, "line 1, transport: there is no transport named 'tpc'; choose among"),
        (
            "transport = ['tcp', 'tcp:nope']\n" + SMALL,
            "line 1, transport: no congestion control is named",
        ),
        ("volume = [1, 2]\n" + SMALL, "study.toml, line 1, volume: found a list of 2, expected a number; "),
        ("volume = 1e9\n" + SMALL, "study.toml, line 1, volume: 1e+09 times the bytes; "),
        (
            "emulated_rate_mbps = 0\n" + SMALL,
            "line 1, emulated_rate_mbps: NICs cannot be emulated at 0 Mbit/s",
        ),
        ("mtu = 100\n" + SMALL, "study.toml, line 1, mtu: an MTU of 100 bytes; "),
        (SMALL + "[grid]\nmtu = [9000, 3]\n", "study.toml, line 8, grid.mtu: an MTU of 3 bytes; "),
        (f"seed = {1 << 63}\n" + SMALL, "study.toml, line 1, seed: found 9223372036854775808, expected less"),
        ("buffer = 0\n" + SMALL, "study.toml, line 1, buffer: port buffers of 0 packets; "),
        ("faults = 'nic'\n" + SMALL, "study.toml, line 1, faults: 'nic' is not a valid fault; "),
        (
            "faults = 'nic:9:1@40%-9ms'\n" + SMALL,
            "line 1, faults: 'nic:9:1@40%-9ms' on fabric 'rail': server 9",
        ),
        ("detect_us = -3\n" + SMALL, "line 1, detect_us: faults that are known after -3 us; give detect_us"),
        ("report = 'circuits'\n" + SMALL, "study.toml, line 1, report: there is no schedule; "),
        (
            "baseline = 'rails'\n" + SMALL,
            "line 1, baseline: nothing in the study is named 'rails'; there are",
        ),
        ("claims_over = 'raill'\n" + SMALL, "nothing in the study is named 'raill'; did you mean rail?"),
        ("report = 'all'\n" + SMALL, "line 1, report: found 'all', expected 'schemes', 'circuits', "),
        (
            "claims = 'nowhere:claims'\n" + SMALL,
            "line 1, claims: the claims 'nowhere:claims' cannot be imported: ",
        ),
        (
            SMALL.replace('"rail"', '"traffic.demand:no_such"'),
            "line 2, fabric.builder: the fabric 'traffic.demand:no_such' cannot be imported: ",
        ),
        (SMALL.replace('"rail"', f'"{__name__}:wired"'), "line 3, fabric.servers: unknown key; "),
        (
            "[fabric]\nbuilder = 'os:getcwd'\n" + UNIFORM,
            "line 2, fabric.builder: the fabric 'os:getcwd' cannot be loaded: os is a module of Python ",
        ),
        (
            f"[fabric]\nbuilder = '{__name__}:wired_by'\n" + UNIFORM,
            "line 2, fabric.builder: the parameters of wired_by have no types ",
        ),
        (
            f"[fabric]\nbuilder = '{__name__}:not_wired'\n" + UNIFORM,
            f"line 2, fabric.builder: {__name__}:not_wired returns a value of type str, ",
        ),
        (
            f"[fabric]\nbuilder = '{__name__}:written_in_c'\n" + UNIFORM,
            "line 2, fabric.builder: the fabric '"
            + __name__
            + f":written_in_c' cannot be loaded: {__name__} has it from builtins",
        ),
        (
            f"[fabric]\nbuilder = '{__name__}:SMALL'\n" + UNIFORM,
            f"line 2, fabric.builder: {__name__}:SMALL is not a function; ",
        ),
        (
            RAIL + f"[[workload]]\ngenerator = '{__name__}:wired'\n",
            f"line 6, workload.generator: the workload '{__name__}:wired' is not annotated to return Job; ",
        ),
        (
            f"claims = '{__name__}:wired'\n" + SMALL,
            f"line 1, claims: the claims '{__name__}:wired' is not annotated to return list[Claim]; ",
        ),
        (
            f"[points]\nfunction = '{__name__}:wired'\n",
            f"line 2, points.function: the points '{__name__}:wired' is not annotated to return list[Exp",
        ),
        ("[fabric]\nfile = 'gone.json'\n" + UNIFORM, "line 1, fabric: the fabric '"),
        (RAIL + "[[workload]]\ntrace = 'gone'\n", "line 5, workload: "),
        (RAIL + "[[workload]]\njob = 'gone'\n", "line 5, workload: "),
        (RAIL + "[[workload]]\ngenerator = 'sparse'\nsparsity = 2\n", "line 5, workload: a sparsity of 2; "),
        (RAIL, "study.toml: no workload is given; "),
        (
            f"[points]\nfunction = '{__name__}:no_points'\n",
            f"line 2, points.function: {__name__}:no_points returns a value of type str,",
        ),
        ("[points]\nfunction = 'made'\n", "unknown function 'made'; name your own as module:function"),
        (
            f"mtu = 1500\n[points]\nfunction = '{__name__}:no_points'\n",
            "study.toml, line 1, mtu: the function of [points] decides it; leave it out",
        ),
        (
            f"seed = 1\n[points]\nfunction = '{__name__}:no_points'\n",
            "study.toml, line 1, seed: the function of [points] decides it; leave it out",
        ),
        (
            f"findings = '{__name__}:of_nothing'\n" + SMALL,
            f"line 1, findings: {__name__}:of_nothing does not take outcomes: ",
        ),
        (UNIFORM, "study.toml: no fabric is given; "),
        (
            SMALL + "[circuits]\nrule = 'schedule'\n",
            "line 8, circuits.rule: unknown rule 'schedule', did you mean scheduled?",
        ),
        (SMALL + "[circuits]\n" + SPECTRA, "study.toml, line 7, circuits: no NIC is on an OCS; "),
        (
            OCSES + "[[circuits]]\n" + SPECTRA + "[[circuits]]\n" + SPECTRA.replace("spectra", "spectre"),
            "study.toml, line 11, circuits: unknown scheduler 'spectre'; ",
        ),
        (
            OCSES + "scheme = 'reps'\n[circuits]\n" + SPECTRA,
            "line 7, workload.scheme: the circuits carry all, ",
        ),
        (
            OCSES + "[circuits]\n" + SPECTRA.replace("{ delay_s = 0.01 }", "3"),
            "line 7, circuits: the rule for circuits, delay: found 3, expected an object; ",
        ),
        (
            OCSES + "[circuits]\n" + SPECTRA + "x = 3\n",
            "line 7, circuits: the rule for circuits, x: unknown key; ",
        ),
        (SMALL + "[options.rails]\na = 1\n", "line 7, options.rails: unknown key "),
        (SMALL + "servers = = 3\n", "study.toml, line 7: invalid value; see docs/reference/study.md"),
        (SMALL + "generator = 'sparse'\n", "study.toml, line 7: a key or a table is there twice; "),
        (SMALL + "x = [\n", "study.toml, line 7: "),
        (RAIL + "[[workload]]\ntrace = 'gone'\nif_found = true\n", "line 5, workload: no workload is left; "),
    ],
)
def test_a_mistake_is_a_sentence_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(text)
    with pytest.raises(LightrailError) as error:
        study_of_file(Path("study.toml"))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    if said.startswith("study.toml"):
        assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["seed"],
            "--set seed: it has no key or no value; write --set KEY=VALUE, as in servers=8 or grid.seed=0..4",
        ),
        (["grid.sed=0..4"], "--set grid.sed: unknown key 'sed'; did you mean seed?"),
        (["grid.seed=4..0"], "--set grid.seed: the range 4..0 is empty; write 0..4"),
        (
            ["fabric.servers=x"],
            "--set fabric.servers: found 'x', expected a whole number; see docs/reference/study.md",
        ),
        (["fabric=gone:wired"], "--set fabric: the fabric 'gone:wired' cannot be imported: "),
        (["fabric=a.json", "fabric.rails=1"], "--set fabric says what --set fabric.rails says too; "),
        (["fabric=a.json", "fabric=b.json"], "--set fabric says what --set fabric says too; "),
        (["seed=1", "grid.seed=2"], "--set grid.seed says what --set seed says too; "),
        (["seed=1", "seeds=2"], "--set seeds says what --set seed says too; "),
        (["fabric.rails=1", "rails=2"], "--set rails says what --set fabric.rails says too; "),
        (
            ["claims_over=raill", "fabric.builder=rail"],
            "--set claims_over: nothing in the study is named",
        ),
        (["spines=-1"], "study.toml, line 1, fabric, with --set spines: a rail fabric of 4 servers, "),
    ],
)
def test_a_mistake_on_the_command_line_names_the_option(tmp_path: Path, words: list[str], said: str) -> None:
    with pytest.raises(LightrailError) as error:
        study(tmp_path, SMALL, *words)
    assert str(error.value).removeprefix(f"{tmp_path}/").startswith(said)


def test_what_the_command_line_replaces_may_have_had_a_name(tmp_path: Path) -> None:
    text = (
        f"claims = '{__name__}:of_rows'\nclaims_over = 'rail'\nscheme = ['ecmp', 'pxn']\nbaseline = 'pxn'\n"
        + SMALL
    )
    (tmp_path / "other.json").write_text(leaf_spine_fabric(4, 2, nics=2).to_json())
    assert study(tmp_path, text).claims is not no_claims
    other = study(tmp_path, text, f"fabric={tmp_path / 'other.json'}", "scheme=ecmp")
    assert (other.claims, other.baseline) == (no_claims, "pxn")
    with pytest.raises(LightrailError, match="line 4, baseline: nothing in the study is named 'pxn'"):
        study(tmp_path, text.replace(", 'pxn']", "]"), "seed=3")


def test_a_key_that_two_tables_take_needs_its_table(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(
        "from topologies.fabric import Fabric\nfrom topologies.rail import rail_fabric\n"
        "def wired(tokens: int) -> Fabric: return rail_fabric(tokens, 1)\n"
    )
    text = "[fabric]\nbuilder = 'both:wired'\n" + UNIFORM + "[grid]\n{key} = [2, 3]\n"
    with pytest.raises(
        ScenarioError, match=r"line 6, grid.tokens: fabric and workload take it; write fabric.tokens or"
    ):
        study(tmp_path, text.format(key="tokens"))
    assert len(study(tmp_path, text.format(key="fabric.tokens")).experiments) == 2


# Commands, and the page


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with the page's files in it."""
    for language, name in (("toml", "two_pods.toml"), ("python", "two_pods.py")):
        (tmp_path / name).write_text(blocks(language)[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(language: str) -> list[str]:
    """Return the page's blocks of a language."""
    return [str(found) for found in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)]


def test_the_page_s_command_prints_what_it_says(in_folder: Path) -> None:
    command, *table = blocks("console")[0].splitlines()
    words = command.removeprefix("$ python scenarios/study.py ").split()
    done = ran("study", *words, "--out", "out", cwd=in_folder)
    assert done.returncode == 0, done.stderr
    assert [line.rstrip() for line in done.stdout.splitlines()][: len(table)] == table
    assert len(pd.read_csv(in_folder / "out" / "summary.csv")) == 18


def test_a_dry_run_prints_the_points_and_the_grid(in_folder: Path) -> None:
    file = in_folder / "two_pods.toml"
    file.write_text(
        file.read_text().replace(
            '"two_pods:two_pods"\nuplink_gbps', '"rail"\nservers = 4\nrails = 2\nrate_gbps'
        )
    )
    words = ["--dry-run", "--set", "grid.seed=0..1", "--set", "sparsity=0.5"]
    done = ran("study", "two_pods.toml", *words, cwd=in_folder, env={**os.environ, **calibrated(in_folder)})
    assert done.returncode == 0, done.stderr
    assert "16 points: generator uniform, sparse; " in done.stderr
    assert "seed 0, 1; scheme ecmp, reps\n" in done.stderr
    assert "Nothing was booted." in " ".join(done.stdout.split())


def test_the_page_s_mistake_is_said_as_it_says(in_folder: Path) -> None:
    file = in_folder / "two_pods.toml"
    file.write_text(file.read_text().replace("uplink_gbps", "uplink_gbsp"))
    done = ran("study", "two_pods.toml", cwd=in_folder)
    assert (done.returncode, done.stdout) == (2, "")
    said, mistake = done.stderr.splitlines(keepends=True)
    assert said == f"two_pods.toml runs two_pods.py:two_pods from {in_folder}\n"
    assert f"```\n{mistake}```" in PAGE


def test_the_page_names_every_key_and_every_name() -> None:
    keys = {*Whole.model_fields, *FORMS, *(key for others in OTHERS.values() for key in others)}
    forms = {form: named for table in FORMS.values() for form, named in table.items()}
    names = {name for named in forms.values() if isinstance(named, Mapping) for name in named}
    missing = [key for key in {*keys, *forms, *names} if f"`{key}`" not in PAGE and f"{key}]" not in PAGE]
    assert missing == []
