"""Made-up records of applications, whose numbers are known."""

from dataclasses import replace
from datetime import datetime

import numpy as np
import pandas as pd

from testbed.apps.app_record import (
    FLOWS,
    LIGHT,
    LINKS,
    PATHS,
    TRAFFIC,
    AppEvent,
    AppProcess,
    AppRecord,
    AppTables,
    Beside,
    HostTcp,
    TapCounts,
)
from testbed.trust.outcome import Measures, Verdict
from topologies.fabric import Fabric
from traffic.tables import empty

BIN_S, TICK_S = 0.01, 0.1
HEADERS = 52
"""Of IP and TCP with timestamps [bytes]."""
PACKET = 1000
"""Payload of a packet [bytes]."""


def all_to_all(servers: int, times_s: list[float], took_s: float, size: int) -> pd.DataFrame:
    """Return the traffic of all-to-alls at some times: so many bytes from each host to each other."""
    bins = round(took_s / BIN_S)
    pairs = [(a, b) for a in range(servers) for b in range(servers) if a != b]
    rows = [(time_s + number * BIN_S, a, b) for time_s in times_s for number in range(bins) for a, b in pairs]
    table = pd.DataFrame(rows, columns=["at_s", "source", "destination"])
    table["payload_bytes"] = size // bins
    table["packets"] = np.maximum(table["payload_bytes"] // PACKET, 1)
    table["wire_bytes"] = table["payload_bytes"] + HEADERS * table["packets"]
    return table[list(TRAFFIC)].astype(TRAFFIC)


def record_of(
    fabric: Fabric, traffic: pd.DataFrame, duration_s: float, *, rate_factor: float = 1e-3
) -> AppRecord:
    """Return the record of an application that sent this, over links that dropped nothing."""
    hosts = range(len(fabric.servers))
    return AppRecord(
        fabric=fabric,
        command_line=(
            "python",
            "scenarios/app.py",
            "rail",
            "--launch",
            "mpirun",
            "--",
            "python",
            "alltoall.py",
        ),
        command=("python", "alltoall.py"),
        launcher="mpirun",
        transport="tcp:dctcp",
        rate_factor=rate_factor,
        started=datetime(2026, 11, 28, 3, 48),
        duration_s=duration_s,
        processes=tuple(
            AppProcess(host, host, ("python", "alltoall.py"), 0, duration_s, f"hosts/h{host}.out")
            for host in hosts
        ),
        verdict=Verdict("faithful"),
        measures=Measures(retransmits=4, packets=int(traffic["packets"].sum()), switch_cpu=0.4),
        hosts=tuple(HostTcp(host, 1000 + host, host % 3, 0, 0) for host in hosts),
        tap=TapCounts(int(traffic["packets"].sum()), 0, 0.02 * duration_s, BIN_S),
        tick_s=TICK_S,
        tables=AppTables(links_of(fabric, traffic), traffic, *flows_of(fabric, traffic), empty(LIGHT)),
        settings={"mtu": 9000},
        versions={"python": "3.11"},
        machine={"cpus": 2},
    )


def links_of(fabric: Fabric, traffic: pd.DataFrame) -> pd.DataFrame:
    """Return the bytes of NICs' links, the first NIC of each server."""
    parts = []
    for server, _ in enumerate(fabric.servers):
        nic = next(each for each in fabric.nics if each.server == server)
        near = fabric.nic_port(nic)
        for end, port in (("source", near), ("destination", fabric.peer(near))):
            mine = traffic[traffic[end] == server]
            tick = ((mine["at_s"] + 1e-6) // TICK_S * TICK_S).rename("at_s")
            part = mine.groupby(tick)[["wire_bytes", "packets"]].sum().reset_index()
            part["bytes"] = part["wire_bytes"] + 14 * part["packets"]
            waiting = 50_000 * (port.node in fabric.switch_index)
            parts.append(part.assign(port=str(port), drops=0, backlog_bytes=waiting))
    return pd.concat(parts, ignore_index=True)[list(LINKS)].astype(LINKS)


def flows_of(fabric: Fabric, traffic: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a flow for each two hosts, and its path from NIC to NIC over one switch."""
    flows, paths = [], []
    sums = traffic.groupby(["source", "destination"])
    for number, (pair, mine) in enumerate(sums):
        a, b = (int(str(end)) for end in pair)
        first, last = mine["at_s"].min(), mine["at_s"].max()
        counts = mine[["packets", "wire_bytes", "payload_bytes"]].sum().tolist()
        ends = (f"172.16.0.{a + 1}", 40000 + number, f"172.16.0.{b + 1}", 5001)
        flows.append((number, "tcp", a, b, *ends, first, last, *counts, 0))
        near, far = (fabric.nic_port(next(n for n in fabric.nics if n.server == end)) for end in (a, b))
        paths.append((number, first, last, counts[0] // 16 + 1, f"{near} {fabric.peer(far)}"))
    tables = ((flows, FLOWS), (paths, PATHS))
    found = [pd.DataFrame(rows, columns=list(kinds)).astype(kinds) for rows, kinds in tables]
    return found[0], found[1]


def eventful(record: AppRecord) -> AppRecord:
    """Return a record with all that a run may have: a fault, a demand, the generator beside."""
    servers = len(record.fabric.servers)
    demand = np.full((servers, servers), 1_000_000)
    np.fill_diagonal(demand, 0)
    first, *others = record.processes
    moved = record.tables.paths.iloc[:1].assign(first_s=record.duration_s / 2 + 0.3, path="h0:1 leaf1:1")
    paths = pd.concat([record.tables.paths, moved]).sort_values(["flow", "first_s"]).astype(PATHS)
    light = pd.DataFrame(
        [("ocs0", "0>1 1>0", 0.0, 1.0), ("ocs0", "", 1.0, 1.1), ("ocs0", "0>2 2>0", 1.1, record.duration_s)],
        columns=list(LIGHT),
    ).astype(LIGHT)
    return replace(
        record,
        processes=(replace(first, exit_code=139), *others),
        verdict=Verdict("strained", ("switches waited for a CPU 12 % of the time",), "run fewer processes"),
        events=(AppEvent(record.duration_s / 2, "failed", "nic:0:0"), AppEvent(99.0, "missed", "nic:0:1")),
        demand=demand,
        predicted_s=0.9 * record.duration_s,
        beside=Beside("phase 1", 1_000_000, 1.1, 1.05, 1.0, "tcp:dctcp", Verdict("faithful")),
        pcaps=("h0-nic0.pcap",),
        tables=replace(record.tables, light=light, paths=paths),
    )
