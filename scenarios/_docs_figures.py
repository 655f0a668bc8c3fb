"""The figures of docs/figures that are computed: fabrics, the ruler of dilation, the trust tree."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from scenarios._docs.fabrics import docs_fabrics
from scenarios._docs.ruler import dilation_ruler
from scenarios._docs.trust_tree import trust_tree
from testbed.experiment.dilation import Dilation
from testbed.report.fabric_drawing import fabric_figure
from testbed.report.images import image_of

FOLDER = Path(_checkout.CHECKOUT) / "docs" / "figures"
SPARSE = Dilation(rate=0.00028, volume=0.0703)
"""Of ``rails_sparse.py --emulated-rate 28``, workload sparse 0.6."""


def docs_figures() -> dict[str, Callable[[], Figure]]:
    """Return functions that draw the figures, by the names of their files."""
    fabrics = {
        f"fabric_{name}": partial(fabric_figure, drawn.fabric, drawn.circuits)
        for name, drawn in docs_fabrics().items()
    }
    return {**fabrics, "dilation_ruler": partial(dilation_ruler, SPARSE), "trust_tree": trust_tree}


def write(folder: Path = FOLDER) -> None:
    """Write all figures."""
    for name, draw in docs_figures().items():
        (folder / f"{name}.svg").write_bytes(image_of(draw(), "svg"))


if __name__ == "__main__":
    write()
