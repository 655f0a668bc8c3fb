"""What servers and OCSes did when: nothing of a run is lost, and nothing is counted twice."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.report.activity import SPANS, light_spans, merged, server_spans, shares, timed_messages
from testbed.run.fluid_backend import FluidBackend
from testbed.run.ocs_plan import plan_of
from testbed.run.predict import predict
from tests.testbed.ocs_cases import DELAY_S, OCSES, experiment_of
from tests.testbed.run_cases import moe, ring
from tests.testbed.runs import changed

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
    light = light_spans(run)
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
    assert light_spans(changed(run, events=run.events.iloc[:0])).empty
