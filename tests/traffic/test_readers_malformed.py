"""Malformed files: each is a TraceError that names the file, the line and what was expected."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.traffic.trace_files import AICB_END, AICB_HEADER, AICB_LOG, HTSIM, TRIGGERED, aicb_row, written
from topologies.errors import TraceError
from traffic.demand import Demand
from traffic.readers import text
from traffic.readers.detect import read_trace
from traffic.readers.mixnet import read_mixnet
from traffic.readers.text import MAX_BYTES
from traffic.steps import demands_of


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is empty"),
        (" \n\t\n", "is empty"),
        ("hello world", "line 1: found 'hello world', expected the start of"),
        ("1 2\n3", "line 2: found '1 numbers', expected 2"),
        ("1 2\n\n3 4 5", "line 3: found '3 numbers', expected 2"),
        ("1 2", "line 1: found '2 numbers', expected 1"),
        ("0 1\n-1 0", "line 2: found '-1', expected bytes"),
        ("0 nan\n1 0", "line 1: found 'nan', expected bytes"),
        ("0 inf\n1 0", "line 1: found 'inf', expected bytes"),
        ("0 1.5\n1 0", "line 1: found '1.5', expected bytes: a whole number"),
        ("0 1\n1 x", "line 2: found 'x', expected bytes"),
        ("0 1e18\n1 0", "line 1: found '1e18', expected bytes"),
        ("[[0, 1], [1, 0]", "line 1: Expecting ',' delimiter, expected JSON; give a list of lists"),
        ("[1, 2]", "[0]: found 1, expected a list; give a list of lists"),
        ("[]", "expected a list of 1 or more"),
        ("[[0, 1], [1]]", "found '1 numbers', expected 2"),
        ("[[0, -1], [1, 0]]", "[0][1]: found -1, expected 0 or more"),
        ("[[0, 1], [NaN, 0]]", "[1][0]: found NaN, expected a whole number"),
        ("[[0, null], [1, 0]]", "[0][1]: found null, expected a whole number"),
        ("[[0, true], [1, 0]]", "[0][1]: found true, expected a whole number"),
        ("[" * 100_000, "too deep"),
        (f"[[{'9' * 5000}]]", "too long"),
        ('{"schemaVersion": 1, "traceEvents": []}', 'line 1: found \'{"schemaVersion": 1'),
        (
            '{"step": 100, "loss": 2.5}',
            "expected a JSON object with step, layer, rank and top_indices, or the",
        ),
        ('{\n"nodes": []}', "Kineto's profiles and Chakra's traces are not read"),
        ('[\n {"ph": "X"}]', "line 1: found '[', expected a JSON object"),
        ("[[[0, 1], [2, 3]]]", "save routed_experts as .npy"),
        ("Nodes 4", "holds no connection"),
        ("Nodes", "line 1: found 'Nodes', expected 'Nodes <count>'"),
        ("Nodes 1000000000\nConnections 1\n0->1 start 0 size 1", "line 1: found '1000000000'"),
        ("Connections 1\n0->1 start 0 size 1", "line 2: found '0->1', expected 'Nodes <count>' before"),
        ("Nodes 4\nConnections 2\n0->1 start 0 size 1", "holds 1 connections, its header says 2"),
        ("Nodes 4\nConnections 1\n0->4 start 0 size 1", "line 3: found '4', expected a node"),
        ("Nodes 4\nConnections 1\n0=>1 start 0 size 1", "line 3: found '0=>1', expected a connection"),
        ("Nodes 4\nConnections 1\n0->1 start 0", "expected a size in bytes"),
        ("Nodes 4\nConnections 1\n0->1 size 5", "either a start or a trigger"),
        ("Nodes 4\nConnections 1\n0->1 start 0 size", "line 3: found '', expected the value of size"),
        ("Nodes 4\nConnections 1\n0->1 start 0 size -5", "line 3: found '-5'"),
        ("Nodes 4\nConnections 1\n0->1 start 0 size 2147483648", "line 3: found '2147483648'"),
        ("Nodes 4\nConnections 1\n0->1 start 0 size 1 colour 3", "line 3: found 'colour', expected one of"),
        (TRIGGERED.replace("trigger id 3 oneshot\n", ""), "holds 2 triggers, its header says 3"),
        (TRIGGERED.replace("trigger 3 size", "trigger 9 size"), "line 4: found 'trigger 9', expected one"),
        (TRIGGERED.replace("start 0 size 10", "trigger 2 size 10"), "wait for each other"),
        (
            "Nodes 2\nFailures 1\nConnections 1\n0->1 start 0 size 1\nfailure switch_type TOR",
            "1 link failures",
        ),
        (AICB_HEADER, "holds no step"),
        (f"{AICB_HEADER}\n1,2,3", "line 2: found '3 columns', expected 12"),
        (f"{AICB_HEADER}\n{aicb_row('all_to_all', 'ep_group', -5)}", "line 2: found '-5', expected bytes"),
        (
            f"{AICB_HEADER}\n{aicb_row('all_to_all', 'ep_group', 'nan')}",
            "line 2: found 'nan', expected bytes",
        ),
        (
            f"{AICB_HEADER}\n{aicb_row('all_to_all', 'ep_group', 5, 0)}",
            "line 2: found '0', expected a group size",
        ),
        (
            f"{AICB_HEADER}\n{aicb_row('all_to_all', 'ep_group', 5, 4, 'soon')}",
            "found 'soon', expected a time in ms",
        ),
        (
            f"{AICB_HEADER}\n{aicb_row('all_to_all', 'ep_group', 5, 4, -1)}",
            "found '-1', expected a time in ms",
        ),
        (
            f"{AICB_HEADER}\n{aicb_row('all_to_all', 'ep_group', 5)}",
            "does not say the size of dp_group; say how many GPUs there are",
        ),
        (f"{AICB_LOG}{aicb_row('all_reduce', 'tp_group', 5, 3)}", "gives tp_group the sizes [2, 3]"),
        (f"{AICB_LOG}{aicb_row('all_reduce', 'ep_group', 5, 3)}", "4 data-parallel ranks, no multiple of 3"),
        (f"{AICB_HEADER}\n{AICB_END}\n{AICB_END}", "holds no step"),
    ],
)
def test_malformed_text_is_told(tmp_path: Path, content: str, complaint: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(path) in str(error.value)
    assert complaint in str(error.value)


@pytest.mark.parametrize("content", [b"\x80\x81", b"1 2\0\n3 4", b"0" + os.urandom(998) + b"\xff"])
def test_binary_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.bin"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="is not a text file"):
        read_trace(path)


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("absent.txt", "does not exist"),
        (".", "is a directory"),
        ("a\0b", "does not exist"),
        ("x" * 5000, "look for"),
    ],
)
def test_no_file_is_told(tmp_path: Path, path: str, complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        read_trace(tmp_path / path)


def test_too_large_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_TEXT_BYTES", 5)
    with pytest.raises(TraceError, match="is too large: 8 bytes"):
        read_trace(written(tmp_path, "0 1\n1 0\n"))
    monkeypatch.undo()
    with pytest.raises(TraceError, match="has 5000 rows"):
        read_trace(written(tmp_path, "1\n" * 5000))


def test_what_the_caller_asks_wrongly_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, AICB_LOG)
    with pytest.raises(TraceError, match="0 all-to-alls"):
        read_trace(path, all_to_alls=0)
    with pytest.raises(TraceError, match="0 all-to-alls"):
        read_trace(written(tmp_path, HTSIM), all_to_alls=0)
    for group, size, said in (("ep_group", 3, "no multiple of 3"), ("tp_group", 5000, "at most 4096")):
        rows = [aicb_row("all_to_all", "ep_group", 64, 4), aicb_row("all_gather", "dp_group", 64, 4)]
        rows = [row for row in rows if group not in row] + [aicb_row("all_to_all", group, 64, size)]
        with pytest.raises(TraceError, match=said):
            read_trace(written(tmp_path, "\n".join([AICB_HEADER, *rows])))
    with pytest.raises(TraceError, match="a cell of 2 tokens"):
        read_mixnet(written(tmp_path, "[[2]]"), bytes_per_token=MAX_BYTES)
    with pytest.raises(TraceError, match="tokens of 0 bytes"):
        read_mixnet(written(tmp_path, "[[1]]"), bytes_per_token=0)


VALID = [HTSIM, TRIGGERED, AICB_LOG, "[[0, 5], [3, 1]]", "0 5\n3 1\n"]


@settings(deadline=None)
@given(st.one_of(st.text(), st.text(alphabet="0123456789 .-[],\n"), st.binary()))
@example("Nodes 1\nConnections 1\n0->0 start 0 size 0")
def test_garbage_is_a_trace_error_or_a_collective(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(TraceError):
        assert all(isinstance(step, Demand) for step in demands_of(read_trace(path)))


@settings(deadline=None)
@given(st.sampled_from(VALID), st.data())
def test_damage_is_a_trace_error_or_a_collective(
    tmp_path_factory: pytest.TempPathFactory, content: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 20)))
    middle = data.draw(st.text(alphabet="0123456789 .-[],\n>eNtrigger#", max_size=10))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_text(content[:start] + middle + content[end:])
    with contextlib.suppress(TraceError):
        assert all(isinstance(step, Demand) for step in demands_of(read_trace(path)))
