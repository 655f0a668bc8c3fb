"""The trace of a run: in the format that viewers read, with all of its times, and no slice cut in two."""

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Literal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from testbed.core.run import Run
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from testbed.report import chrome_trace as module
from testbed.report.chrome_trace import chrome_trace
from tests.testbed.cases import slowed
from tests.testbed.ocs_cases import experiment_of
from tests.testbed.run_cases import Case, moe, ring
from tests.testbed.runs import run_of
from topologies.rail import rail_fabric

FABRIC = rail_fabric(2, 2)


class Strict(BaseModel):
    """Nothing else stands in it, and nothing is taken for something else."""

    model_config = ConfigDict(extra="forbid", strict=True)
    pid: int
    tid: int


class Name(BaseModel):
    """What metadata may say."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str | None = None
    sort_index: int | None = None


class Metadata(Strict):
    """What a process or thread is called, and where it stands."""

    ph: Literal["M"]
    name: Literal["process_name", "process_sort_index", "thread_name", "thread_sort_index"]
    args: Name


class Complete(Strict):
    """A slice."""

    ph: Literal["X"]
    name: str
    ts: float = Field(ge=0)
    dur: float = Field(ge=0)
    args: dict[str, str | int] = {}

    @property
    def span_ns(self) -> tuple[int, int]:
        """When it was, as viewers count."""
        start_ns = round(self.ts * 1e3)
        return start_ns, start_ns + round(self.dur * 1e3)


class Instant(Strict):
    """Something that took no time, shown over all processes."""

    ph: Literal["i"]
    s: Literal["g"]
    name: str
    ts: float = Field(ge=0)


class Trace(BaseModel):
    """The format, as far as lightrail writes it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    displayTimeUnit: Literal["ms"]  # as the format has it
    otherData: dict[str, str]
    traceEvents: list[Annotated[Metadata | Complete | Instant, Field(discriminator="ph")]]

    def named(self, what: str) -> dict[tuple[int, int], str]:
        """Return the names of processes or threads."""
        return {
            (event.pid, event.tid): event.args.name or ""
            for event in self.traceEvents
            if isinstance(event, Metadata) and event.name == what
        }

    def slices(self, process: str, thread: str) -> list[Complete]:
        """Return all slices on a thread, and on those beside it where it overlaps."""
        pids = {pid for (pid, _), name in self.named("process_name").items() if name == process}
        threads = {
            at
            for at, name in self.named("thread_name").items()
            if at[0] in pids
            and name.rstrip(" 0123456789") == thread.rstrip(" 0123456789")
            and (name == thread or name.startswith(f"{thread} "))
        }
        return [
            event
            for event in self.traceEvents
            if isinstance(event, Complete) and (event.pid, event.tid) in threads
        ]


def trace_of(case: Case) -> tuple[Run, Trace]:
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    runs = {"emulated": slowed(run, 1.1), "predicted": run}
    return run, Trace.model_validate_json(chrome_trace(runs, case.fabric))


def check_no_slice_is_cut(trace: Trace) -> None:
    """Check that no two slices of a thread overlap."""
    threads = defaultdict(list)
    for event in trace.traceEvents:
        if isinstance(event, Complete):
            threads[event.pid, event.tid].append(event.span_ns)
    for spans in threads.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))


def times_ns(table: pd.DataFrame) -> list[tuple[int, int]]:
    ends = zip(table["start_s"], table["end_s"], strict=True)
    return sorted((round(start_s * 1e9), round(end_s * 1e9)) for start_s, end_s in ends)


def spans_of(slices: Iterable[Complete]) -> list[tuple[int, int]]:
    return sorted(each.span_ns for each in slices)


@pytest.mark.parametrize("case", [moe(), ring()], ids=["moe", "ring"])
def test_every_compute_and_message_of_a_run_is_a_slice_at_its_time(case: Case) -> None:
    run, trace = trace_of(case)
    check_no_slice_is_cut(trace)
    assert trace.otherData == {}
    for gpu in range(case.job.gpus):
        server = f"predicted: h{case.fabric.gpu_servers[gpu]}"
        computes = run.tasks[run.tasks["gpu"] == gpu]
        assert spans_of(trace.slices(server, f"GPU {gpu}")) == times_ns(computes)
        sent = run.messages[(run.messages["source"] == gpu) & run.messages["start_s"].notna()]
        found = trace.slices(server, f"GPU {gpu}'s messages")
        assert len(found) == len(sent)
        ended = [each for each in found if each.span_ns in times_ns(sent[sent["end_s"].notna()])]
        assert len(ended) >= sent["end_s"].notna().sum()
        assert sum(int(each.args["bytes"]) for each in found) == sent["bytes"].sum()
    nodes = run.tasks.groupby("node").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
    assert spans_of(trace.slices("predicted: job", "nodes")) == times_ns(nodes)


def test_what_failed_is_an_instant_of_each_run() -> None:
    run, trace = trace_of(moe())
    instants = [event for event in trace.traceEvents if isinstance(event, Instant)]
    assert [event.name for event in instants] == ["h0:0 failed", "h0:0 detected", "h0:0 gone around"] * 2
    failed_s = run.events.loc[run.events["what"] == "failed", "at_s"].item()
    assert instants[3].ts == pytest.approx(failed_s * 1e6)


def test_an_ocs_is_a_process_whose_slices_are_what_was_lit_and_dark() -> None:
    experiment = experiment_of("spectra")
    run = predict(experiment)
    trace = Trace.model_validate_json(chrome_trace({"predicted": run}, experiment.fabric))
    light = trace.slices("predicted: ocs0", "light")
    assert [each.name == "dark" for each in light] == [True, False] * (len(light) // 2)
    for before, after in pairwise(light):
        assert before.span_ns[1] == after.span_ns[0]


def test_the_emulated_run_stands_above_the_predicted_one() -> None:
    _, trace = trace_of(ring())
    names = list(trace.named("process_name").values())
    mine = ["job", "a", "b", "h0", "h1", "h2"]
    assert names == [f"{run}: {name}" for run in ("emulated", "predicted") for name in mine]
    pids = [pid for pid, _ in trace.named("process_name")]
    assert pids == sorted(set(pids))


times = st.integers(0, 50).map(lambda ticks: ticks * 1e-7 / 3)
messages = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), times, times), max_size=30)


@given(messages)
def test_any_messages_are_all_there_and_never_cut(rows: list[tuple[int, int, float, float]]) -> None:
    table = pd.DataFrame(
        [("all", a, b, 1, min(s, e), max(s, e), "nvlink") for a, b, s, e in rows],
        columns=["node", "source", "destination", "bytes", "start_s", "end_s", "path"],
    ).astype({"start_s": float, "end_s": float, "source": int, "destination": int})
    end_s = float(table["end_s"].max()) if rows else 0.0
    tasks = pd.DataFrame([("all", -1, 0.0, end_s)], columns=["node", "gpu", "start_s", "end_s"])
    run = run_of(table, tasks, pd.DataFrame(columns=["at_s", "what", "which"]))
    trace = Trace.model_validate_json(chrome_trace({"predicted": run}, FABRIC))
    check_no_slice_is_cut(trace)
    found = [each for each in trace.traceEvents if isinstance(each, Complete) and "bytes" in each.args]
    assert spans_of(found) == times_ns(table)


def test_what_would_be_too_much_is_left_out_whole_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EVENTS", 60)
    run, trace = trace_of(moe())
    assert trace.otherData == {
        f"messages of the {name} run": f"{len(run.messages)}, see records.csv and nodes.csv"
        for name in ("emulated", "predicted")
    }
    slices = [each for each in trace.traceEvents if isinstance(each, Complete)]
    assert not any("bytes" in each.args for each in slices)
    assert len(slices) <= 2 * 60
    assert json.loads(chrome_trace({}, FABRIC))["traceEvents"] == []
