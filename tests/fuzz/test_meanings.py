"""The oracle of mutated meanings: sound traces are as they state, and a reader that drops some is found."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.formats import FORMATS
from tests.fuzz.meanings import Got, check


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_not_mutated_is_read_as_it_states(name: str, tmp_path: Path) -> None:
    of, read = FORMATS[name], 0
    for seed in range(20):
        records = of.make(Random(seed))
        stated = of.state(records)
        if stated.count is None:  # AICB with two unknown sizes
            continue
        check(of, records, tmp_path / "meant")
        read += bool(of.read(tmp_path / "meant").count)
    assert read > 5


@pytest.mark.parametrize("name", FORMATS)
def test_a_reader_that_drops_something_is_found(name: str, tmp_path: Path) -> None:
    of, records = FORMATS[name], FORMATS[name].make(Random(2))
    less = replace(of, read=lambda path: drop(of.read(path)))
    with pytest.raises(AssertionError, match="became"):
        check(less, records, tmp_path / "meant")


def drop(got: Got) -> Got:
    return replace(got, count=got.count - 1)
