"""Results hold no code: what each command of a test leaves is checked, and each scenario has such a test."""

import gzip
import json
import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest

from tests.data_files import assert_data
from tests.tools import CHECKOUT

NO_RESULTS = {"__init__", "_checkout", "_figure", "bench", "ocs_explore", "study"}
VALUE = {"path": Path("a"), "table": [1.0, 2.0]}


def zipped(data: bytes) -> bytes:
    out = BytesIO()
    with ZipFile(out, "w") as archive:
        archive.writestr("point.json", data)
    return out.getvalue()


def table_of(value: object) -> bytes:
    out = BytesIO()
    pd.DataFrame({"value": [pickle.dumps(value)]}).to_parquet(out)
    return out.getvalue()


def array_of(value: object) -> bytes:
    out = BytesIO()
    np.save(out, np.array([value], dtype=object))
    return out.getvalue()


@pytest.mark.parametrize(
    "made",
    [
        pickle.dumps,
        lambda value: gzip.compress(pickle.dumps(value)),
        lambda value: zipped(pickle.dumps(value)),
        lambda value: json.dumps(1).encode() + pickle.dumps(value),
        table_of,
        array_of,
    ],
)
@pytest.mark.parametrize("name", ["points/0123456789ab", "run.json", "summary.parquet"])
def test_a_pickle_by_any_name_is_found(name: str, made: Callable[[object], bytes]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        assert_data(name, made(VALUE))


def test_a_table_is_none_whose_first_column_begins_like_one() -> None:
    assert_data("costs.csv", b"cost,architecture\nc,d\n1,2\n")


def test_each_scenario_has_a_test_that_runs_it() -> None:
    tests = "".join(file.read_text() for file in (CHECKOUT / "tests" / "scenarios").glob("test_*.py"))
    scenarios = {file.stem for file in (CHECKOUT / "scenarios").glob("*.py") if not file.stem.startswith("_")}
    missing = [name for name in sorted(scenarios - NO_RESULTS) if f'"{name}"' not in tests]
    assert not missing, f"no test runs {missing}"
