"""The nodes of a job as a table: when each began and ended, beside its bound and its prediction."""

import math
from collections.abc import Mapping

import pandas as pd

from testbed.core.run import Run
from testbed.trust.outcome import Outcome
from traffic.job import Compute, Job
from traffic.metrics import collective_times_s, collectives_busbw_gbytes_s


def nodes_of(outcome: Outcome) -> pd.DataFrame:
    """Return the `node_table` of an outcome, in which what is unsound has no times."""
    experiment = outcome.experiment
    found = node_table(experiment.whole_job, outcome.node_bounds_s, outcome.run, outcome.predicted)
    if experiment.gone:
        found["busbw_gbytes_s"] = math.nan
    if not outcome.is_sound:
        found[[name for name in found.columns if name.endswith("_s") or name == "over_predicted"]] = math.nan
    return found


def node_table(job: Job, bounds_s: Mapping[str, float], run: Run, predicted: Run) -> pd.DataFrame:
    """Return a row per node that took any part, in the order in which they started.

    Parameters
    ----------
    job, bounds_s
        What ran, and how long each node takes at least, by its name.
    run
        How it ran; nodes that were added on the way have no bound.
    predicted
        How it runs by the model.

    Returns
    -------
    DataFrame
        node; kind, ``compute`` or the pattern; gpus, how many; start_s, end_s and took_s; bound_s;
        busbw_gbytes_s, NaN of a compute; what is predicted of it, predicted_start_s, predicted_end_s and
        predicted_s; and over_predicted, how long it took over that. All times are real seconds.
    """
    known = {node.name: node for node in job.nodes}
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
    nodes["busbw_gbytes_s"] = pd.Series(collectives_busbw_gbytes_s(job, collective_times_s(run.tables)))
    nodes["predicted_s"] = nodes["predicted_end_s"] - nodes["predicted_start_s"]
    nodes["over_predicted"] = nodes["took_s"] / nodes["predicted_s"].where(nodes["predicted_s"] > 0)
    return nodes.sort_values(["start_s", "end_s"], kind="stable").reset_index(names="node")


def _spans(run: Run) -> pd.DataFrame:
    return run.tasks.groupby("node", sort=False).agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
