"""How long the layers of TopoOpt's models take, and a list of layers each with that.

Times are as its authors measured them, else by formulas of ours.

    b    batch of a GPU
    N    samples of an iteration

Measured are milliseconds of forward and backward of an A100 that has b samples; of a table, of its owner,
which has N. The GPUs of a server have samples of their own, so a server takes as long as one of them. Where
nothing was measured:

    dense     2 b in out FLOP at 16e12 FLOP/s (measured: 15e12 for 4096 x 4096 at b = 128); backward 1.93 x
    attention, dot
              their products likewise
    concat, add, product
              each number read and written, at 0.8e12 B/s; backward the same
    table     N samples of 100 rows at 0.8e12 B/s (measured: 0.27e12 to 1.04e12); backward 2 x
    conv, pool
              what was measured, in proportion to b

References
----------
TopoOpt, section 5.1 and List 1; its artifact: FlexNet's ``measures``, for section 5.4
``simulation/scripts/fig12_13_14_15/dlrm_128_128table_batchsweep``. The formulas are ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from traffic.models.layered import Layer

Duration = tuple[float, float]
"""Of a layer's forward and backward."""

GPU_FLOPS = 16e12
"""Compute rate of a GPU [FLOP/s]."""
DENSE_BACKWARD = 1.93
"""Backward over forward where a layer multiplies matrices."""
MEMORY_BYTES_PER_S = 0.8e12
"""Rate at which a GPU reads and writes [bytes/s]."""
LOOKUPS = 100
"""Rows of a table that a sample takes."""


def _measured(text: str) -> dict[str, Duration]:
    """Return durations by shape of layer [ms]: ``shape forward/backward, ...``."""
    rows = (row.split() for row in text.split(", "))
    return {shape: (float(ms.split("/")[0]), float(ms.split("/")[1])) for shape, ms in rows}


_VGG16 = _measured(
    "conv-64 1.885/6.189, conv-128 1.518/4.699, conv-256 1.686/3.217, conv-512 1.456/3.300, "
    "pool 1.349/3.101, 61952>4096 2.090/3.787, 4096>4096 .174/.300, 4096>1000 .053/.098"
)
MEASURED_MS: Mapping[tuple[str, str], Mapping[int, Mapping[str, Duration]]] = {
    ("dlrm", "5.3"): {
        128: _measured(
            "2048>2048 .194/.296, concat .226/.226, 10240>4096 .615/1.211, 4096>4096 .270/.522, "
            "4096>1 .015/.040, table-128 4.31/8.62"
        )
    },
    ("dlrm", "5.4"): {
        64: _measured(
            "2048>2048 .113/.178, concat .375/.382, 18432>4096 .618/1.163, 4096>4096 .174/.299, "
            "4096>1 .019/.038, table-128 2.200/4.400"
        ),
        128: _measured(
            "2048>2048 .172/.299, concat .413/.413, 18432>4096 1.149/2.150, 4096>4096 .286/.535, "
            "4096>1 .018/.044, table-128 4.362/8.725"
        ),
        256: _measured(
            "2048>2048 .272/.507, concat .457/.469, 18432>4096 2.114/4.216, 4096>4096 .498/.969, "
            "4096>1 .018/.044, table-128 8.687/17.364"
        ),
        512: _measured(
            "2048>2048 .478/.956, concat .472/.500, 18432>4096 4.167/8.334, 4096>4096 1.112/1.923, "
            "4096>1 .022/.048, table-128 17.337/34.673"
        ),
        1024: _measured(
            "2048>2048 .916/1.826, concat .541/.596, 18432>4096 8.414/16.553, 4096>4096 1.966/3.764, "
            "4096>1 .023/.048, table-128 34.376/68.752"
        ),
        2048: _measured(
            "2048>2048 1.852/3.587, concat .688/.779, 18432>4096 16.357/32.913, 4096>4096 4.270/7.584, "
            "4096>1 .032/.104, table-128 68.232/136.463"
        ),
    },
    ("dlrm", "5.6"): {
        256: _measured(
            "1024>1024 .109/.254, concat .055/.055, 5120>2048 .326/.619, 2048>2048 .151/.281, "
            "2048>1 .014/.043, table-256 1.613/3.226"
        )
    },
    ("candle", "5.3"): {
        256: _measured(
            "942>16384 .906/1.837, 5270>16384 2.582/5.357, 2048>16384 1.022/2.048, 16384>16384 7.787/15.01, "
            "concat .199/.241, 81922>16384 43.63/73.24, 16384>1 .026/.045, 1>1 .026/.045"
        )
    },
    ("candle", "5.6"): {
        256: _measured(
            "942>4096 .266/.514, 5270>4096 .640/1.255, 2048>4096 .270/.516, 4096>4096 .500/.969, "
            "concat .059/.075, 20482>4096 2.383/4.676, 4096>1 .018/.043, 1>1 .018/.043"
        )
    },
    ("bert", "5.3"): {
        16: _measured("attention .301/.603, add .007/.014, 1024>1024 .147/.279, 1024>1 .011/.047")
    },
    ("bert", "5.6"): {
        16: _measured("attention .718/1.435, add .033/.056, 768>768 .313/.595, 768>1 .012/.049")
    },
    ("ncf", "5.3"): {
        128: _measured(  # the last concat and layer were measured together, .213/.239
            "concat .194/.195, 8192>4096 .537/.975, 4096>4096 .285/.534, product .005/.010, "
            "2048>1 .014/.044, 4097>1 .019/.044, table-64 6.29/12.57, table-128 4.36/8.73"
        )
    },
    ("vgg16", "5.3"): {64: _VGG16},
    ("vgg16", "5.6"): {64: _VGG16},
    ("resnet50", "5.3"): {128: _measured("all 64.6/137.6")},
}
"""By model and section, batch and shape of layer [ms]."""


@dataclass(frozen=True)
class Times:
    """The durations of a model's layers on one server."""

    batch: int
    """b."""
    samples: int
    """N."""
    measured_s: Mapping[str, Duration] = field(default_factory=dict)
    """Of some shapes of layers, with b samples and all N [s]."""

    def dense(self, inputs: int, outputs: int, rows: int = 1) -> Duration:
        """Return the durations of a dense layer on ``rows`` vectors of a sample [s]."""
        return self._measured(f"{inputs}>{outputs}") or self.products(inputs * outputs * rows)

    def attention(self, hidden: int, sequence: int) -> Duration:
        """Return the durations of attention: four products with weights, scores, and values by them [s]."""
        work = 4 * sequence * hidden**2 + 2 * sequence**2 * hidden
        return self._measured("attention") or self.products(work)

    def moved(self, kind: str, features: int) -> Duration:
        """Return the durations of reading and writing the numbers of a sample [s]."""
        moves_s = 2 * self.batch * features * 4 / MEMORY_BYTES_PER_S
        return self._measured(kind) or (moves_s, moves_s)

    def table(self, columns: int) -> Duration:
        """Return the durations of a table on its owner [s]."""
        lookup_s = self.samples * LOOKUPS * columns * 4 / MEMORY_BYTES_PER_S
        return self._measured(f"table-{columns}") or (lookup_s, 2 * lookup_s)

    def conv(self, shape: str) -> Duration:
        """Return the durations of a shape of a convolutional model; none of them has a formula [s]."""
        return self.measured_s[shape]

    def products(self, multiplications: int) -> Duration:
        """Return the durations of so many multiplications and additions of a sample [s]."""
        forward_s = 2 * self.batch * multiplications / GPU_FLOPS
        return forward_s, DENSE_BACKWARD * forward_s

    def _measured(self, shape: str) -> Duration | None:
        return self.measured_s.get(shape)


class Listing:
    """Layers as they are listed, in topological order, each with what it takes."""

    def __init__(self, times: Times) -> None:
        self.times = times
        self.layers: list[Layer] = []

    def add(
        self,
        name: str,
        kind: str,
        takes_s: Duration,
        *,
        features: int,
        parameters: int = 0,
        inputs: Sequence[str] | None = None,
        element_bytes: int = 4,
        rows: int = 0,
    ) -> str:
        """List a layer and return its name.

        Parameters
        ----------
        name, kind, features, parameters, element_bytes, rows
            As of `Layer`.
        takes_s
            Its forward and its backward [s].
        inputs
            As of `Layer`; by default the layer that was listed last.
        """
        before = [layer.name for layer in self.layers[-1:]] if inputs is None else inputs
        self.layers.append(
            Layer(name, kind, parameters, features, *takes_s, tuple(before), element_bytes, rows)
        )
        return name

    def tables(self, name: str, count: int, rows: int, columns: int, size: int) -> list[str]:
        """List tables of so many columns and numbers of ``size`` bytes; return their names."""
        takes_s = self.times.table(columns)
        return [
            self.add(
                f"{name} {number}",
                "table",
                takes_s,
                features=columns,
                inputs=(),
                element_bytes=size,
                rows=rows,
            )
            for number in range(count)
        ]

    def stack(self, name: str, widths: Sequence[int], inputs: Sequence[str] | None = None) -> str:
        """List dense layers one after the other, from one width to the next; return the last one's name."""
        for number, (before, after) in enumerate(pairwise(widths), start=1):
            self.dense(f"{name} {number}", before, after, inputs if number == 1 else None)
        return self.layers[-1].name

    def dense(
        self,
        name: str,
        before: int,
        after: int,
        inputs: Sequence[str] | None = None,
        *,
        rows: int = 1,
        bias: bool = True,
    ) -> str:
        """List a dense layer on so many vectors of a sample."""
        takes_s, parameters = self.times.dense(before, after, rows), (before + bias) * after
        return self.add(name, "dense", takes_s, features=after * rows, parameters=parameters, inputs=inputs)

    def concat(self, name: str, inputs: Sequence[str], *, more: int = 0) -> str:
        """List what joins the outputs of layers, and ``more`` numbers of the samples themselves."""
        features = more + sum(layer.features for layer in self.layers if layer.name in inputs)
        return self.moved(name, "concat", features, inputs)

    def moved(self, name: str, kind: str, features: int, inputs: Sequence[str]) -> str:
        """List a layer that reads and writes numbers."""
        return self.add(name, kind, self.times.moved(kind, features), features=features, inputs=inputs)


def measured_s(name: str, section: str, batch: int, *, of_all: float = 1.0) -> dict[str, Duration]:
    """Return the durations measured of a model at a batch; none where it was not [s].

    Parameters
    ----------
    name, section, batch
        The model, the section of the paper that uses it, and b.
    of_all
        The samples of an iteration over those that a table's owner had as it was measured.
    """
    found = MEASURED_MS.get((name, section), {}).get(batch, {})
    return {
        shape: _scaled(each, 1e-3 * (of_all if shape.startswith("table") else 1.0))
        for shape, each in found.items()
    }


def in_proportion_s(name: str, batch: int) -> dict[str, Duration]:
    """Return the durations measured of a convolutional model in section 5.3, in proportion to b [s]."""
    ((measured_batch, found),) = MEASURED_MS[name, "5.3"].items()
    return {shape: _scaled(each, 1e-3 * batch / measured_batch) for shape, each in found.items()}


def _scaled(duration: Duration, by: float) -> Duration:
    return duration[0] * by, duration[1] * by
