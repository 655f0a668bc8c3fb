"""A model as layers: what each computes, sends on and sums, whatever trains it.

n    servers
b    batch of a GPU
N    samples of an iteration, n b times the GPUs of a server
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from topologies.errors import DemandError

GRADIENT_BYTES = 4
"""Size of a gradient (fp32) [bytes]."""


@dataclass(frozen=True, slots=True)
class Layer:
    """An operator with its weights."""

    name: str
    kind: str
    """What it does: dense, table, concat, conv, pool, attention, add, product or dot."""
    parameters: int
    """Whose gradients are summed over its replicas; of a table 0, since its rows stay on their owner."""
    features: int
    """Numbers of a sample's output."""
    forward_s: float
    """Forward on a server that has 1/n of the samples; of a table on its owner, which has all [s]."""
    backward_s: float
    """Backward, likewise [s]."""
    inputs: tuple[str, ...] = ()
    """The layers whose output it takes, beside the samples themselves."""
    element_bytes: int = 4
    """Size of an output number and of its gradient; of an embedding 8 in TopoOpt's simulations [bytes]."""
    rows: int = 0
    """Of a table, each of ``features`` weights."""

    @property
    def is_table(self) -> bool:
        """Whether it is an embedding table, which is whole on one server."""
        return self.kind == "table"

    @property
    def sample_bytes(self) -> int:
        """What a sample's output has, and its gradient [bytes]."""
        return self.features * self.element_bytes


@dataclass(frozen=True)
class LayeredModel:
    """Layers in topological order, and on how many samples how many servers train them.

    Raises
    ------
    DemandError
        If a number is not positive where it must be, two layers share a name, a layer takes the output of
        one that does not stand before it, or a layer before the last has no consumer.
    """

    name: str
    servers: int
    """n."""
    gpus_per_server: int
    batch: int
    """b."""
    layers: tuple[Layer, ...]
    """The last one has the loss."""
    source: str
    """Where sizes and times come from."""

    def __post_init__(self) -> None:
        """Check sizes and inputs."""
        if min(self.servers, self.gpus_per_server, self.batch, len(self.layers)) < 1:
            raise DemandError(
                f"the model {self.name!r} has {len(self.layers)} layers on {self.servers} servers of "
                f"{self.gpus_per_server} GPUs, batch {self.batch}",
                "give one or more of each",
            )
        seen = set[str]()
        for layer in self.layers:
            if layer.name in seen or not seen.issuperset(layer.inputs):
                raise DemandError(
                    f"layer {layer.name!r} of {self.name!r} is there twice, or before one of its inputs",
                    "name layers apart, and list them in topological order",
                )
            if min(layer.features, layer.element_bytes, layer.forward_s, layer.backward_s) < 0:
                raise DemandError(f"layer {layer.name!r} of {self.name!r} has a negative size or time")
            seen.add(layer.name)
        if idle := [layer.name for layer in self.layers[:-1] if not self.consumers[layer.name]]:
            raise DemandError(f"no layer of {self.name!r} takes the output of {idle[0]!r}", "leave it out")

    @property
    def parameters(self) -> int:
        """P, those that are summed."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def gradient_bytes(self) -> int:
        """S, what an iteration sums if all of it is data parallel [bytes]."""
        return GRADIENT_BYTES * self.parameters

    @property
    def samples(self) -> int:
        """N."""
        return self.servers * self.gpus_per_server * self.batch

    @property
    def tables(self) -> tuple[Layer, ...]:
        """The embedding tables, in order."""
        return tuple(layer for layer in self.layers if layer.is_table)

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """The layers that take the output of each, in order."""
        taken: dict[str, list[str]] = {layer.name: [] for layer in self.layers}
        for layer in self.layers:
            for name in dict.fromkeys(layer.inputs):
                taken[name].append(layer.name)
        return {name: tuple(by) for name, by in taken.items()}

    @cached_property
    def _by_name(self) -> Mapping[str, Layer]:
        return {layer.name: layer for layer in self.layers}

    def layer(self, name: str) -> Layer:
        """Return a layer; DemandError if none has this name."""
        if name not in self._by_name:
            raise DemandError(f"the model {self.name!r} has no layer {name!r}", self._kinds())
        return self._by_name[name]

    def _kinds(self) -> str:
        counts = Counter(layer.kind for layer in self.layers)
        return "it has " + ", ".join(f"{count} x {kind}" for kind, count in counts.items())
