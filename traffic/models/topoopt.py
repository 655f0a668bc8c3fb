"""TopoOpt's models layer by layer, as its scripts ran them: DLRM, CANDLE, BERT, NCF, VGG16, ResNet50.

Gradients are of fp32. A number of an embedding is sent as 8 bytes in simulations and as 4 on the testbed,
and so is its gradient. Where List 1 of the paper and the scripts differ, the scripts decide; only BERT of
section 6 has List 1's 1024 tokens (a README of the scripts has 64). NCF's sizes in section 6 are not
published: ours are those of section 5.3 with 3 tables of each of its four kinds, one a server. VGG19 is of
Figure 20; its batch is ours.

References
----------
TopoOpt, List 1, sections 5.1, 5.4, 5.6 and 6; its artifact for what ran.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from topologies.errors import DemandError
from traffic.models.convolutional import resnet50, vgg16, vgg19
from traffic.models.layered import Layer, LayeredModel
from traffic.models.topoopt_times import Listing, Times, in_proportion_s, measured_s

TESTBED = "6"
"""The section of the testbed."""
SIMULATED_BYTES, TESTBED_BYTES = 8, 4
"""Size of an embedding's number on its way [bytes]."""


@dataclass(frozen=True, slots=True)
class TrainingSize:
    """The size at which a section of the paper trains a model."""

    servers: int
    gpus_per_server: int
    batch: int
    """b, of a GPU."""


def _sizes(**batches: int) -> dict[str, TrainingSize]:
    """Return the sizes of sections from their batches, ``of_5_3`` for section 5.3."""
    cluster = {"5.3": (128, 4), "5.4": (128, 4), "5.6": (16, 4), TESTBED: (12, 1)}
    sections = {key.removeprefix("of_").replace("_", "."): batch for key, batch in batches.items()}
    return {section: TrainingSize(*cluster[section], batch) for section, batch in sections.items()}


MODELS: Mapping[str, Mapping[str, TrainingSize]] = {
    "dlrm": _sizes(of_5_3=128, of_5_4=128, of_5_6=256, of_6=512),
    "candle": _sizes(of_5_3=256, of_5_6=256, of_6=10),
    "bert": _sizes(of_5_3=16, of_5_6=16, of_6=2),
    "ncf": _sizes(of_5_3=128, of_6=128),
    "vgg16": _sizes(of_5_3=64, of_5_6=64, of_6=32),
    "resnet50": _sizes(of_5_3=128, of_6=20),
    "vgg19": _sizes(of_6=32),
}
"""By name, and by section of the paper; sections 5.4 and 6 sweep the batch of DLRM."""


def layered_model(
    name: str, *, section: str = "5.3", servers: int | None = None, batch: int | None = None
) -> LayeredModel:
    """Return a model as a section of the paper trains it.

    Parameters
    ----------
    name
        One of `MODELS`.
    section
        One of those that have it.
    servers, batch
        n and b, by default the section's. The layers stay what they are; on other numbers of servers a
        table's owner has as many samples more or fewer.

    Raises
    ------
    DemandError
        If there is no such model, it is not of that section, or a number is not positive.

    Examples
    --------
    >>> layered_model("dlrm").gradient_bytes
    1225056260
    """
    if name not in MODELS or section not in MODELS[name]:
        of = f"section {section} of model {name!r}" if name in MODELS else f"model {name!r}"
        choices = MODELS.get(name, MODELS)
        raise DemandError(f"there is no {of}", f"choose one of {', '.join(choices)}")
    size = MODELS[name][section]
    n, b = size.servers if servers is None else servers, size.batch if batch is None else batch
    if min(n, b) < 1:
        raise DemandError(f"{n} servers and a batch of {b}", "give one or more of each")
    known, source = _known(name, section, b, n / size.servers)
    layers = _LAYERS[name](Times(b, n * size.gpus_per_server * b, known), section)
    return LayeredModel(f"{name} of section {section}", n, size.gpus_per_server, b, tuple(layers), source)


def _known(name: str, section: str, batch: int, of_all: float) -> tuple[dict[str, tuple[float, float]], str]:
    """Return the durations measured of a model, and in words where its durations are from."""
    by = "measured by TopoOpt's authors on A100"
    if name == "vgg19":
        return {}, f"textbook sizes; durations by those of VGG16 {by}, convolutions by FLOP"
    if found := measured_s(name, section, batch, of_all=of_all):
        shared = ", the total shared among layers by FLOP" if name == "resnet50" else ""
        return found, f"durations {by}{shared}"
    if name in ("vgg16", "resnet50"):
        shared = " and shared among layers by FLOP" if name == "resnet50" else ""
        return in_proportion_s(name, batch), f"durations {by}, in proportion to the batch{shared}"
    cut = "sizes ours, 3 tables of each kind; " if (name, section) == ("ncf", TESTBED) else ""
    return {}, f"{cut}durations by formula: 16 TFLOP/s, lookups and copies at 0.8 TB/s"


# DLRM


@dataclass(frozen=True, slots=True)
class _Dlrm:
    width: int
    """Of the 7 bottom layers."""
    top: int
    """Of the 15 top layers before the last."""
    tables: int
    columns: int


_DLRM = {
    "5.3": _Dlrm(2048, 4096, 64, 128),
    "5.4": _Dlrm(2048, 4096, 128, 128),
    "5.6": _Dlrm(1024, 2048, 16, 256),
}


def _dlrm(times: Times, section: str) -> list[Layer]:
    if section == TESTBED:
        return _testbed_dlrm(times)
    of, to = _DLRM[section], Listing(times)
    tables = to.tables("table", of.tables, 10_000_000, of.columns, SIMULATED_BYTES)
    bottom = to.stack("bottom", [of.width] * 8, ())
    to.concat("concat", [*tables, bottom])
    to.stack("top", [of.width + of.tables * of.columns, *[of.top] * 15, 1])
    return to.layers


def _testbed_dlrm(times: Times) -> list[Layer]:
    """Return the PyTorch model, whose 12 embeddings and bottom output are multiplied pair by pair."""
    to, columns = Listing(times), 32768
    tables = to.tables("table", 12, 100_000, columns, TESTBED_BYTES)
    bottom = to.stack("bottom", [*[2048] * 7, columns], ())
    pairs = 13 * 12 // 2
    moved, multiplied = times.moved("dot", 13 * columns), times.products(pairs * columns)
    takes_s = moved[0] + multiplied[0], moved[1] + multiplied[1]
    to.add("dot", "dot", takes_s, features=columns + pairs, inputs=[*tables, bottom])
    to.stack("top", [columns + pairs, *[1024] * 4, 1])
    return to.layers


# CANDLE


@dataclass(frozen=True, slots=True)
class _Candle:
    width: int
    tower: int
    """Layers of a tower."""
    top: int
    """Layers of this width after the towers."""


_CANDLE = {"5.3": _Candle(16384, 16, 8), "5.6": _Candle(4096, 12, 8), TESTBED: _Candle(4096, 8, 4)}
_TOWERS = {"cell": 942, "descriptors 1": 5270, "descriptors 2": 5270, "prints 1": 2048, "prints 2": 2048}
"""The inputs that have a tower; two doses, a number each, have none."""


def _candle(times: Times, section: str) -> list[Layer]:
    of, to = _CANDLE[section], Listing(times)
    towers = [to.stack(name, [inputs, *[of.width] * of.tower], ()) for name, inputs in _TOWERS.items()]
    to.concat("concat", towers, more=2)
    to.stack("top", [2 + 5 * of.width, *[of.width] * of.top, 1, 1])
    return to.layers


# BERT


@dataclass(frozen=True, slots=True)
class _Bert:
    blocks: int
    hidden: int
    sequence: int


_BERT = {"5.3": _Bert(12, 1024, 64), "5.6": _Bert(6, 768, 256), TESTBED: _Bert(6, 1024, 1024)}


def _bert(times: Times, section: str) -> list[Layer]:
    """Return blocks of an encoder and a decoder that attends to it, as FlexFlow's Transformer has them."""
    of, to = _BERT[section], Listing(times)
    encoded, decoded = list[str](), list[str]()
    for block in range(1, of.blocks + 1):
        of_block = _BertBlock(to, of, f"block {block}")
        encoded = of_block.attends("encoder", encoded, encoded)
        encoded = of_block.dense("encoder", encoded)
        decoded = of_block.attends("decoder", decoded, decoded)
        decoded = of_block.attends("decoder to encoder", decoded, encoded)
        decoded = of_block.dense("decoder", decoded)
    to.dense("head", of.hidden, 1, decoded, rows=of.sequence)
    return to.layers


@dataclass(frozen=True, slots=True)
class _BertBlock:
    to: Listing
    of: _Bert
    name: str

    def attends(self, name: str, by: Sequence[str], on: Sequence[str]) -> list[str]:
        """List an attention, whose four matrices have no bias, and the sum of it and its input."""
        hidden, numbers = self.of.hidden, self.of.hidden * self.of.sequence
        attention = self.to.add(
            f"{self.name} {name} attention",
            "attention",
            self.to.times.attention(hidden, self.of.sequence),
            features=numbers,
            parameters=4 * hidden**2,
            inputs=list(dict.fromkeys([*by, *on])),
        )
        return [self.to.moved(f"{self.name} {name} add", "add", numbers, [attention, *by])]

    def dense(self, name: str, inputs: Sequence[str]) -> list[str]:
        """List the two dense layers of a half."""
        for number in (1, 2):
            own, hidden = f"{self.name} {name} dense {number}", self.of.hidden
            inputs = [self.to.dense(own, hidden, hidden, inputs, rows=self.of.sequence)]
        return list(inputs)


# NCF


def _ncf(times: Times, section: str) -> list[Layer]:
    """Return matrix factorisation (GMF) beside a perceptron (MLP); of each of four kinds as many tables."""
    each, size = (3, TESTBED_BYTES) if section == TESTBED else (32, SIMULATED_BYTES)
    to, rows = Listing(times), 1_000_000
    gmf = [to.tables(f"{of} GMF", each, rows, 64, size) for of in ("user", "item")]
    mlp = [to.tables(f"{of} MLP", each, rows, 128, size) for of in ("user", "item")]
    both = [to.concat(f"{of} concat", some) for of, some in zip(("user", "item"), gmf, strict=True)]
    product = to.moved("product", "product", 64 * each, both)
    factored = to.dense("GMF", 64 * each, 1, [product], bias=False)
    to.concat("MLP concat", [*mlp[0], *mlp[1]])
    perceptron = to.stack("MLP", [2 * each * 128, *[4096] * 7])
    to.concat("concat", [factored, perceptron])
    to.stack("last", [4097, 1])
    return to.layers


_LAYERS: Mapping[str, Callable[[Times, str], list[Layer]]] = {
    "dlrm": _dlrm,
    "candle": _candle,
    "bert": _bert,
    "ncf": _ncf,
    "vgg16": lambda times, _: vgg16(times),
    "resnet50": lambda times, _: resnet50(times),
    "vgg19": lambda times, _: vgg19(times),
}
