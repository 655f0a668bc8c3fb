"""Where a trace's ranks run: on the fabric's GPUs in order, server by server."""

import numpy as np

from topologies.errors import TraceError
from topologies.fabric import Fabric
from traffic.collective import Collective, Step
from traffic.demand import Demand


def placed(collective: Collective, fabric: Fabric) -> Collective:
    """Return a collective between all GPUs of a fabric: rank i runs on GPU i, the rest idle.

    Parameters
    ----------
    collective
        Between at most as many GPUs as the fabric has.
    fabric
        Where it runs.

    Returns
    -------
    Collective
        The same steps, with rows and columns of zeros for the GPUs that idle; the note says how
        many of the GPUs work, and ``idle`` how many do not. A collective that fills the fabric is
        returned as it is.

    Raises
    ------
    TraceError
        If the collective has more GPUs than the fabric.
    """
    idle = fabric.gpus - collective.gpus
    if idle < 0:
        raise TraceError(
            f"{collective.name} is between {collective.gpus} GPUs, the fabric has {fabric.gpus}",
            "take a larger fabric or a smaller trace",
        )
    if not idle:
        return collective
    note = f"on GPUs 0 to {collective.gpus - 1} of {fabric.gpus}"
    demands = {step.demand: _widened(step.demand, idle, note) for step in collective.steps}
    steps = tuple(Step(demands[step.demand], step.compute_s) for step in collective.steps)
    return Collective(collective.name, steps, _joined(collective.note, note), collective.idle + idle)


def _widened(demand: Demand, idle: int, note: str) -> Demand:
    return Demand(demand.name, np.pad(demand.matrix, (0, idle)), _joined(demand.note, note))


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
