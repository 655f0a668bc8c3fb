"""Demands that are known before a gate decides: Copilot's predictions, and the iteration before."""

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from controller.schedulers.copilot import WINDOW, predicted_tokens, transition
from scenarios._mfabric.fabrics import GPUS
from scenarios._mfabric.region_plan import Prediction
from traffic.models.moe import MoeModel
from traffic.models.moe_step import Gate, MoeStep
from traffic.workloads.gate import Loads


def copilot_predictions(step: MoeStep, model: MoeModel, gate: Gate, history: Loads) -> tuple[Prediction, ...]:
    """Return the predictions of all dispatches but those of the first layer, which has none before it.

    Parameters
    ----------
    step, model
        The training step, and of what.
    gate
        What its gates decide.
    history
        Loads of the iterations before, the oldest first, of which the last `WINDOW` count.

    References
    ----------
    mFabric, appendix B.1. That P is applied to each source's own row is ours: the paper predicts loads.
    """
    seen = history[-WINDOW:]
    matrices = [transition(seen[:, layer], seen[:, layer + 1]) for layer in range(model.moe_layers - 1)]
    found = []
    for dispatch in step.dispatches:
        if not dispatch.layer:
            continue
        before = gate(dispatch.replica, dispatch.micro_batch, dispatch.layer - 1)
        tokens = predicted_tokens(matrices[dispatch.layer - 1], before)
        found.append(_between_servers(dispatch.node, model, tokens))
    return tuple(found)


def demands_before(step: MoeStep, model: MoeModel, tokens: NDArray[np.int64]) -> tuple[Prediction, ...]:
    """Return the demand of the first dispatch of each stage in the iteration before.

    Its last all-to-all was that of the same layer, so that its circuits are lit when an iteration starts.

    Parameters
    ----------
    step, model
        The training step, and of what.
    tokens
        What its gates decided then, shape (layers, ep, experts); all replicas are taken to be alike.
    """
    starts = accumulate(model.stage_layers()[:-1], initial=0)
    firsts = {max(layer - model.dense_layers, 0) for layer in starts}
    return tuple(
        _between_servers(dispatch.node, model, tokens[dispatch.layer])
        for dispatch in step.dispatches
        if dispatch.layer in firsts and not dispatch.micro_batch
    )


def _between_servers(
    node: str, model: MoeModel, tokens: NDArray[np.int64] | NDArray[np.float64]
) -> Prediction:
    """Return a gate's tokens, from rank to expert, as a demand between a region's servers."""
    ranks = max(GPUS // model.tp, 1)
    servers = model.ep // ranks
    slots = np.pad(tokens, ((0, 0), (0, model.expert_slots - tokens.shape[1])))
    between = slots.reshape(servers, ranks, servers, -1).sum(axis=(1, 3))
    return Prediction(node, tuple(map(tuple, between.tolist())))
