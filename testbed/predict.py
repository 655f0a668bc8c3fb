"""The prediction: an experiment through the fluid model, without a network."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from controller.flow_table import FlowTables
from controller.routing import forwarding_rules
from testbed.experiment import Experiment
from testbed.work import Work, work_of
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Port
from traffic.connections import SERVICE_PORT, source_port
from traffic.fluid import fluid_transfers
from traffic.fluid_reactive import settled_transfers, sprayed_transfers
from traffic.path_effects import path_effects
from traffic.records import Records, records_of
from traffic.spraying.plb import Plb
from traffic.spraying.policy import Assignment, QueuePair
from traffic.transfers import Path, Transfers


def predict(experiment: Experiment, paths: Sequence[tuple[Path, ...]] | None = None) -> Records:
    """Return the records that max-min fair fluids give, in real seconds.

    A proactive scheme's queue pairs share links in proportion to the bytes of each, so that those
    which start together at a NIC end together, as the engine has it.

    Parameters
    ----------
    experiment
        What to predict.
    paths
        For each step the ways that its queue pairs took, where an emulation has seen them; by
        default they are computed with the switches' own hash.
    """
    fabric, start_s, records = experiment.fabric, 0.0, []
    for index, step in enumerate(experiment.collective.steps):
        work = work_of(experiment, index)
        ways = computed_paths(fabric, work.queue_pairs) if paths is None else paths[index]
        transfers = _transfers(work, fabric, ways)
        records.append(
            records_of(
                messages=work.messages,
                chunks=work.chunks,
                transfers=transfers,
                fabric=fabric,
                step=index,
                start_s=start_s,
            )
        )
        start_s = float(records[-1]["end_s"].max() if len(records[-1]) else start_s) + step.compute_s
    return pd.concat(records, ignore_index=True)


def computed_paths(fabric: Fabric, queue_pairs: Sequence[QueuePair]) -> tuple[Path, ...]:
    """Return the way of each queue pair as the controller's rules and the switches' hash give it.

    Raises
    ------
    NetworkError
        If the rules lead a queue pair nowhere.
    """
    known = _paths_over(fabric)
    return tuple(known[queue_pair] for queue_pair in queue_pairs)


def port_rates(fabric: Fabric) -> dict[Port, float]:
    """Return the rate at which each linked port sends [bit/s]."""
    return {port: link.rate_bps for port, link in fabric.link_at.items()}


@lru_cache(maxsize=2)
def _paths_over(fabric: Fabric) -> "_Paths":
    """Return the paths over a fabric: the points of a scenario share most of their queue pairs."""
    return _Paths(fabric)


class _Paths(dict[QueuePair, Path]):
    """The path of each queue pair, computed when it is first asked for."""

    def __init__(self, fabric: Fabric) -> None:
        self._name, self._tables = fabric.name, FlowTables(fabric, forwarding_rules(fabric))

    def __missing__(self, queue_pair: QueuePair) -> Path:
        ends = queue_pair.source, queue_pair.destination
        path = self._tables.path(*ends, source_port(queue_pair), SERVICE_PORT)
        if path is None:
            raise NetworkError(
                f"fabric {self._name!r} has no way for the queue pair {queue_pair}",
                "give it spines, or use a scheme that keeps to its rails",
            )
        self[queue_pair] = path
        return path


def _transfers(work: Work, fabric: Fabric, paths: tuple[Path, ...]) -> Transfers:
    """Return the fluid limit of the work's policy.

    The engine shares a NIC among its queue pairs in proportion to what they have left; so do the
    weights here. A queue pair that carries nothing never flows, whatever its weight.
    """
    rates, effects = port_rates(fabric), path_effects(paths, fabric)
    if isinstance(work.plan, Assignment):
        load = np.bincount(work.plan.chunk_qp, work.chunks.bytes, len(paths))
        return fluid_transfers(
            rate_bps=rates,
            queue_pairs=work.queue_pairs,
            paths=paths,
            chunks=work.chunks,
            assignment=work.plan,
            weights=np.maximum(load, 1.0),
            effects=effects,
        )
    limit = settled_transfers if isinstance(work.policy, Plb) else sprayed_transfers
    return limit(rate_bps=rates, permitted=work.plan, paths=paths, chunks=work.chunks, effects=effects)
