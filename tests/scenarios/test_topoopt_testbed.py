"""TopoOpt's testbed without a network: who sends to whom, what relaying costs, claims, drawings, refusals."""

import math
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from controller.schedulers.coin_change import bandwidth_tax
from scenarios._topoopt.experiments import data_parallel, over_expander, over_panel, plan_for
from scenarios._topoopt.relaying import (
    HEADER_BYTES,
    circuit_hops,
    circuit_loads,
    circuits_between,
    relaying,
    sent_between,
)
from scenarios._topoopt.testbed.drawings import circuit_drawings, demand_maps, distributions
from scenarios._topoopt.testbed.points import (
    DIRECT,
    RELAYED,
    SERVERS,
    Prototype,
    iteration_experiments,
    ring_experiments,
    trained_on,
)
from scenarios._topoopt.testbed.report import testbed_claims as claims_of
from scenarios._topoopt.testbed.report import testbed_findings as findings_of
from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.run_json import experiments_of
from testbed.trust.outcome import Measures, Outcome, Verdict
from tests.scenarios.command import ran
from tests.traffic.strategy_cases import models
from traffic.collectives.ring import Ring
from traffic.models.layered import LayeredModel
from traffic.tables import WIRE

TAXES = {64: 1.13, 128: 1.23, 256: 1.36, 512: 1.50}
"""Of DLRM by its batch (the paper's section 6, worked out)."""
VOLUME = 1e-3


@cache
def rings(degree: int = 4) -> dict[str, Experiment]:
    """Return the AllReduces of a testbed by their names, at a small scale."""
    prototype = Prototype(degree)
    trained = trained_on(prototype, "resnet50")
    *_, panel = iteration_experiments(prototype, trained)
    found = ring_experiments(prototype, panel, plan_for(trained, degree))
    return {each.job.name: replace(each, dilation=Dilation(1e-3, VOLUME)) for each in found}


predicted = cache(predict)
"""Of an experiment; no test changes a run."""


def counted(experiment: Experiment, run: Run, tax: float) -> Run:
    """Return a run in which NICs sent so many times what servers had to, and the panel as much again."""
    payload, packets, fabric = sent_between(experiment).sum() * VOLUME * tax, 1000, experiment.fabric
    nic, panel = fabric.nic_port(fabric.nics[0]), fabric.peer(fabric.nic_port(fabric.nics[0]))
    rows = [(number, round(payload) + HEADER_BYTES * packets, packets, 0) for number in range(2)]
    wire = pd.DataFrame(rows, columns=list(WIRE)).astype(WIRE)
    return Run(replace(run.tables, wire=wire, ports=(nic, panel)), run.audit)


def paths_of_circuits(experiment: Experiment, degree: int) -> NDArray[np.float64]:
    """Return the hops between servers by Floyd's algorithm: NIC k of server s is on port s d + k."""
    (lit,) = dict(experiment.circuits.first).values()  # type: ignore[union-attr]
    servers = len(experiment.fabric.servers)
    hops = np.full((servers, servers), math.inf)
    np.fill_diagonal(hops, 0)
    for a, b in lit:
        hops[a // degree, b // degree] = min(hops[a // degree, b // degree], 1)
    for by in range(servers):
        hops = np.minimum(hops, hops[:, [by]] + hops[[by], :])
    return hops


@pytest.mark.parametrize("batch", TAXES)
def test_dlrm_s_bandwidth_tax_is_that_of_the_worked_numbers(batch: int) -> None:
    prototype = Prototype()
    trained = trained_on(prototype, "dlrm", batch)
    *_, panel = iteration_experiments(prototype, trained)
    tax = bandwidth_tax(0.0, sent_between(panel), circuit_hops(panel))
    ring_bytes = sum(2 * (len(group.members) - 1) * group.bytes for group in trained.groups)
    transfers = int(trained.transfers.sum())
    assert tax == pytest.approx((ring_bytes + 20 / 11 * transfers) / (ring_bytes + transfers), rel=1e-6)
    assert tax == pytest.approx(TAXES[batch], abs=0.005)


@given(models(8), st.sampled_from([2, 4]))
def test_servers_send_their_transfers_and_what_rings_take(model: LayeredModel, degree: int) -> None:
    assume(all(layer.features for layer in model.layers))  # a table sends a byte at least
    trained = data_parallel(model)
    plan = plan_for(trained, degree)
    owed = trained.transfers.astype(float)
    for group in trained.groups:
        for ring in (found := plan.rings_of(group.members)):
            for near, far in zip(ring, (*ring[1:], ring[0]), strict=True):
                owed[near, far] += 2 * (len(ring) - 1) * group.bytes / len(ring) / len(found)
    experiment = over_panel(trained, plan, 10e9)
    sent, no_ring = sent_between(experiment), owed == trained.transfers
    assert (sent[no_ring] == owed[no_ring]).all()
    # A ring's chunks are of whole bytes: each of its 14 steps differs from the mean by less than one.
    sums = sum(isinstance(node.pattern, Ring) for node in experiment.job.collectives)
    assert np.abs(sent - owed).max() <= 14 * degree * sums


def test_hops_are_those_of_shortest_paths_over_the_lit_circuits() -> None:
    prototype = Prototype()
    trained = trained_on(prototype, "resnet50")
    *_, panel = iteration_experiments(prototype, trained)
    expanders = [over_expander(trained, degree, 25e9, seed=seed) for degree, seed in ((3, 0), (4, 1))]
    for experiment, degree in zip([panel, *expanders], (4, 3, 4), strict=True):
        assert (circuit_hops(experiment) == paths_of_circuits(experiment, degree)).all()
        assert len(circuits_between(experiment)) == SERVERS * degree
        assert all(a != b for a, b in circuits_between(experiment))
    assert circuit_hops(panel)[0].tolist() == [0, 1, 2, 3, 2, 1, 2, 1, 2, 3, 2, 1], "of the coins 1 and 5"


def test_without_circuits_nothing_is_relayed() -> None:
    trained = trained_on(Prototype(), "resnet50")
    switch, *_ = iteration_experiments(Prototype(), trained)
    assert circuits_between(switch) == []
    assert not circuit_hops(switch).any()


def test_circuits_carry_what_servers_send_as_often_as_it_hops() -> None:
    for name, experiment in rings().items():
        outcome = Outcome(experiment, predicted(experiment))
        loads = circuit_loads(outcome)
        tax = relaying(outcome).computed_tax
        assert loads.sum() == pytest.approx(tax * sent_between(experiment).sum(), rel=1e-6)
        assert tax == {DIRECT: 1.0, RELAYED: 2.0}[name]
    direct = rings()[DIRECT]
    carried = circuit_loads(Outcome(direct, predicted(direct)))
    assert max(carried) == pytest.approx(min(carried), rel=1e-6)


def test_what_nics_sent_besides_headers_is_the_tax_and_what_the_panel_sent_does_not_count() -> None:
    experiment = rings()[RELAYED]
    run, measures = predicted(experiment), Measures(switch_cpu=0.5, engine_cpu=0.25)

    def found(tax: float, word: str = "faithful") -> Outcome:
        emulated = counted(experiment, run, tax)
        return Outcome(experiment, run, emulated, Verdict(word), measures)  # type: ignore[arg-type]

    for tax in (1.0, 1.9, 2.5):
        relayed = relaying(found(tax))
        assert [relayed.computed_tax, relayed.counted_tax] == pytest.approx([2.0, tax], rel=1e-4)
        assert relayed.relayed_packets == pytest.approx(1000 * (1 - 1 / tax), rel=1e-3, abs=0.1)
        assert relayed.cpu_s == pytest.approx(0.75 * run.iteration_s * VOLUME / 1e-3)
    for nothing in (found(2.0, "unsound"), Outcome(experiment, run)):
        assert relaying(nothing).computed_tax == 2.0
        assert math.isnan(relaying(nothing).counted_tax)
        assert math.isnan(relaying(nothing).cpu_s)


def test_the_tax_is_held_to_what_was_computed_and_relaying_has_a_price() -> None:
    outcomes = []
    for (name, experiment), cpus in zip(rings().items(), (0.25, 0.5), strict=True):
        run, tax = predicted(experiment), {DIRECT: 1.0, RELAYED: 1.8}[name]
        measures = Measures(switch_cpu=cpus, engine_cpu=0)
        outcomes.append(
            Outcome(experiment, run, counted(experiment, run, tax), Verdict("faithful"), measures)
        )
    found = findings_of(Prototype(), {}, outcomes)
    assert [claim.verdict for claim in found.claims] == ["holds", "does not hold", "holds"]
    assert [claim.measured for claim in found.claims] == pytest.approx([1.0, 0.9, 1.0], rel=1e-3)
    (sheet,) = found.sheets
    cells = [line.cells for line in sheet.blocks[0].lines]
    assert [each[2:4] for each in cells] == [["1.000", "1.000"], ["2.000", "1.800"]]
    times_s = [outcome.run.iteration_s for outcome in outcomes]
    as_many = (2 * 5 / 6) / (2 * 11 / 12)  # bytes of two groups of 6 over those of one of 12
    more_us = 1e6 * (0.5 * times_s[1] - 0.25 * times_s[0] * as_many) / (1000 * (1 - 1 / 1.8))
    assert f"took {more_us:.0f} us more CPU" in sheet.caption
    void = [replace(each, verdict=Verdict("void")) for each in outcomes]
    assert findings_of(Prototype(), {}, void).claims == []


@pytest.mark.parametrize("degree", [3, 5])
def test_an_interface_that_no_ring_takes_is_not_held_against_the_rings(degree: int) -> None:
    direct = rings(degree)[DIRECT]
    run = predicted(direct)
    emulated = counted(direct, run, 1.0)
    claims = findings_of(
        Prototype(degree), {}, [Outcome(direct, run, emulated, Verdict("faithful"), Measures())]
    ).claims
    assert claims[0].measured == pytest.approx(1, rel=1e-6)


def summary(times_s: dict[tuple[str, str], float]) -> pd.DataFrame:
    """Return the columns of a summary that claims read."""
    rows = [
        {"workload": job, "scheme": scheme, "name": scheme, "circuits": "", "iteration_s": time_s,
         "transport": "ideal", "seed": 0, "verdict": "faithful"}
        for (job, scheme), time_s in times_s.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_claims_are_of_the_models_that_were_trained() -> None:
    jobs = ["resnet50, batch 20 iteration", "dlrm, batch 512 iteration", "dlrm, batch 64 iteration",
            "ncf, batch 64 iteration", DIRECT]  # fmt: skip
    times_s = {"TopoOpt": 1.05, "switch 100G": 1.0, "switch 25G": 1.9}
    table = summary({(job, name): times_s[name] for job, name in product(jobs, times_s)})
    claims = claims_of(Prototype(), table)
    assert [(claim.text.partition(":")[0], claim.verdict) for claim in claims] == [
        ("resnet50", "holds"),
        ("resnet50", "holds"),
        ("DLRM at batch 512", "does not hold"),
    ]
    assert [claim.measured for claim in claims] == pytest.approx([1.05, 1.9 / 1.05, 1.9 / 1.05])
    slower = table.assign(iteration_s=table["iteration_s"].where(table["scheme"] != "TopoOpt", 1.88))
    assert [claim.verdict for claim in claims_of(Prototype(), slower)] == ["does not hold"] * 3


def test_drawings_have_an_axes_for_each_job() -> None:
    jobs = rings()
    demands = demand_maps({name: sent_between(each) for name, each in jobs.items()})
    assert [axes.get_title(loc="left") for axes in demands.axes if axes.images] == list(jobs)
    pairs = [(a, b) for a, b in circuits_between(jobs[DIRECT]) if a < b]
    drawn = circuit_drawings({"one": (SERVERS, pairs), "parallel": (4, [(0, 1), (1, 0), (2, 3)])})
    assert len(drawn.axes) == 2
    assert [text.get_text() for text in drawn.axes[0].get_legend().get_texts()] == ["+1", "+5"]  # type: ignore[union-attr]
    parallel = [line.get_linewidth() for line in drawn.axes[1].lines if len(np.asarray(line.get_xdata()))]
    assert parallel == [1.5, 1.0]
    outcomes = [Outcome(experiment, predicted(experiment)) for experiment in jobs.values()]
    figures = {plot.name: plot.draw() for plot in findings_of(Prototype(), {}, outcomes).plots}
    assert {name: len(figure.axes) for name, figure in figures.items()} == {
        "demand": 4, "circuits": 1, "path_lengths": 1, "circuit_loads": 1
    }  # fmt: skip
    (axes,) = distributions({"few": np.array([1.0, 2.0, 3.0]), "one": np.array([2.0])}, "title", "hops").axes
    assert [np.asarray(line.get_ydata())[-1] for line in axes.lines] == [1.0, 1.0]


def test_a_run_tells_the_tax_of_each_job_and_leaves_its_experiments(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options: list[str | Path] = ["--models", "dlrm,dlrm", "--batches", "64", "--out", out]
    done = ran("topoopt_testbed", "--model-only", *options)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    for job, tax in {"dlrm, batch 64 iteration": "1.133", DIRECT: "1.000", RELAYED: "2.000"}.items():
        assert f"{job} model {tax} - - - -" in said
    kept = experiments_of(out / "run.json")
    assert [each.label for each in kept] == ["switch 100G", "switch 25G", *["TopoOpt"] * 3]
    table = pd.read_csv(out / "summary.csv")
    assert table["workload"].tolist() == [*["dlrm, batch 64 iteration"] * 3, DIRECT, RELAYED]
    assert (table["iteration_s"] > 0).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--models", "gpt"], "unknown word 'gpt' of --models; choose from resnet50, vgg16"),
        (["--models", ","], "is empty"),
        (["--models", "none", "--no-all-reduces"], "no model and no AllReduces"),
        (["--degree", "1"], "1 interfaces, 1 buckets; take 2 to 10 interfaces"),
        (["--degree", "11"], "11 interfaces"),
        (["--rate", "nan"], "nan Gbit/s of --rate"),
        (["--buckets", "0"], "0 buckets"),
        (["--models", "dlrm", "--batches", "x"], "'x' of --batches; give whole numbers from 1 to 65536"),
        (["--models", "dlrm", "--batches", "0"], "'0' of --batches"),
        (["--models", "dlrm", "--batches", "9" * 5000], "give whole numbers from 1 to 65536"),
        (["--models", "dlrm", "--batches", ","], "is empty"),
        (["--seed", "-1"], "a seed of -1; give one from 0 to below"),
    ],
)
def test_bad_input_is_told_in_a_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    done = ran("topoopt_testbed", "--model-only", "--out", tmp_path / "out", *options)
    assert done.returncode == 2
    (told,) = done.stderr.strip().splitlines()
    assert said in told
    assert len(told) < 300
    assert not (tmp_path / "out").exists()
