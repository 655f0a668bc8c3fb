"""A trace that an option names: it is run alone, between as many servers as it has GPUs for.

What a study's file has beside it is run too where options say something of that. A trace that the file
names, or ``--set``, is a workload like the others.
"""

from collections.abc import Sequence
from pathlib import Path

from testbed.study.study_tables import TableRow
from testbed.study.toml_document import Document, Keys, value_at
from traffic.readers.detect import gpus_of
from traffic.workloads.datasets import NO_TRACE
from traffic.workloads.placement import servers_for

TRACE, SERVERS = "trace", ("fabric", 0, "servers")


def leave_out_others(document: Document) -> None:
    """Leave out the workloads beside a trace that an option names, but for those that options are about."""
    if not (traced := _traced(document)):
        return
    given = {keys: source for keys, source in document.sources.items() if keys[0] == "workload"}
    of_trace = {source for keys, source in given.items() if keys[:2] in traced}
    named = {keys[:2] for keys, source in given.items() if isinstance(source, str) and source not in of_trace}
    for number in range(len(document.tables("workload"))):
        if ("workload", number) not in traced | named:
            document.left_out.add(("workload", number))
    if document.is_given(("seeds",)):  # the file's own seed is for the trace that is there by default
        for table in traced:
            document.tables("workload")[int(table[1])].pop("seed", None)


def size_fabric(document: Document, workloads: Sequence[TableRow]) -> None:
    """Give a rail fabric as many servers as such a trace has GPUs for, unless an option says how many.

    Raises
    ------
    TraceError
        If its GPUs do not fill servers.
    """
    traced = _traced(document)
    fabric = value_at(document.values, SERVERS[:2])
    if not traced or not isinstance(fabric, dict) or fabric.get("builder") != "rail":
        return
    rails = fabric.get("rails")
    if document.is_given(SERVERS) or not isinstance(rails, int):
        return
    for row in workloads:
        if row.keys in traced and (gpus := gpus_of(Path(row.name), row.arguments)):
            fabric["servers"] = servers_for(row.name, gpus, rails)
            document.sources[SERVERS] = str(document.sources[(*row.keys, TRACE)])


def _traced(document: Document) -> set[Keys]:
    """Return the tables whose trace an option names."""
    return {
        keys[:2]
        for keys, source in document.sources.items()
        if keys[0] == "workload" and keys[-1] == TRACE
        if isinstance(source, str) and not source.startswith("--set")
        if value_at(document.values, keys) != NO_TRACE
    }
