"""Results as data: all that a command leaves is text, JSON, Parquet or a picture, and nothing is a pickle."""

import csv
import gzip
import json
import pickletools
import re
from hashlib import sha256
from io import BytesIO, StringIO
from pathlib import Path
from zipfile import ZipFile, is_zipfile

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from testbed.trust.event_diff import log_of

SUMS = "SHA256SUMS"


def check_data(out: Path) -> None:
    """Assert that each file of a results directory is data, and the one that is listed."""
    files = {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*") if file.is_file()}
    for name, data in files.items():
        if data:  # a lock has none
            assert_data(name, data)
    if SUMS in files and "report.html" in files:
        digests = {name: sha256(data).hexdigest() for name, data in files.items() if name != SUMS}
        lines = files[SUMS].decode().splitlines()
        assert {name: digest for digest, name in (line.split("  ") for line in lines)} == digests, out


def assert_data(name: str, data: bytes) -> None:
    """Assert that bytes are of a kind that holds no code, which their content shows."""
    if name == SUMS:  # digits that may be taken for anything
        assert all(re.fullmatch("[0-9a-f]{64}  [^ ].*", line) for line in data.decode().splitlines())
        return
    assert not is_pickle(data), f"{name} is a pickle"
    if is_zipfile(BytesIO(data)):
        with ZipFile(BytesIO(data)) as archive:
            for member in archive.namelist():
                assert_data(f"{name}/{member}", archive.read(member))
    elif data.startswith(b"\x1f\x8b"):
        assert_data(name, gzip.decompress(data))
    elif data.startswith(b"PAR1"):
        table = pq.read_table(pa.BufferReader(data))
        assert not any(map(holds_bytes, table.schema.types)), f"{name} has a column of bytes"
    elif name.endswith(".csv"):
        assert len({len(row) for row in csv.reader(StringIO(data.decode()), strict=True)}) == 1, name
    elif name.endswith(".events"):
        log_of(name, data.decode())
    elif not data.startswith((b"\x89PNG", b"<!DOCTYPE html>")):
        try:
            json.loads(data)
        except ValueError:  # lines of JSON
            assert [json.loads(line) for line in data.decode().splitlines()], name


def holds_bytes(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are bytes, which may be anything."""
    return (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or isinstance(kind, pa.BaseExtensionType)
    )


def is_pickle(data: bytes) -> bool:
    """Return whether bytes are a pickle, or begin with one, without running what it asks for."""
    try:
        for _ in pickletools.genops(data):
            pass
    except Exception:  # whatever bytes make of it that are none
        return False
    return True
