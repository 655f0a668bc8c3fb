"""What servers and OCSes did when: nothing of a run is lost, and nothing is counted twice."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios._infinitehbd.exchange.all_to_all import EXCHANGE, all_to_alls
from scenarios._infinitehbd.ring.dying import Dying, dying_ring
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import plan_of
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from testbed.report.activity import (
    SPANS,
    light_spans,
    merged,
    server_spans,
    shares,
    timed_messages,
    waiting_spans,
)
from testbed.report.waits import outages, under_way_and_waiting
from tests.testbed.ocs_cases import DELAY_S, OCSES, experiment_of
from tests.testbed.run_cases import moe, ring
from tests.testbed.runs import changed
from topologies.khop_ring import KHopRing
from topologies.rail import rail_fabric
from traffic.clock import NEVER
from traffic.tables import LINKS, Tables

BINS, END_S = 20, 100.0
spans_of_two = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 100), st.integers(0, 100)).map(
        lambda row: (row[0], float(min(row[1:])), float(max(row[1:])))
    )
)


def table(rows: list[tuple[str, float, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["who", "start_s", "end_s"])


@given(spans_of_two)
def test_merged_spans_cover_the_same_instants_and_do_not_touch(rows: list[tuple[str, float, float]]) -> None:
    found = merged(table(rows), ["who"])
    halves = np.arange(0, 100, 0.5) + 0.25
    for who in "ab":
        mine = found[found["who"] == who]
        before = [any(start < at < end for name, start, end in rows if name == who) for at in halves]
        spans = list(zip(mine["start_s"], mine["end_s"], strict=True))
        assert [any(start < at < end for start, end in spans) for at in halves] == before
        assert all(end < start for (_, end), (start, _) in pairwise(spans))


@given(spans_of_two)
def test_shares_add_up_to_the_time_that_spans_take(rows: list[tuple[str, float, float]]) -> None:
    spans = merged(table(rows), ["who"])
    row = np.asarray(spans["who"] == "b", dtype=np.int64)
    found = shares(spans, row, np.zeros_like(row), (2, 1, BINS), END_S)
    assert found.min(initial=0.0) >= -1e-9
    assert found.max(initial=0.0) <= 1 + 1e-9
    took_s = [(spans["end_s"] - spans["start_s"])[row == which].sum() for which in (0, 1)]
    assert found.sum(axis=(1, 2)) * END_S / BINS == pytest.approx(took_s)


def test_what_lies_behind_the_last_bin_is_left_out() -> None:
    spans, first = table([("a", 50.0, 300.0)]), np.zeros(1, dtype=np.int64)
    found = shares(spans, first, first, (1, 1, 4), END_S)
    assert found.tolist() == [[[0.0, 0.0, 1.0, 1.0]]]


def test_a_server_works_from_its_first_to_its_last_and_the_others_wait() -> None:
    case = moe()
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    spans = server_spans(run, case.fabric)
    assert list(spans.columns) == SPANS
    servers = np.asarray(case.fabric.gpu_servers)
    for lane, end in (("sends", "source"), ("receives", "destination")):
        of_server = run.messages.assign(server=servers[run.messages[end]])
        last_s = of_server.groupby(["server", "node"])["end_s"].max()
        found_s = spans[spans["lane"] == lane].groupby(["server", "node"])["end_s"].max()
        pd.testing.assert_series_equal(found_s, last_s, check_dtype=False, check_index_type=False)
    computes = spans[spans["lane"] == "computes"]
    assert computes[["server", "node"]].value_counts().tolist() == [1] * 8
    assert set((computes["end_s"] - computes["start_s"]).round(9)) == {0.02}


def test_a_message_that_was_given_up_ends_with_its_collective() -> None:
    case = ring()
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    assert run.messages["end_s"].isna().any()
    messages = timed_messages(run)
    assert len(messages) == run.messages["start_s"].notna().sum()
    cancelled_s = run.tasks.set_index("node").loc["gradients", "end_s"]
    assert messages.loc[messages["node"] == "gradients", "end_s"].max() == cancelled_s


def test_an_ocs_is_dark_for_its_delay_before_each_slot_and_never_in_two_states() -> None:
    experiment = experiment_of("spectra")
    run = predict(experiment)
    light = light_spans(run, experiment.fabric)
    dark = light[light["circuits"] == ""]
    slots = sum(map(len, plan_of(experiment.rule).schedule.switches))
    assert (dark["end_s"] - dark["start_s"]).tolist() == pytest.approx([DELAY_S] * slots)
    assert light["ocs"].nunique() == OCSES
    for _, mine in light.groupby("ocs"):
        assert mine["start_s"].tolist()[1:] == mine["end_s"].tolist()[:-1]
        assert mine["end_s"].iloc[-1] == run.iteration_s


def test_a_run_without_circuits_has_no_light() -> None:
    case = ring()
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    assert light_spans(changed(run, events=run.events.iloc[:0]), case.fabric).empty


def dying() -> Experiment:
    """Return AllReduces over three nodes of two GPUs, of which the middle one dies; known 1 ms later."""
    return dying_ring(
        KHopRing(5, 2, 2), 6, 1_000_000_000, Dying((1,), "shrink", 0.4, 1e-3, 1), gpu_bps=6.4e12
    )


def test_all_ocses_of_a_dead_node_are_dark_and_others_only_while_they_switch() -> None:
    experiment = dying()
    run = predict(experiment)
    light = light_spans(run, experiment.fabric)
    at_s = run.events.set_index("what")["at_s"]
    dark = {
        ocs: mine[["start_s", "end_s"]].to_numpy().tolist()
        for ocs, mine in light[light["circuits"] == ""].groupby("ocs")
    }
    dead = [[at_s["failed"], run.iteration_s]]
    switching = [[at_s["detected"], at_s["lit"].max()]]
    assert dark == {"n1b0": dead, "n1b1": dead, "n0b1": switching, "n2b0": switching}
    for _, mine in light.groupby("ocs"):
        assert mine["start_s"].tolist()[1:] == mine["end_s"].tolist()[:-1]


def test_who_sends_to_a_dead_node_waits_until_that_is_known_and_then_for_light() -> None:
    experiment = dying()
    run = predict(experiment)
    at_s = run.events.set_index("what")["at_s"]
    waits = waiting_spans(run, experiment.fabric)
    hit = waits[(waits["node"] == "hit 1") & (waits["lane"] == "sends")]
    assert set(hit["server"]) == {0, 1, 2, 3, 4, 5}
    assert set(hit["end_s"]) == {at_s["detected"]}
    assert (hit["start_s"] >= at_s["failed"]).all()
    assert set(hit.loc[hit["server"].isin([2, 3]), "start_s"]) == {at_s["failed"]}
    again = waits[(waits["node"] == "again 1") & (waits["lane"] == "sends")]
    assert set(zip(again["start_s"], again["end_s"], strict=True)) == {(at_s["detected"], at_s["lit"].max())}
    assert set(again["server"]) == {0, 1, 4, 5}
    assert set(waits["node"]) == {"hit 1", "again 1"}


def test_rounds_wait_for_their_circuits() -> None:
    (exchange,) = (each for each in all_to_alls([2], 4, [40]) if each.scheme == EXCHANGE)
    waits = waiting_spans(predict(exchange.experiment), exchange.experiment.fabric)
    assert set(waits["node"]) == {"round 2"}
    assert waits[["start_s", "end_s"]].drop_duplicates().to_numpy().tolist() == [[100e-6, 170e-6]]


@pytest.mark.parametrize("which", ["moe", "ring", "dying"])
def test_a_message_is_under_way_or_waits_and_never_both(which: str) -> None:
    if which == "dying":
        fabric, run = dying().fabric, predict(dying())
    else:
        case = moe() if which == "moe" else ring()
        fabric, run = case.fabric, case.run(FluidBackend(case.fabric, case.delay_s))
    spans = pd.concat(under_way_and_waiting(run.tables, fabric)).sort_values("start_s", kind="stable")
    for number, message in timed_messages(run).iterrows():
        mine = spans[spans.index == number]
        assert mine["end_s"].tolist()[-1:] == [message["end_s"]] * bool(len(mine))
        assert mine["start_s"].tolist()[1:] == mine["end_s"].tolist()[:-1]
        assert mine["start_s"].min() <= message["start_s"] or mine.empty


def test_a_link_is_out_at_both_ends_from_each_failure_until_it_is_back() -> None:
    fabric = rail_fabric(2, 1)
    port, other = (fabric.nic_port(nic) for nic in fabric.nics)
    rows = [
        (0, 5, 1e9, False, False), (0, 6, 1e9, False, True), (0, 9, 1e9, True, True), (1, 7, 1e9, True, True),
        (0, 12, 1e9, False, False),
    ]  # fmt: skip
    links = pd.DataFrame(rows, columns=list(LINKS))
    found = outages(Tables(links=links, ports=(port, other)), fabric)
    assert found == {end: [(5, 9), (12, NEVER)] for end in (port, fabric.peer(port))}
