"""The options that several mFabric scenarios have."""

from typing import Annotated

import typer

DelayMs = Annotated[float, typer.Option("--delay-ms", help="Of the OCS [ms].")]
Rate = Annotated[float, typer.Option(help="Rate of a NIC [Gbit/s].")]
Seed = Annotated[int, typer.Option(help="Of the gates, and of the circuits before the first all-to-all.")]
RUN_S = 8.0
"""How long a point may take at emulated scale so that the steps of its data-parallel rings are long [s]."""
