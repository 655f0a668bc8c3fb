"""Tests for checksums: what is read is what was written, under the name that it was written under."""

import json
import os
import subprocess
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.report.checksums import SUMS, Sums, content_of, listed_bytes, with_checksum
from topologies.errors import ScenarioError

NAMES = st.text("0123456789abcdef", min_size=1, max_size=32)


@given(st.binary(), NAMES)
def test_a_content_is_read_as_it_was_written(content: bytes, name: str) -> None:
    assert content_of(with_checksum(content, name), name) == content


@given(st.binary(max_size=50), NAMES, st.data())
def test_a_flipped_bit_is_found_wherever_it_is(content: bytes, name: str, data: st.DataObject) -> None:
    written = bytearray(with_checksum(content, name))
    written[data.draw(st.integers(0, len(written) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ScenarioError, match="damaged"):
        content_of(bytes(written), name)


@given(st.binary(max_size=50), NAMES, st.data())
def test_a_file_that_lost_its_end_is_found(content: bytes, name: str, data: st.DataObject) -> None:
    written = with_checksum(content, name)
    with pytest.raises(ScenarioError, match="damaged"):
        content_of(written[: data.draw(st.integers(0, len(written) - 1))], name)


@given(st.binary(max_size=50), NAMES, NAMES)
def test_a_file_under_the_name_of_another_is_found(content: bytes, name: str, other: str) -> None:
    if name != other:
        with pytest.raises(ScenarioError, match="damaged"):
            content_of(with_checksum(content, name), other)


def test_json_becomes_lines_of_json() -> None:
    lines = with_checksum(b'{"result": 1}', "abc").decode().splitlines()
    assert [sorted(json.loads(line)) for line in lines] == [["result"], ["name", "sha256"]]


FILES = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=9).filter(
        lambda name: name not in (".", "..", SUMS)
    ),
    st.binary(max_size=9),
    max_size=5,
)


@given(FILES)
def test_a_list_is_one_that_sha256sum_reads_whatever_the_names_are(files: dict[str, bytes]) -> None:
    with TemporaryDirectory() as name:
        out = Path(name)
        for each, content in files.items():
            (out / each).write_bytes(content)
        (out / "folder").mkdir(exist_ok=True) if "folder" not in files else None
        os.mkfifo(out / "a-pipe-of-ten")
        (out / "a-link-of-ten").symlink_to(out)
        sums = Sums(out, out / "parts" / "lock")
        sums.close(out.iterdir())
        assert set(sums.listed) == {each for each in files if each.isprintable() and "\\" not in each}
        if sums.listed:
            subprocess.run(["sha256sum", "--check", "--strict", "--status", SUMS], cwd=out, check=True)


LISTED = "".join(f"{sha256(name.encode()).hexdigest()}  points/{name}\n" for name in "abc").encode()
SPOILT = [
    st.integers(0, 2).map(lambda at: LISTED.replace(b"\n", b"\r\n", at + 1)),
    st.just(LISTED.upper()),
    st.integers(0, 2).map(lambda at: b"\n".join([*LISTED.split(b"\n")[:at], b"no", LISTED])),
    st.binary(min_size=1, max_size=99).map(lambda noise: noise + b"\n"),
    st.integers(0, len(LISTED) - 2).map(lambda at: LISTED[:at] + b"\xff" + LISTED[at + 1 :]),
]


@given(st.one_of(*SPOILT))
def test_a_list_that_is_none_is_never_an_empty_one(content: bytes) -> None:
    with TemporaryDirectory() as name:
        out = Path(name)
        (out / SUMS).write_bytes(content)
        sums = Sums(out, out / "parts" / "lock")
        (out / "summary.csv").write_text("")
        for act in (lambda: sums.listed, lambda: listed_bytes(out / "summary.csv")):
            with pytest.raises(ScenarioError, match=f"{SUMS} is damaged: line [1-4] is not a.*; delete it"):
                act()
        (out / SUMS).unlink()
        assert listed_bytes(out / "summary.csv") == b""


@given(st.integers(0, len(LISTED)))
def test_a_line_that_a_killed_process_began_is_none(end: int) -> None:
    with TemporaryDirectory() as name:
        (Path(name) / SUMS).write_bytes(LISTED[:end])
        assert len(Sums(Path(name), Path(name) / "no" / "lock").listed) == LISTED[:end].count(b"\n")
