"""What lightrail promises, measured on this machine: a JSON line per figure, each with its bar."""

import _checkout  # first: runs this file under the checkout's Python

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from scenarios._bench.figure import FIGURES, Figure, measured
from testbed.machine.datapath import default_datapath
from testbed.study.command import main
from testbed.study.output import standard_output
from testbed.study.worker import EmulationWorker
from testbed.trust.kept import machine_name
from topologies.errors import ScenarioError

SCENARIOS = Path(__file__).parent


def bench(
    figures: Annotated[
        list[str] | None,
        typer.Argument(help="Names of figures, by default all; a wrong one is answered with the right ones."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Measure what lightrail promises on this machine: a JSON line per figure, each with its bar.

    Ratios are taken side by side in one run. Run it on an idle machine; as an ordinary user too, and where
    the kernel has a datapath also with LIGHTRAIL_DATAPATH=kernel.
    """
    for name in figures or list(FIGURES):
        if name not in FIGURES:
            raise ScenarioError(f"there is no figure {name!r}", f"choose among: {', '.join(FIGURES)}")
    for name in figures or list(FIGURES):
        figure = FIGURES[name]
        if figure.sandbox:
            with EmulationWorker() as worker:
                ((value, detail),) = worker.call(measured, figure.measure)
        else:
            value, detail = figure.measure()
        _print(name, figure, value, detail)


def _print(name: str, figure: Figure, value: float, detail: str) -> None:
    user = "root" if os.geteuid() == 0 else "ordinary user"
    line = {
        "figure": name,
        "value": value,
        "unit": figure.unit,
        "bar": figure.bar,
        "machine": machine_name(default_datapath()),
    }
    with standard_output("give one that can be"):
        print(json.dumps({**line, "detail": f"{detail}; {user}"}), flush=True)


# Files are searched, not named: a paper can be taken out, and its figures go with it.
for file in (*sorted(SCENARIOS.glob("_bench/[!_]*.py")), *sorted(SCENARIOS.glob("_*/bench.py"))):
    import_module(".".join(file.relative_to(SCENARIOS.parent).with_suffix("").parts))

if __name__ == "__main__":
    main(bench)
