"""The nodes of a job as a table: when each began and ended, beside its bound and its prediction."""

import math
from collections.abc import Mapping

import pandas as pd

from testbed.run.outcome import Outcome
from testbed.run.run import Run
from topologies.fabric import Fabric, Port
from traffic.bounds import NOTHING_LENT
from traffic.job import Compute, Job
from traffic.job_bounds import node_bounds_s


def nodes_of(outcome: Outcome) -> pd.DataFrame:
    """Return the `node_table` of an outcome, in which what is unsound has no times."""
    experiment = outcome.experiment
    found = node_table(
        experiment.whole_job, experiment.fabric, outcome.run, outcome.predicted, outcome.lent_bytes
    )
    if not outcome.is_sound:
        found[[name for name in found.columns if name.endswith("_s") or name == "over_predicted"]] = math.nan
    return found


def node_table(
    job: Job, fabric: Fabric, run: Run, predicted: Run, lent_bytes: Mapping[Port, float] = NOTHING_LENT
) -> pd.DataFrame:
    """Return a row per node that took any part, in the order in which they started.

    Parameters
    ----------
    job, fabric
        What ran, and where.
    run
        How it ran; nodes that were added on the way have no bound.
    predicted
        How it runs by the model.
    lent_bytes
        What the emulation's shapers lent each collective, port by port: its bound is as much earlier.

    Returns
    -------
    DataFrame
        node; kind, ``compute`` or the pattern; gpus, how many; start_s, end_s and took_s; bound_s; what
        is predicted of it, predicted_start_s, predicted_end_s and predicted_s; and over_predicted, how
        long it took over that. All times are real seconds.
    """
    known, bounds_s = {node.name: node for node in job.nodes}, node_bounds_s(job, fabric, lent_bytes)
    kinds = {
        name: "compute" if isinstance(node, Compute) else node.pattern.name for name, node in known.items()
    }
    spans = _spans(run)
    names = [name for name in dict.fromkeys((*known, *spans.index)) if name in spans.index]  # in job order
    nodes = spans.loc[names].join(_spans(predicted).add_prefix("predicted_"))
    nodes.insert(0, "kind", [kinds.get(name, "added") for name in nodes.index])
    nodes.insert(1, "gpus", [len(known[name].gpus) if name in known else 0 for name in nodes.index])
    nodes["took_s"] = nodes["end_s"] - nodes["start_s"]
    nodes["bound_s"] = [bounds_s.get(name, float("nan")) for name in nodes.index]
    nodes["predicted_s"] = nodes["predicted_end_s"] - nodes["predicted_start_s"]
    nodes["over_predicted"] = nodes["took_s"] / nodes["predicted_s"].where(nodes["predicted_s"] > 0)
    return nodes.sort_values(["start_s", "end_s"], kind="stable").reset_index(names="node")


def _spans(run: Run) -> pd.DataFrame:
    return run.tasks.groupby("node", sort=False).agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
