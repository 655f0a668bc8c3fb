"""Copilot in a training step: what it predicts of each dispatch from the gate of the layer before."""

from controller.schedulers.copilot import WINDOW, predicted_tokens, transition
from testbed.run.region_plan import Prediction
from traffic.models.moe import MoeModel
from traffic.models.moe_step import Gate, MoeStep
from traffic.workloads.gate import Loads


def copilot_predictions(
    step: MoeStep, model: MoeModel, gate: Gate, history: Loads, *, server_gpus: int = 8
) -> tuple[Prediction, ...]:
    """Return the predictions of all dispatches but those of the first layer, which has none before it.

    Parameters
    ----------
    step, model
        The training step, and of what.
    gate
        What its gates decide.
    history
        Loads of the iterations before, the oldest first, of which the last `WINDOW` count.
    server_gpus
        How many GPUs a server has.

    References
    ----------
    mFabric, appendix B.1. That P is applied to each source's own row is ours: the paper predicts loads.
    """
    seen = history[-WINDOW:]
    matrices = [transition(seen[:, layer], seen[:, layer + 1]) for layer in range(model.moe_layers - 1)]
    ranks = max(server_gpus // model.tp, 1)
    servers = model.ep // ranks
    found = []
    for dispatch in step.dispatches:
        if not dispatch.layer:
            continue
        before = gate(dispatch.replica, dispatch.micro_batch, dispatch.layer - 1)
        tokens = predicted_tokens(matrices[dispatch.layer - 1], before)
        between = tokens.reshape(servers, ranks, servers, -1).sum(axis=(1, 3))
        found.append(Prediction(dispatch.node, tuple(map(tuple, between.tolist()))))
    return tuple(found)
