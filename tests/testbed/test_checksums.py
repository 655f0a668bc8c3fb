"""Tests for checksums: what is read is what was written, under the name that it was written under."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.report.checksums import content_of, with_checksum
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
