"""The tables of a point's runs as Parquet, and back: each number in them stands for something."""

from collections.abc import Mapping, Set
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic, Port
from traffic import tables as columns_of
from traffic.spraying.policy import QueuePair
from traffic.tables import Tables

TABLES: Mapping[str, Mapping[str, str]] = {
    "messages": columns_of.MESSAGES,
    "spans": columns_of.SPANS,
    "events": columns_of.EVENTS,
    "legs": columns_of.LEGS,
    "links": columns_of.LINKS,
    "light": columns_of.LIGHT_CHANGES,
    "orders": columns_of.ORDERS,
    "faults": columns_of.FAULTS,
    "sources": columns_of.SOURCES,
    "flows": columns_of.FLOWS,
    "wire": columns_of.WIRE,
    "packets": columns_of.PACKET_COUNTS,
}
"""The tables of a run, and their columns."""
RUN = "run"
"""The column that says whose a row is."""
CIRCUITS = pa.list_(pa.struct([("input", pa.int32()), ("output", pa.int32())]))
ARROW = {
    "str": pa.string(),
    "object": CIRCUITS,
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
}
"""The types of columns in a file."""
ABSENT = {"messages": {"group"}, "spans": {"gpu"}, "legs": {"message", "group", "lane", "path"}}
"""The columns of tables in which -1 stands for nothing."""
PACKED = "lz4"
UNFOLDS = 1 << 12
"""How many times its file a table may be as it is read. What `table_bytes` packs stays below: numbers are
packed by lz4 alone, at most 255 to 1, and only few short texts are the same."""
BYTES_A_NUMBER = 8


class Names(NamedTuple):
    """The lists that numbers in the tables of a run are places of, as of `Tables`."""

    nodes: tuple[str, ...]
    paths: tuple[tuple[int, ...], ...]
    """Places in `path_ports`: paths share few ports, and numbers are read in a quarter of the time."""
    lanes: tuple[tuple[tuple[int, int], tuple[int, int], int, int], ...]
    """The fields of each queue pair."""
    ports: tuple[tuple[str, int], ...]
    ocses: tuple[str, ...]
    path_ports: tuple[tuple[str, int], ...]


def names_of(tables: Tables) -> Names:
    """Return the lists whose places the numbers in tables are."""
    lanes = tuple((each.source, each.destination, each.entropy, each.communicator) for each in tables.lanes)
    path_ports = tuple(dict.fromkeys(chain.from_iterable(tables.paths)))
    places = {port: place for place, port in enumerate(path_ports)}
    paths = tuple(tuple(map(places.__getitem__, path)) for path in tables.paths)
    return Names(tables.nodes, paths, lanes, tables.ports, tables.ocses, path_ports)


def table_bytes(found: Mapping[str, pd.DataFrame], columns: Mapping[str, str]) -> bytes:
    """Return the rows of a table of several runs, by their names, as one Parquet file."""
    parts = [
        pa.table(
            [
                pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int8), [run]),
                *(pa.array(table[name], ARROW[kind], from_pandas=False) for name, kind in columns.items()),
            ],
            names=[RUN, *columns],
        )
        for run, table in found.items()
    ]
    out = pa.BufferOutputStream()
    texts = [RUN, *(name for name, kind in columns.items() if kind == "str")]
    # Numbers are not: with a dictionary each they take half as much again, and twice as long to read.
    # With zstd tables take two thirds of lz4's space, and nearly twice as long to read.
    pq.write_table(
        pa.concat_tables(parts).unify_dictionaries(),
        out,
        compression=PACKED,
        use_dictionary=texts,
        store_schema=False,
        write_statistics=False,
    )
    return cast(bytes, out.getvalue().to_pybytes())


def rows_of(data: bytes, columns: Mapping[str, str], runs: Set[str]) -> dict[str, pd.DataFrame]:
    """Return the rows of each run in a Parquet file; ScenarioError for other columns and runs."""
    file = pq.ParquetFile(pa.BufferReader(data))
    wanted = {RUN: pa.string(), **{name: ARROW[kind] for name, kind in columns.items()}}
    if file.schema_arrow != pa.schema(wanted):  # before it is read: what is not known has any size
        raise ScenarioError(f"a table of {', '.join(file.schema_arrow.names)}, which are not its columns")
    _check_size(_numbers(file.metadata) * BYTES_A_NUMBER, data)
    texts = [name for name, kind in wanted.items() if kind == pa.string()]
    found = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts).read(use_threads=False)
    if any(column.null_count for column in found.columns):
        raise ScenarioError("a table that lacks something")
    _check_size(sum(_text_bytes(found[name]) for name in texts), data)
    whose = pc.unique(found[RUN]).to_pylist()
    if not runs >= {*whose}:
        raise ScenarioError(f"rows of {', '.join(whose)}, which are not its runs")
    if len(whose) == 1:
        return {whose[0]: _frame(found, columns)}
    return {run: _frame(found.filter(pc.equal(found[RUN], run)), columns) for run in whose}


def _check_size(size: int, data: bytes) -> None:
    """Refuse a table that unfolds to far more than its file: one of few bytes could take any memory."""
    if size > UNFOLDS * len(data):
        raise ScenarioError(f"a table of {size} bytes in {len(data)}")


def _numbers(metadata: pq.FileMetaData) -> int:
    """Return how many values all columns of a file have, each of a list counted; they are packed by lz4."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    if packed := {column.compression for column in columns} - {PACKED.upper()}:
        raise ScenarioError(f"a table that is packed by {packed.pop()}")
    return sum(column.num_values for column in columns)


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Return how many bytes the texts of a column have, each as often as it is there."""
    parts = ((each.indices, pc.binary_length(each.dictionary)) for each in column.chunks)
    return sum(pc.sum(lengths.take(indices)).as_py() or 0 for indices, lengths in parts)


def _frame(found: pa.Table, columns: Mapping[str, str]) -> pd.DataFrame:
    return pd.DataFrame({name: _column(found[name], kind) for name, kind in columns.items()}, copy=False)


def _column(found: pa.ChunkedArray, kind: str) -> NDArray[Any] | pd.Series:
    if kind not in ("object", "str"):
        return cast(NDArray[Any], found.to_numpy())  # eight times as fast as a Series of each
    if kind == "str":
        return pd.Series(found.cast(pa.string()).to_numpy(), dtype=kind)
    circuits = [tuple((each["input"], each["output"]) for each in row) for row in found.to_pylist()]
    return pd.Series(circuits, dtype=kind)


def tables_of(names: Names, found: Mapping[str, pd.DataFrame], fabric: Fabric) -> Tables:
    """Return the tables of a run on a fabric; ScenarioError if a number in them stands for nothing."""
    # The fabric's own, by what equals them: sooner than to make each, and none is unknown.
    nic_of: dict[tuple[int, int], Nic] = {nic: nic for nic in fabric.nics}
    port_of: dict[tuple[str, int], Port] = {port: port for port in fabric.link_at}
    try:
        lanes = tuple(QueuePair(nic_of[a], nic_of[b], entropy, own) for a, b, entropy, own in names.lanes)
        # A dictionary: a list would take -1 for its last.
        at = {place: port_of[port] for place, port in enumerate(names.path_ports)}
        paths = tuple(tuple(map(at.__getitem__, path)) for path in names.paths)
        ports = tuple(port_of[port] for port in names.ports)
    except KeyError as error:
        raise ScenarioError(f"there is no {error} in the fabric, or among the ports of its paths") from error
    messages = len(found["messages"]) if "messages" in found else 0
    gpus = dict.fromkeys(("source", "destination", "from_gpu", "to_gpu", "gpu"), fabric.gpus)
    numbers = {"message": messages, "group": messages, **gpus}
    numbers |= {"node": len(names.nodes), "lane": len(names.lanes), "path": len(names.paths)}
    numbers |= {"port": len(names.ports), "ocs": len(names.ocses)}
    of_flows = {"source": len(found["sources"]) if "sources" in found else 0}
    for name, table in found.items():
        most = of_flows if name == "flows" else numbers
        for column in most.keys() & set(TABLES[name]):
            found_numbers, least = table[column].to_numpy(), -1 if column in ABSENT.get(name, ()) else 0
            if not least <= found_numbers.min() <= found_numbers.max() < most[column]:
                raise ScenarioError(f"{name} has numbers in {column} that stand for nothing")
    if "legs" in found and not ((found["legs"]["lane"] < 0) == (found["legs"]["path"] < 0)).all():
        raise ScenarioError("legs have a lane without a path, or a path without a lane")
    rows = cast(Mapping[str, Any], found)
    return Tables(nodes=names.nodes, paths=paths, lanes=lanes, ports=ports, ocses=names.ocses, **rows)
