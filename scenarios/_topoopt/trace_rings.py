"""A training step on TopoOpt: circuits for what it sums and sends, and its rings over them.

TopologyFinder joins the servers, once for the whole step. The GPUs of ring collectives that cross servers are
AllReduce groups of these servers, of as many bytes as their rings send. All else that crosses servers is
model-parallel, and relayed where no circuit joins its servers.

A ring collective goes over every directed ring of its servers. In each server a ring passes all GPUs of the
group, over NVLink, so its bytes cross from server to server once. The k-th ring leaves a server from GPU k of
the group and enters at the next one, or at the one before, so each GPU sends and receives for one ring. These
GPUs sit beside the NICs of the ring where the group has all GPUs of its servers and its class the first
ports: those of step p have NICs 0 and 1, those of -p NICs 1 and 0. But no byte is pinned to a NIC: parallel
circuits have equal parts.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from controller.schedulers.coin_change import KShortest
from controller.schedulers.topoopt import Group, Plan, topology_finder
from scenarios._topoopt.experiments import over_fixed_circuits
from scenarios._topoopt.fabrics import TOPOOPT
from scenarios._topoopt.relaying import Bytes, between_servers
from testbed.experiment.experiment import Experiment
from testbed.report.node_report import titled
from testbed.report.nodes import nodes_of
from testbed.report.page import Block, Findings, Line, Sheet
from testbed.report.table import number, significant
from testbed.study.study import Study, no_claims
from testbed.trust.outcome import Outcome
from topologies.events import View
from topologies.fabric import Fabric
from traffic.collectives.pattern import Pattern
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job, Node
from traffic.messages import Messages
from traffic.metrics import GB, bus_bytes, size_bytes
from traffic.spread import Spread

MpDegree = Literal["proportional"] | int
HEADERS = ("servers", "GPUs", "rings", "at once", "MB", "hops", "busbw", "circuits", "/ circuits")
ALIKE = ["kind", "steps", "servers", "gpus", "rings", "at_once", "bytes"]
"""The properties that the collectives of a row share."""


def trace_scenario(step: Job, fabric: Fabric, title: str, seeds: Sequence[int]) -> Study:
    """Return a training step over the circuits that TopoOpt lights for it.

    Parameters
    ----------
    step
        For the GPUs of the fabric.
    fabric
        Servers on a patch panel.
    title
        What its report is called.
    seeds
        Of the choice among equally short paths: a point each.
    """
    plan = step_plan(step, fabric)
    parallel = max(Counter((min(pair), max(pair)) for pair in plan.pairs).values())
    most = max(KShortest.k, parallel)  # all parallel circuits count as paths
    experiments = [_led(step, fabric, plan, KShortest(most, seed)) for seed in seeds]
    findings = partial(circuits_findings, plan.coins)
    return Study("ring_trace", title, experiments, no_claims, "rings", findings)


def step_over_circuits(
    step: Job, fabric: Fabric, expected: Job, degree: int, mp_degree: MpDegree, seed: int
) -> Experiment:
    """Return a training step over circuits that TopoOpt lit before it.

    Parameters
    ----------
    step, fabric
        As of `trace_scenario`.
    expected
        The step as circuits are lit for: of the same rings, and what else was expected to be sent.
    degree, mp_degree
        As of `controller.schedulers.topoopt.topology_finder`.
    seed
        Of the choice among equally short paths.
    """
    return _led(step, fabric, step_plan(expected, fabric, degree, mp_degree), KShortest(seed=seed))


def step_plan(step: Job, fabric: Fabric, degree: int = 0, mp_degree: MpDegree = "proportional") -> Plan:
    """Return the circuits for a training step, by default on all NICs.

    By default d_MP is in proportion to what rings do not send.
    """
    servers = len(fabric.servers)
    transfers = np.zeros((servers, servers), dtype=np.int64)
    groups = []
    for pattern, count in Counter(node.pattern for node in step.collectives).items():
        if isinstance(pattern, Ring):
            groups.append(Group(_servers(pattern, fabric), count * _summed_bytes(pattern, fabric)))
        else:
            transfers += count * between_servers(pattern, fabric)
    degree = degree or fabric.servers[0].nics
    return topology_finder(groups, transfers, servers=servers, degree=degree, mp_degree=mp_degree)


def over_plan(step: Job, fabric: Fabric, plan: Plan) -> Job:
    """Return a training step whose rings between servers are those of a plan; the others stay."""
    over = cache(partial(_over, fabric=fabric, plan=plan))  # equal patterns stay equal, and are made once

    def led(node: Node) -> Node:
        if isinstance(node, Collective) and isinstance(node.pattern, Ring):
            return replace(node, pattern=over(node.pattern))
        return node

    return replace(step, nodes=tuple(led(node) for node in step.nodes))


def circuits_findings(coins: Sequence[int], outcomes: Sequence[Outcome]) -> Findings:
    """Return the bytes over circuits beside what these allow; nothing where no collective crosses servers.

    Parameters
    ----------
    coins
        The jumps for which every server has a circuit.
    outcomes
        Of experiments over circuits.
    """
    tables = {titled(outcome, outcomes): circuits_table(outcome) for outcome in outcomes}
    blocks = [
        Block([_line(row) for row in table.to_dict("records")], title)
        for title, table in tables.items()
        if len(table)
    ]
    caption = (
        "Circuits are fixed for the step: every server has one to each server at a jump of "
        f"{', '.join(map(str, coins))}. Steps: how far each ring goes in the list of its group's servers. At "
        "once: collectives that wait for the same nodes, and so share circuits. Hops: circuits that a byte "
        "crosses. Circuits: the busbw at which the busiest circuit never idles, under the load of all that "
        "are at once."
    )
    return Findings([Sheet(("over circuits", "steps"), HEADERS, blocks, caption)] if blocks else [])


def circuits_table(outcome: Outcome) -> pd.DataFrame:
    """Return a row per kind and size of the collectives that cross circuits.

    Returns
    -------
    DataFrame
        kind; steps, of its rings over its servers; servers, gpus and rings; at_once, the collectives that
        wait for the same nodes; bytes, as nccl-tests' size; hops, circuits that a byte crosses; busbw, and
        circuits, the busbw at which the busiest circuit never idles [1e9 bytes/s].
    """
    fabric = outcome.experiment.fabric
    took_s: Mapping[Hashable, float] = nodes_of(outcome).set_index("node")["took_s"].to_dict()
    at_once: dict[tuple[str, ...], list[Collective]] = defaultdict(list)
    for node in outcome.experiment.job.collectives:
        if node.name in took_s and len(_servers(node.pattern, fabric)) > 1:
            at_once[node.after].append(node)
    load = _Loads(outcome.experiment)
    rates_bps = np.array([fabric.nic_rate_bps(nic) for nic in fabric.nics])
    rows = []
    for nodes in at_once.values():
        busiest_s = 8 * (np.sum([load.of(node.pattern) for node in nodes], axis=0) / rates_bps).max()
        for node in nodes:
            about = _about(node.pattern, fabric, load.of(node.pattern))
            times = {"took_s": took_s[node.name], "busiest_s": busiest_s}
            rows.append({**about, **times, "at_once": len(nodes)})
    columns = [*ALIKE, "hops", "bus_bytes", "took_s", "busiest_s"]
    alike = pd.DataFrame(rows, columns=columns).groupby(ALIKE, sort=False)
    found = alike.mean().reset_index()
    found["busbw"] = found["bus_bytes"] / GB / found["took_s"]
    found["circuits"] = found["bus_bytes"] / GB / found["busiest_s"]
    return found.drop(columns=["bus_bytes", "took_s", "busiest_s"])


def _led(step: Job, fabric: Fabric, plan: Plan, routing: KShortest) -> Experiment:
    """Return a training step over the circuits and rings of a plan."""
    led = over_plan(step, fabric, plan)
    return over_fixed_circuits(fabric, led, plan, routing, label=TOPOOPT, seed=routing.seed)


def _servers(pattern: Pattern, fabric: Fabric) -> tuple[int, ...]:
    return tuple(sorted({fabric.gpu_servers[gpu] for gpu in pattern.gpus}))


def _summed_bytes(ring: Ring, fabric: Fabric) -> int:
    """Return the bytes that servers would sum by a ring of their own that sends as much as one of GPUs.

    That is S for an AllReduce of a GPU in each server, and half of it for the others.
    """
    ranks, servers = len(ring.gpus), len(_servers(ring, fabric))
    passes = 2 if ring.operation == "all-reduce" else 1
    return -(-passes * (ranks - 1) * ring.bytes * servers // (2 * ranks * max(servers - 1, 1)))


def _over(ring: Ring, fabric: Fabric, plan: Plan) -> Ring:
    """Return a ring collective over the rings of its servers."""
    of_server: dict[int, list[int]] = defaultdict(list)
    for gpu in sorted(ring.gpus):
        of_server[fabric.gpu_servers[gpu]].append(gpu)
    if len(of_server) == 1:
        return ring
    rings = tuple(
        tuple(gpu for server in servers for gpu in _through(of_server[server], number))
        for number, servers in enumerate(plan.rings_of(tuple(of_server)))
    )
    return replace(ring, rings=rings, bytes=max(ring.bytes, len(rings) * len(ring.gpus)))


def _through(gpus: Sequence[int], ring: int) -> list[int]:
    """Return the GPUs of a server in the order in which a ring passes them."""
    first, last = gpus[(ring ^ 1) % len(gpus)], gpus[ring % len(gpus)]
    return [first, *(gpu for gpu in gpus if gpu not in (first, last)), *[last][: len(gpus) - 1]]


class _Loads:
    """The bytes that circuits carry for collectives, by the paths of an experiment's first circuits."""

    def __init__(self, experiment: Experiment) -> None:
        assert experiment.rule
        self._fabric = fabric = experiment.fabric
        self._view = View(0.0, fabric, experiment.rule.first, frozenset(), routing=experiment.bound_routing)
        self._routes, self._scheme = self._view.routes(), Spread()
        self._place = {fabric.nic_port(nic): place for place, nic in enumerate(fabric.nics)}
        self.of: Callable[..., Bytes] = cache(self._of)

    def _of(self, pattern: Pattern) -> Bytes:
        """Return the bytes that each NIC sends for a pattern, relayed ones included, shape (NICs,)."""
        between = between_servers(pattern, self._fabric)
        source, destination = np.nonzero(between)
        gpu = np.array(self._fabric.gpu_offsets)
        messages = Messages(gpu[source], gpu[destination], between[source, destination])
        placed = self._scheme.place(self._view, messages)
        sent = np.zeros(len(self._place), dtype=np.int64)
        for number_of_lane, size in zip(placed.qp.tolist(), placed.bytes.tolist(), strict=True):
            lane = placed.queue_pairs[number_of_lane]
            route = self._routes.sending(lane.source, lane.destination)
            assert route, "the routing has named it"
            for port in route.ports:
                if port in self._place:
                    sent[self._place[port]] += size
        return sent


def _about(pattern: Pattern, fabric: Fabric, sent: Bytes) -> dict[str, object]:
    """Return the kind of a pattern, the bytes that pass its busiest GPU, and the hops of its bytes."""
    servers, ring = _servers(pattern, fabric), pattern if isinstance(pattern, Ring) else None
    return {
        "kind": pattern.name,
        "steps": _steps(ring, servers, fabric) if ring else "-",
        "servers": len(servers),
        "gpus": len(pattern.gpus),
        "rings": len(ring.rings) if ring else 0,
        "bytes": size_bytes(pattern),
        "hops": sent.sum() / between_servers(pattern, fabric).sum(),
        "bus_bytes": bus_bytes(pattern),
    }


def _steps(ring: Ring, servers: Sequence[int], fabric: Fabric) -> str:
    """Return how far each ring goes in the list of its servers, and how many go as far if several do."""
    passed = [list(dict.fromkeys(fabric.gpu_servers[gpu] for gpu in each)) for each in ring.rings]
    steps = Counter((servers.index(each[1]) - servers.index(each[0])) % len(servers) for each in passed)
    return ", ".join(f"{step} x{count}" if count > 1 else f"{step}" for step, count in sorted(steps.items()))


def _line(row: Mapping[Hashable, Any]) -> Line:
    cells = [
        f"{row['servers']}",
        f"{row['gpus']}",
        f"{row['rings']}" if row["rings"] else "-",
        f"{row['at_once']}",
        significant(row["bytes"] / 1e6),
        number(row["hops"], "{:.2f}"),
        significant(row["busbw"]),
        significant(row["circuits"]),
        number(row["busbw"] / row["circuits"], "{:.2f}"),
    ]
    return Line([str(row["kind"]), str(row["steps"]), *cells])
