"""The scenarios of RailS' evaluation, by the model: what they run, and what they leave behind."""

import os
import re
from functools import partial
from itertools import product
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest

from scenarios._rails.claims_rails import rails_claims
from testbed.model.predict import predict
from testbed.report.run_json import experiments_of
from testbed.study.study_options import described
from testbed.trust.outcome import Outcome
from tests.scenarios.command import ran
from tests.tools import CHECKOUT
from topologies.rail import rail_fabric
from traffic.collectives.pattern import bytes_between
from traffic.steps import single
from traffic.workloads.synthetic import sparse

SCHEMES = ["ecmp", "plb", "minrtt", "reps", "pxn", "rails", "optimal"]
PHASES = ["start", "early", "mid", "stable"]
MIXTRAL = [f"mixtral {placement} {phase}" for placement in ("dense", "sparse") for phase in PHASES]
SPARSE = [f"sparse {sparsity}" for sparsity in ("0.6", "0.4", "0.2", "0")]
PER_GPU = [f"{name} per GPU" for name in SPARSE]
SKEWED = ["sender skew", "receiver skew"]
WHOLE = ["uniform", *SPARSE, *PER_GPU, *SKEWED, *MIXTRAL]
OWN = ["--servers", "--rails", "--spines", "--rate", "--fabric", "--sparsity", "--top-k", "--gating"]
OWN += ["--schemes", "--seeds", "--trace", "--experts", "--token-bytes", "--tokens-per-gpu", "--all-to-alls"]
OWN += ["--start-unit"]
SHARED = ["--link-delay-us", "--real-link-delay-us", "--loss", "--transport", "--entropies", "--marks"]
SHARED += ["--ack-packets"]
SHARED += [
    "--initial-window",
    "--least-rto-ms",
    "--share-queue-pairs",
    "--mtu",
    "--buffer",
    "--fail",
    "--detect-us",
    "--emulated-rate",
    "--volume",
]
SHARED += [
    "--calibrate",
    "--dry-run",
    "--model-only",
    "--cli",
    "--datapath",
    "--no-sandbox",
    "--no-wait",
    "--jobs",
    "--resume",
    "--part",
    "--cluster",
    "--out",
    "--plots",
    "--events",
    "--debug",
    "--help",
]


def modelled(name: str, out: Path, *options: str) -> pd.DataFrame:
    """Run a scenario by the model on 4 servers of 2 rails, and return its summary."""
    small = ["--model-only", "--servers", "4", "--rails", "2", "--seeds", "1", "--out", str(out)]
    done = ran(name, *small, *options)
    assert done.returncode == 0, done.stderr
    assert f"results: {out}/report.html" in done.stdout
    return pd.read_csv(out / "summary.csv")


@pytest.mark.parametrize(
    ("name", "workloads", "schemes"),
    [
        pytest.param("rails_uniform", ["uniform"], SCHEMES, marks=pytest.mark.drawn),
        ("rails_sender_skew", SKEWED[:1], SCHEMES),
        ("rails_receiver_skew", SKEWED[1:], SCHEMES),
        ("rails_mixtral", MIXTRAL, ["rails"]),
        (
            "rails_all",
            WHOLE,
            ["rails"],
        ),
    ],
)
def test_every_workload_runs_under_every_scheme_and_rails_is_near_the_bound(
    tmp_path: Path, name: str, workloads: list[str], schemes: list[str]
) -> None:
    out = tmp_path / "out"
    table = modelled(name, out, "--schemes", ",".join(schemes))
    assert list(zip(table["workload"], table["scheme"], strict=True)) == [
        (workload, scheme) for workload in workloads for scheme in schemes
    ]
    rails = table[table["scheme"] == "rails"]
    assert (rails["cct_s"] / rails["bound_s"]).between(0.999, 1.10).all()
    assert (table["iteration_s"] >= table["cct_s"]).all()
    models = {workload.rpartition(" ")[0] for workload in workloads if "mixtral" in workload}
    assert len(list(out.glob("phases_*.png"))) == len(models)


@pytest.mark.parametrize(
    ("name", "options", "workloads", "schemes", "seeds"),
    [
        ("uniform", {}, ["uniform"], SCHEMES, 3),
        ("sender_skew", {"seeds": "2"}, ["sender skew"], SCHEMES, 2),
        ("receiver_skew", {"schemes": "reps:4,ecmp"}, ["receiver skew"], ["reps:4", "ecmp"], 3),
        ("mixtral", {}, MIXTRAL, SCHEMES, 3),
        ("mixtral", {"placements": "sparse", "phases": "mid"}, ["mixtral sparse mid"], SCHEMES, 3),
        ("all", {}, WHOLE, SCHEMES, 1),
    ],
)
def test_points_are_workloads_then_seeds_then_schemes(
    name: str, options: dict[str, str], workloads: list[str], schemes: list[str], seeds: int
) -> None:
    study = described(CHECKOUT / "scenarios" / f"rails_{name}.toml")(**options)
    points = [(each.job.name, each.seed, each.scheme) for each in study.experiments]
    assert points == [*product(workloads, range(seeds), schemes)]
    assert study.fabrics == [rail_fabric(8, 4)]
    assert rails_claims in cast("partial[object]", study.claims).args


def test_a_seed_draws_the_workload_that_its_generator_makes() -> None:
    study = described(CHECKOUT / "scenarios" / "rails_sparse.toml")(servers="4", rails="2", sparsity="0.25")
    own = [each for each in study.experiments if each.job.name == "sparse 0.25"]
    drawn = [single(sparse(8, 0.25, seed=seed)) for seed in (0, 1)]
    assert [(each.job, each.seed) for each in own] == [(drawn[seed], seed) for seed in (0, 0, 0, 1, 1, 1)]
    others = [each for each in study.experiments if each not in own]  # the A100 log, where the machine has it
    assert {each.seed for each in others} <= {0}


@pytest.mark.parametrize(
    ("name", "options", "at_bound"),
    [
        ("uniform", {}, True),
        ("sender_skew", {}, True),
        ("receiver_skew", {}, False),
        ("sparse", {"sparsity": "0.6", "gating": "gpu"}, False),
    ],
)
def test_pxn_takes_as_long_as_its_busiest_rail(name: str, options: dict[str, str], *, at_bound: bool) -> None:
    """That is the bound where receivers are even: where bytes arrive, PXN chooses no more than ECMP does."""
    study = described(CHECKOUT / "scenarios" / f"rails_{name}.toml")(schemes="pxn", seeds="1", **options)
    asked = study.experiments[0]
    outcome = Outcome(asked, predict(asked))
    owed = bytes_between(asked.job.collectives[0].pattern, 32).reshape(8, 4, 8, 4)
    crossing = owed * (1 - np.eye(8, dtype=np.int64))[:, None, :, None]
    busiest = max(crossing.sum(axis=(0, 1)).max(), crossing.sum(axis=(1, 2)).max())
    assert outcome.cct_s == pytest.approx(8 * busiest / 100e9, rel=0.001)
    assert (outcome.cct_s / outcome.bound_s < 1.01) == at_bound
    assert at_bound or outcome.cct_s / outcome.bound_s > 1.5


def test_the_help_is_the_docstring_and_all_options_the_scenario_s_own_first() -> None:
    told = ran("rails_sparse", "--help", env={**os.environ, "COLUMNS": "400"}).stdout
    assert "how far RailS beats ECMP" in told
    assert re.findall(r"^\W{1,2}(--[a-z-]+)", told, re.MULTILINE) == [*OWN, *SHARED]


def test_links_delay_and_lose_what_they_are_told_to(tmp_path: Path) -> None:
    plain = modelled("rails_uniform", tmp_path / "plain", "--schemes", "rails")
    options = ["--schemes", "rails", "--link-delay-us", "100", "--loss", "0.1"]
    impaired = modelled("rails_uniform", tmp_path / "impaired", *options)
    assert impaired["bound_s"][0] == pytest.approx(plain["bound_s"][0] + 200e-6)
    # Bytes cross two links; the announcement of them and the grant did so before.
    assert impaired["cct_s"][0] == pytest.approx(plain["cct_s"][0] / 0.9**2 + 3 * 200e-6, rel=1e-6)
    [kept] = experiments_of(tmp_path / "impaired" / "run.json")
    assert {(link.delay_s, link.loss) for link in kept.fabric.links} == {(1e-4, 0.1)}
    report = (tmp_path / "impaired" / "report.html").read_text()
    assert "a delay of 100 µs one way and a loss of 10 %" in report


@pytest.mark.parametrize(("side", "column"), [("sender", "mse_sent"), ("receiver", "mse_received")])
def test_a_stronger_skew_loads_the_nics_of_ecmp_less_evenly(tmp_path: Path, side: str, column: str) -> None:
    weak, strong = (
        modelled(f"rails_{side}_skew", tmp_path / exponent, "--exponent", exponent, "--schemes", "ecmp,rails")
        for exponent in ("0.5", "2")
    )
    assert weak[column][0] < strong[column][0]
    assert strong[column][1] < 0.01 < strong[column][0]


@pytest.mark.parametrize("name", ["uniform", "sparse 0.6", "sender skew", "mixtral dense start"])
def test_a_trace_is_never_taken_for_the_workload_whose_name_its_file_has(tmp_path: Path, name: str) -> None:
    trace, out = tmp_path / name, tmp_path / "out"
    trace.write_text("\n".join([" ".join(["1000"] * 8)] * 8))
    table = modelled("rails_sparse", out, "--sparsity", "0.6", "--trace", str(trace))
    synthetic, replayed = table[:3], table[3:]
    assert set(synthetic["workload"]) == {"sparse 0.6"}
    assert replayed["workload"].tolist() == [f"trace {name}"] * 3
    assert [claim.text for claim in rails_claims(table)] == [claim.text for claim in rails_claims(synthetic)]
    assert rails_claims(replayed) == []
    assert not list(out.glob("phases_*.png"))


def test_sparse_is_per_token_unless_the_other_gating_is_asked_for(tmp_path: Path) -> None:
    options = ["--schemes", "rails", "--sparsity", "0.6,0", "--top-k", "1"]
    for gating, endings in (("", [""]), ("gpu", [" per GPU"]), ("gpu,token", [" per GPU", ""])):
        out = tmp_path / f"out {gating}"
        table = modelled("rails_sparse", out, *options, *(["--gating", gating] if gating else []))
        asked = [f"sparse {sparsity}{ending}" for ending in endings for sparsity in ("0.6", "0")]
        sparse = table[
            table["workload"].str.startswith("sparse")
        ]  # data sets of the machine stand beside them
        assert sparse["workload"].tolist() == asked
        assert sparse["note"].str.contains("top 1 of").all()
    done = ran("rails_sparse", "--model-only", "--gating", "layer")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "--gating: found 'layer', expected 'token' or 'gpu'; see docs/reference/study.md\n"


def test_a_routing_trace_is_replayed(tmp_path: Path) -> None:
    chosen, trace = (
        np.random.default_rng(0).random((4000, 1, 16)).argsort()[:, :, :2],
        tmp_path / "routed.npy",
    )
    np.save(trace, chosen.astype(np.int16))
    options = ["--trace", str(trace), "--experts", "16", "--token-bytes", "1000", "--all-to-alls", "1"]
    table = modelled("rails_sparse", tmp_path / "out", "--schemes", "rails", "--sparsity", "0", *options)
    assert table["workload"].tolist() == ["sparse 0", "trace routed.npy"]
    assert "vLLM routing trace routed.npy: 16 experts on 8" in table["note"].iloc[-1]
    assert "4000 tokens in one batch, spread evenly; 1 all-to-all" in table["note"].iloc[-1]
    options += ["--tokens-per-gpu", "100"]
    table = modelled(
        "rails_sparse", tmp_path / "in batches", "--schemes", "rails", "--sparsity", "0", *options
    )
    assert "4000 tokens in batches of 100 per GPU" in table["note"].iloc[-1]


def test_what_fails_is_run_beside_the_same_without_and_told_in_a_table(tmp_path: Path) -> None:
    faults = "nic:3:1@10%-50%,link:leaf0-spine1@40%"
    options = ["--schemes", "ecmp,rails", "--fail", faults, "--detect-us", "20"]
    table = modelled("rails_uniform", tmp_path / "out", *options)
    cct_s = table.set_index("scheme")["cct_s"]
    for scheme in ("ecmp", "rails"):
        assert cct_s[f"{scheme}, nic:3:1@10%-50%, link:leaf0-spine1@40%"] >= cct_s[scheme]
    found = pd.read_csv(tmp_path / "out" / "faults.csv")
    assert set(found["fault"]) == set(faults.split(","))
    assert (found["detected_s"] - found["failed_s"]).round(9).eq(20e-6).all()
    assert "What failed: means over seeds" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nic:9:1@40%", "'nic:9:1@40%' on fabric 'rail': server 9 of 4: there is none"),
        ("nic:1:1", "'nic:1:1' is not a valid fault"),
        ("nic:1:1@70%-40%", "is back before it fails"),
        ("", "the list '' is empty"),
        (
            "switches@40%",
            "nothing more can arrive after switches@40%: nothing is on its way, and the job has not ended",
        ),
    ],
)
def test_a_fault_that_cannot_be_is_a_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    small = ["--servers", "4", "--rails", "2", "--out", str(tmp_path / "out")]
    done = ran("rails_uniform", "--model-only", *small, "--fail", text)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
