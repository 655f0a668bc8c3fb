"""Job files: what each kind of node means, what is refused and where, and that nothing is lost in writing."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.traffic.job_cases import jobs, starting_jobs
from topologies.errors import DemandError, MachineError, TraceError
from topologies.events import View
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job
from traffic.job_file import read_job, write_job
from traffic.messages import messages_of
from traffic.ops import Ops, each_alone

COMPUTE: dict[str, Any] = {"kind": "compute", "name": "a", "duration_s": 0.5}
RING: dict[str, Any] = {"kind": "ring_all_reduce", "name": "a", "bytes": 1e6}


def document(*nodes: dict[str, Any], **words: object) -> dict[str, Any]:
    """Return a job file as an object."""
    return {"format": "lightrail job 1", "name": "drawn", "gpus": 4, "nodes": [*nodes], **words}


def read(tmp_path: Path, words: object) -> Job:
    """Return the job of an object, or of a text as it is."""
    file = tmp_path / "job.json"
    file.write_text(words if isinstance(words, str) else json.dumps(words))
    return read_job(file)


def refusal(tmp_path: Path, words: object) -> str:
    """Return what is said to a file that is no job, without its path."""
    with pytest.raises(TraceError) as caught:
        read(tmp_path, words)
    said = str(caught.value)
    assert "\n" not in said
    assert "pydantic" not in said
    assert len(said) < 400
    return said.removeprefix(str(tmp_path / "job.json")).lstrip(",: ")


@given(jobs() | starting_jobs())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(Job('naïve "job"\n', 4, (Compute("a/b[0]", (), 0.0), Collective("ü", PointToPoint(())))))
def test_what_is_written_is_read_as_an_equal_job(tmp_path: Path, job: Job) -> None:
    write_job(job, tmp_path / "job.json")
    assert read_job(tmp_path / "job.json") == job


def test_every_kind_of_node_means_what_it_says(tmp_path: Path) -> None:
    matrix = [[0, 5], [7, 0]]
    owed = np.array(matrix)
    found = read(
        tmp_path,
        document(
            {**COMPUTE, "after": []},
            {**COMPUTE, "name": "b", "gpus": [1, 2], "durations_s": [1, 2.5], "after": ["a"]},
            {"kind": "all_to_all", "name": "c", "uniform_bytes": 1000},
            {"kind": "all_to_all", "name": "d", "gpus": [3, 1], "matrix_bytes": matrix, "note": "synthetic",
             "coupled_as_one": True},
            {**RING, "name": "e"},
            {**RING, "name": "f", "kind": "ring_all_gather", "gpus": [2, 0]},
            {**RING, "name": "g", "kind": "ring_reduce_scatter", "rings": [[0, 1], [1, 0]]},
            {"kind": "point_to_point", "name": "h",
             "messages": [{"source": 0, "destination": 3, "bytes": 9}]},
            note="drawn by hand",
        ),
    )  # fmt: skip
    uniform = Demand("c", np.array([[1000] * 4] * 4) - 1000 * np.eye(4, dtype=np.int64))
    assert found == Job(
        "drawn",
        4,
        (
            Compute("a", (0, 1, 2, 3), 0.5),
            Compute("b", (1, 2), 0.5, ("a",), (1.0, 2.5)),
            Collective("c", AllToAll(uniform)),
            Collective("d", AllToAll(Demand("d", owed, "synthetic"), (3, 1), coupled_as_one=True)),
            Collective("e", Ring(((0, 1, 2, 3),), 1_000_000)),
            Collective("f", Ring(((2, 0),), 1_000_000, "all-gather")),
            Collective("g", Ring(((0, 1), (1, 0)), 1_000_000, "reduce-scatter")),
            Collective("h", PointToPoint(((0, 3, 9),))),
        ),
        "drawn by hand",
    )


def test_parts_and_nodes_repeat(tmp_path: Path) -> None:
    layer = {"kind": "part", "name": "layer", "repeat": 2, "nodes": [COMPUTE, {**RING, "name": "b"}]}
    once = {**COMPUTE, "name": "end", "after": ["layer"], "repeat": 2}
    arrows = {node.name: node.after for node in read(tmp_path, document(layer, once)).nodes}
    assert arrows == {
        "layer[0]/a": (),
        "layer[0]/b": (),
        "layer[1]/a": ("layer[0]/a", "layer[0]/b"),
        "layer[1]/b": ("layer[0]/a", "layer[0]/b"),
        "end[0]": ("layer[1]/a", "layer[1]/b"),
        "end[1]": ("end[0]",),
    }


def compute(**words: object) -> dict[str, Any]:
    return document({**COMPUTE, **words})


def ring(**words: object) -> dict[str, Any]:
    return document({**RING, **words})


def all_to_all(**words: object) -> dict[str, Any]:
    return document({"kind": "all_to_all", "name": "a", **words})


def sent(**words: object) -> dict[str, Any]:
    return document({"kind": "point_to_point", "name": "a", "messages": [words]})


def part(*nodes: dict[str, Any], **words: object) -> dict[str, Any]:
    return document({"kind": "part", "name": "b", "nodes": [*nodes], **words})


def within(levels: int, *nodes: dict[str, Any]) -> dict[str, Any]:
    """Return a job with nodes in a part, in as many others."""
    for _ in range(levels):
        nodes = ({"kind": "part", "name": "a", "nodes": [*nodes]},)
    return document(*nodes)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (({**COMPUTE, "gpus": [99]},), "nodes[0]: GPU 99 is used"),
        ((COMPUTE, COMPUTE), "nodes[1].name: nodes[0] is named 'a' too"),
        (({**COMPUTE, "after": ["z"]},), "nodes[0].after[0]: no node is named 'z'"),
    ],
)
def test_a_place_in_many_parts_is_short(tmp_path: Path, nodes: Any, said: str) -> None:  # noqa: ANN401
    assert f".nodes[0].{said}" in refusal(tmp_path, within(100, *nodes))


def deep(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = COMPUTE
    for _ in range(levels):
        node = {"kind": "part", "name": "a", "nodes": [node]}
    return document(node)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (ring(bytes=-1), "nodes[0].bytes: found -1, expected 0 or more"),
        (ring(bytes=1.5), "nodes[0].bytes: found 1.5, expected a whole number"),
        (ring(bytes="1"), "nodes[0].bytes: found '1', expected a whole number"),
        (ring(bytes=True), "nodes[0].bytes: found true, expected a whole number"),
        (ring(bytes=None), "nodes[0].bytes: found null, expected a whole number"),
        (ring(bytes=1e17), "nodes[0].bytes: found 100000000000000000, expected 9007199254740992 or less"),
        (ring(bytes=1e300), "nodes[0].bytes: found 1000000000000000052504760255204420248..., expected"),
        (ring(bytes=3), "nodes[0]: 3 bytes make no 1 x 4 chunks"),
        (ring(gpus=[0]), "nodes[0]: the rings ((0,),) are not rings over the same GPUs"),
        (ring(gpus=[0, 1], rings=[[0, 1]]), "nodes[0]: both gpus and rings are given"),
        (ring(gpus=[0, 9]), "nodes[0]: GPU 9 is used, and the job has 4 GPUs; count them from 0"),
        (ring(gpus=[0, -1]), "nodes[0].gpus[1]: found -1, expected 0 or more"),
        (compute(duration_s=-1.5), "nodes[0].duration_s: found -1.5, expected 0 or more"),
        (compute(duration_s=1e10), "nodes[0].duration_s: found 10000000000, expected 1000000000 or less"),
        (compute(duration_s=float("nan")), "nodes[0].duration_s: found NaN, expected a finite number"),
        (compute(duration_s=float("inf")), "nodes[0].duration_s: found Infinity, expected a finite number"),
        (compute(duration_s="1 s"), "nodes[0].duration_s: found '1 s', expected a number"),
        (ring(at_s=-1e-6), "nodes[0].at_s: found -1e-06, expected 0 or more"),
        (compute(at_s=float("nan")), "nodes[0].at_s: found NaN, expected a finite number"),
        (compute(at_s="1 us"), "nodes[0].at_s: found '1 us', expected a number"),
        (part(COMPUTE, at_s=1), "nodes[0].at_s: unknown key"),
        (part({**COMPUTE, "at_s": 1}, repeat=2), "'a' starts at a time of the job, and part 'b[1]' when"),
        (compute(durations_s=[1]), "'a' has 1 durations for 4 GPUs; give one for each GPU, or one for all"),
        (compute(gpus=[1, 1]), "node 'a' computes on a GPU twice; name each GPU once"),
        (compute(gpus=4), "nodes[0].gpus: found 4, expected a list"),
        (compute(gpus=[7]), "nodes[0]: GPU 7 is used, and the job has 4 GPUs"),
        (
            compute(duration_ms=5),
            "nodes[0].duration_ms: unknown key; docs/reference/jobs.md describes the format",
        ),
        (compute(**{"a\nb": 5}), r"nodes[0].'a\nb': unknown key"),
        (document({"kind": "compute", "name": "a"}), "nodes[0].duration_s: is missing"),
        (document({"name": "a"}), "nodes[0].kind: is missing"),
        (compute(kind="think"), "nodes[0].kind: found 'think', expected one of 'compute', 'all_to_all', "),
        (document([]), "nodes[0]: found a list of 0, expected an object"),  # type: ignore[arg-type]
        (compute(name=""), "nodes[0].name: found '', expected a text that is not empty"),
        (compute(after="b"), "nodes[0].after: found 'b', expected a list"),
        (compute(after=["b"]), "nodes[0].after[0]: no node is named 'b'; name one of the same list"),
        (document(COMPUTE, {**RING, "name": "b"}, RING), "nodes[2].name: nodes[0] is named 'a' too"),
        (compute(after=["a"]), "nodes of job 'drawn' wait for each other: a > a"),
        (compute(repeat=0), "nodes[0].repeat: found 0, expected 1 or more"),
        (compute(repeat=1e9), "nodes[0].repeat: found 1000000000, expected 100000 or less"),
        (part({**COMPUTE, "repeat": 400}, repeat=400), "nodes[0]: 'b' makes 160,000 nodes; make at most"),
        (part({**COMPUTE, "duration_s": -2}), "nodes[0].nodes[0].duration_s: found -2"),
        (part(COMPUTE, {**RING, "name": "c", "after": ["b"]}), "nodes[0].nodes[1].after[0]: no node is"),
        (part({**RING, "bytes": 1}), "nodes[0].nodes[0]: 1 bytes make no 1 x 4 chunks"),
        (part({**RING, "after": ["a"]}), "nodes[0]: nodes of job 'b' wait for each other: a > a"),
        (part(), "nodes[0].nodes: found a list of 0, expected a list of 1 or more"),
        (deep(300), "parts are nested too deep"),
        (all_to_all(), "nodes[0]: bytes are given twice or not at all; give matrix_bytes or uniform_bytes"),
        (all_to_all(uniform_bytes=1, matrix_bytes=[[1]]), "nodes[0]: bytes are given twice"),
        (all_to_all(matrix_bytes=[[1]]), "nodes[0]: matrix_bytes has 1 rows for 4 GPUs"),
        (all_to_all(gpus=[0, 1], matrix_bytes=[[1, 2], [1]]), "nodes[0]: matrix_bytes[1] has 1 numbers"),
        (all_to_all(gpus=[0, 1], matrix_bytes=[[1, 2], [1, -1]]), "nodes[0].matrix_bytes[1][1]: found -1"),
        (all_to_all(gpus=[0, 0], uniform_bytes=5), "nodes[0]: demand 'a' is between 2 GPUs, and its ranks"),
        ({**all_to_all(uniform_bytes=5), "gpus": 5000}, "nodes[0]: an all-to-all between 5000 GPUs"),
        (sent(source=0, destination=1), "nodes[0].messages[0].bytes: is missing"),
        (sent(source=0, destination=0, bytes=5), "nodes[0]: a message of 5 bytes from GPU 0 to GPU 0"),
        (document(COMPUTE, gpus=0), "gpus: found 0, expected 1 or more"),
        (document(COMPUTE, gpus=1e15), "gpus: found 1000000000000000, expected 1048576 or less"),
        (document(COMPUTE, format="lightrail job 2"), "format: found 'lightrail job 2', expected 'lightrail"),
        (document(COMPUTE, name="\ud800"), "name: found '\\ud800', expected a text in Unicode"),
        (document(), "nodes: found a list of 0, expected a list of 1 or more"),
        ({"gpus": 4}, "format: is missing"),
        ([], "the whole: found a list of 0, expected an object"),
        ("7", "the whole: found 7, expected an object"),
        ('{"format": ', "line 1: Expecting value, expected JSON"),
        ('{"name": "a", "name": "b"}', "the key 'name' is twice in one JSON object"),
        ("[" * 100_000, "a JSON value is too deep or too long"),
        ("1" * 5_000, "a JSON value is too deep or too long"),
        ("", "is empty"),
        ("name: a", "line 1: Expecting value, expected JSON"),
    ],
)  # fmt: skip
def test_what_is_no_job_is_refused_with_its_place(tmp_path: Path, words: object, said: str) -> None:
    assert said in refusal(tmp_path, words)


def test_what_is_no_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"name": "na\xefve"}')
    for name, said in (("latin", "is not UTF-8"), ("none", "does not exist"), ("", "is a directory")):
        with pytest.raises(TraceError, match=said):
            read_job(tmp_path / name)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_with_anything_anywhere_is_a_job_or_refused_in_a_line(
    tmp_path: Path, data: st.DataObject
) -> None:
    write_job(data.draw(jobs()), tmp_path / "job.json")
    words = json.loads((tmp_path / "job.json").read_text())
    within: Any = words
    while True:
        keys = list(within) if isinstance(within, dict) else list(range(len(within)))
        key = data.draw(st.sampled_from(keys))
        if not (isinstance(within[key], dict | list) and within[key] and data.draw(st.booleans())):
            break
        within = within[key]
    within[key] = data.draw(json_values)
    with suppress(TraceError):
        read(tmp_path, words)
        return
    refusal(tmp_path, words)


class Own:
    """A pattern that the format does not know."""

    name = "own"
    gpus = frozenset({0, 1})

    def lower(self, view: View | None = None, *, coupled: bool = False) -> Ops:
        return each_alone(messages_of(Demand("own", np.zeros((2, 2), dtype=np.int64))))

    def renumbered(self, gpus: object) -> "Own":
        return self


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (Job("a", 2, (Collective("b", Own()),)), "node 'b': the pattern '.*:Own' cannot be written down"),
        (
            Job("a", 2, (Compute("b", (0,), 1e10),)),
            r"'a' cannot be written: nodes\[0\].duration_s: found",
        ),
        (Job("", 2, (Compute("b", (0,), 1.0),)), "name: found '', expected a text that is not empty"),
    ],
)
def test_a_job_that_could_not_be_read_is_not_written(tmp_path: Path, job: Job, said: str) -> None:
    with pytest.raises(DemandError, match=said):
        write_job(job, tmp_path / "job.json")
    assert not any(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"write .*: .*; give a path that can be written"):
        write_job(Job("a", 1, (Compute("b", (0,), 1.0),)), tmp_path)
