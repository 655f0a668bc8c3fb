"""What reports say of faults: when they were known, what they added, what they cost."""

from dataclasses import replace
from math import isnan

import pytest

from testbed.experiment.dilation import UNSCALED
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.faults import fault_sheets, fault_table
from testbed.report.page import Line
from testbed.trust.outcome import Outcome, Verdict
from tests.testbed.cases import VOID, slowed
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.effects import Gone
from traffic.fault_text import WrittenFault
from traffic.faults import Fault, KnownRevision, Revisions, When
from traffic.job import Collective, Compute, Job
from traffic.steps import single
from traffic.workloads.synthetic import uniform

HEALTHY = Experiment(rail_fabric(3, 2), single(uniform(6)), "rails", UNSCALED)


def outcome(*texts: str, seed: int = 0) -> Outcome:
    """Return what is predicted with faults that are known after a twentieth of the time."""
    took_s = predict(HEALTHY).iteration_s
    faults = tuple(WrittenFault(text).over(HEALTHY.fabric, took_s, took_s / 20) for text in texts)
    experiment = replace(HEALTHY, faults=faults, seed=seed)
    return Outcome(experiment, predict(experiment))


def test_each_fault_has_a_row_with_its_times_and_what_was_added() -> None:
    before, after = outcome(), outcome("nic:1:0@20%-60%", "nic:2:1@90%")
    table = fault_table([before, after])
    took_s = before.predicted_s
    nic, other = table.to_dict("records")
    assert [nic["scheme"], nic["fault"]] == ["rails", "nic:1:0@20%-60%"]
    assert [other["scheme"], other["fault"]] == ["rails", "nic:2:1@90%"]
    stages = [nic[name] / took_s for name in ("failed_s", "detected_s", "gone_around_s")]
    assert stages == pytest.approx([0.2, 0.25, 0.25])
    assert [nic[name] / took_s for name in ("back_s", "in_use_again_s")] == pytest.approx([0.6, 0.65])
    assert isnan(other["back_s"])
    assert nic["added_s"] == pytest.approx(after.cct_s - took_s)
    assert nic["added_s"] == other["added_s"] > 0
    assert nic["given_up"] == 0


def test_what_is_given_up_is_counted_and_is_part_of_no_number() -> None:
    before, after = outcome(), outcome("server:1@30%")
    (row,) = fault_table([before, after]).to_dict("records")
    lost = after.run.messages["end_s"].isna()
    assert row["given_up"] == lost.sum() > 0
    assert row["given_up_bytes"] == after.run.messages.loc[lost, "bytes"].sum()
    assert len(after.run.records) == (~lost).sum()
    assert after.bound_s < before.bound_s
    assert after.bound_s <= after.cct_s


def test_what_is_added_to_a_job_is_its_iteration_s() -> None:
    """A backup GPU computes again what one had begun: no byte is later, and the job is."""
    nodes = (
        Collective("tokens", AllToAll(uniform(4)), ()),
        Compute("experts", (0, 1, 2, 3), 1.0, ("tokens",)),
    )
    healthy = replace(HEALTHY, job=Job("step", 6, nodes))
    fault = Fault("gpu:3", (Gone((3,)),), When("experts", 0.4), 0.1)
    revisions = Revisions((KnownRevision("gpu:3", moves=((3, 4),)),))
    failing = replace(healthy, faults=(fault,), revisions=revisions)
    before, after = (Outcome(each, predict(each)) for each in (healthy, failing))
    (row,) = fault_table([before, after]).to_dict("records")
    assert after.cct_s == pytest.approx(before.cct_s)
    assert row["added_s"] == row["predicted_added_s"] == pytest.approx(0.5, rel=0.01)


def test_without_the_point_as_it_was_nothing_is_said_to_be_added() -> None:
    (row,) = fault_table([outcome("nic:1:0@20%", seed=1)]).to_dict("records")
    assert isnan(row["added_s"])


def emulated(*texts: str, seed: int = 0, slower: float = 1.0, void: bool = False) -> Outcome:
    """Return an outcome whose emulation took so many times as long as predicted."""
    predicted = outcome(*texts, seed=seed)
    run = slowed(predicted.run, slower)
    return replace(predicted, emulated=run, verdict=VOID if void else Verdict("faithful"))


def line_of(*outcomes: Outcome) -> Line:
    """Return the one line of the table of faults."""
    ((block,),) = (sheet.blocks for sheet in fault_sheets(outcomes))
    (line,) = block.lines
    return line


FAULT = "nic:1:0@20%"
ALONE = emulated(), emulated(FAULT)


@pytest.mark.parametrize(
    "void",
    [
        (emulated(seed=1), emulated(FAULT, seed=1, slower=9, void=True)),
        (emulated(seed=1, slower=9, void=True), emulated(FAULT, seed=1)),
    ],
    ids=["with the fault", "without it"],
)
def test_a_void_seed_is_left_out_of_the_means(void: tuple[Outcome, Outcome]) -> None:
    alone, line = line_of(*ALONE), line_of(*ALONE, *void)
    faulty_is_void = void[1].verdict == VOID
    assert line.cells[1] == ("void 1/2" if faulty_is_void else "faithful")
    assert (line.cells[2:], line.look) == (alone.cells[2:], "")
    table = fault_table([*ALONE, *void])
    words = [("faithful", "faithful"), ("void", "faithful") if faulty_is_void else ("faithful", "void")]
    assert list(zip(table["verdict"], table["healthy_verdict"], strict=True)) == words


def test_what_rests_on_void_seeds_alone_says_so() -> None:
    line = line_of(emulated(), emulated(FAULT, void=True))
    assert (line.cells[1], line.word, line.look) == ("void", "void", "void")
    line = line_of(emulated(void=True), emulated(FAULT))
    assert (line.cells[1], line.look) == ("faithful", "")
    sheet = fault_sheets([emulated(void=True), emulated(FAULT)])[0]
    cells = dict(zip([*sheet.words, *sheet.numbers], line.cells, strict=True))
    assert (cells["added"], cells["model"], cells["/ model"]) == ("void", "void", "void")
    assert cells["fails"] != "void"
    assert "void: the machine could not keep up" in sheet.caption


def test_a_point_of_another_experiment_is_not_the_one_without_faults() -> None:
    other = replace(outcome(), experiment=replace(HEALTHY, chunk_bytes=1 << 10))
    (row,) = fault_table([other, outcome(FAULT)]).to_dict("records")
    assert isnan(row["added_s"])


def test_the_sheet_has_a_line_per_scheme_and_is_not_there_without_faults() -> None:
    assert fault_sheets([outcome()]) == []
    (sheet,) = fault_sheets(
        [outcome(), outcome("nic:1:0@20%"), outcome(seed=1), outcome("nic:1:0@20%", seed=1)]
    )
    (block,) = sheet.blocks
    assert block.title == "nic:1:0@20%, uniform"
    (line,) = block.lines
    assert line.cells[:2] == ["rails", "model"]
    assert len(line.cells) == len(sheet.words) + len(sheet.numbers)
