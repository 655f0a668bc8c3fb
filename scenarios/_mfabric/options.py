"""The options that several mFabric scenarios have."""

from typing import Annotated

import typer

Layers = Annotated[int, typer.Option(help="Layers of a model that are run.")]
MicroBatches = Annotated[int, typer.Option(help="Micro-batches of an iteration, per replica.")]
Seed = Annotated[int, typer.Option(help="Of the gates, and of the circuits before the first all-to-all.")]
RUN_S = 8.0
"""How long a point may take at emulated scale so that the steps of its data-parallel rings are long [s]."""
