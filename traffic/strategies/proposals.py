"""The next trial of a search: another share for a layer, or a layer's share for its neighbours too.

With probability 1/4 a layer's share is copied to a neighbour, and with 3/4 each on to a neighbour of that,
larger tensors preferred. Else one layer gets a random share. The last layer is drawn like all others; then
nothing changes, as in FlexFlow.

References
----------
TopoOpt, section 4.1; FlexFlow's ``model.cc`` (``rewrite``, ``propagate``).
"""

from itertools import accumulate

import numpy as np

from traffic.models.layered import LayeredModel
from traffic.strategies.strategy import Share, Strategy

PROPAGATE = 0.25
"""Probability that a share is copied to a neighbour."""
GO_ON = 0.75
"""Probability that it is copied to a further one."""


class Proposals:
    """Changes of strategies for a model.

    Parameters
    ----------
    model
        Its dense layers may have as many parts as divide both servers and samples; a table stays whole.
    """

    def __init__(self, model: LayeredModel) -> None:
        self._servers, self._names = model.servers, [layer.name for layer in model.layers]
        self._tables = {layer.name for layer in model.tables}
        self.parts = [
            g for g in range(1, model.servers + 1) if model.servers % g == 0 and model.samples % g == 0
        ]
        self._beside: dict[str, list[tuple[str, int]]] = {name: [] for name in self._names}
        for layer in model.layers:  # a neighbour, and the size of the tensor between both
            for name in dict.fromkeys(layer.inputs):
                size = model.layer(name).sample_bytes
                self._beside[name].append((layer.name, size))
                self._beside[layer.name].append((name, size))

    def draw(self, strategy: Strategy, rng: np.random.Generator) -> dict[str, Share]:
        """Return the new shares of the layers that change, if any."""
        if rng.random() < PROPAGATE:
            changes = self._copied(strategy, rng)
        else:
            name = self._names[rng.integers(len(self._names))]
            changes = {} if name == self._names[-1] else {name: self._share(name, rng)}
        return {name: share for name, share in changes.items() if share != strategy[name]}

    def _share(self, name: str, rng: np.random.Generator) -> Share:
        parts = 1 if name in self._tables else self.parts[rng.integers(len(self.parts))]
        return Share(parts, int(rng.integers(self._servers // parts)))

    def _copied(self, strategy: Strategy, rng: np.random.Generator) -> dict[str, Share]:
        """Return the share of one layer for neighbours, along a path without a layer twice."""
        name = self._names[rng.integers(max(1, len(self._names) - 1))]
        changes, seen = dict[str, Share](), {name}
        while options := [option for option in self._beside[name] if option[0] not in seen]:
            share = changes.get(name, strategy[name])
            name = _drawn(options, rng)
            seen.add(name)
            if share.parts == 1 or name not in self._tables:
                changes[name] = share
            if rng.random() >= GO_ON:
                break
        return changes


def _drawn(options: list[tuple[str, int]], rng: np.random.Generator) -> str:
    """Return one of some names, with a probability that grows with its size."""
    sums = list(accumulate(size for _, size in options))
    drawn = rng.random() * sums[-1]
    return next(
        (name for (name, _), below in zip(options, sums, strict=True) if drawn < below), options[-1][0]
    )
