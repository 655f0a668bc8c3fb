"""What a run over parallel OCSes leaves behind: tables, plots, and what is needed to run it again."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from testbed.figures import png_of
from testbed.files import make_directory, write_whole
from testbed.ocs_executor import Execution
from testbed.results import RESULTS
from testbed.versions import machine, versions
from topologies.errors import ScenarioError

FORMAT_VERSION = 1
COLUMNS = [
    "ocses", "scheduler", "meeting", "seed", "planned_s", "cct_s", "bound_s", "slots", "shortest_slot_s",
    "undelivered_bytes", "missing_bytes", "resent_bytes", "slot_utilisation", "guard_loss",
]  # fmt: skip
"""Times at emulated scale, so that they compare with the logs."""


def execution_row(execution: Execution, seed: int) -> tuple[object, ...]:
    """Return an execution as a row of the table."""
    experiment, time = execution.experiment, execution.experiment.dilation.time
    slots = [slot for queue in experiment.schedule.switches for slot in queue]
    return (
        len(experiment.ocses), experiment.scheduler, experiment.meeting, seed,
        experiment.schedule.makespan * time, execution.cct_s * time, experiment.lower_bound_s * time,
        len(slots), min(slot.weight for slot in slots) * time,
        execution.undelivered_bytes[0], execution.undelivered_bytes[-1], execution.lost_bytes,
        execution.slot_utilisation, execution.guard_loss,
    )  # fmt: skip


def executions_table(table: pd.DataFrame) -> Table:
    """Return the table for the terminal, a line per scheduler: means over the seeds.

    *late* is what the planned slots did not deliver, *resent* what was sent into the dark, *used* the
    share of the lit time in which bytes were carried, *guard* that in which nobody may send.
    """
    shown = Table("OCSes", "scheduler", "senders", box=None, padding=(0, 1, 0, 0))
    for name in ("plan s", "CCT s", "ratio", "bound", "slots", "late kB", "resent", "used", "guard"):
        shown.add_column(name, justify="right", no_wrap=True)
    for key, rows in table.groupby(["ocses", "scheduler", "meeting"], sort=False):
        mean = rows.mean(numeric_only=True)
        ratio = (rows["cct_s"] / rows["planned_s"]).mean()
        times = (mean["planned_s"], mean["cct_s"], ratio, mean["bound_s"])
        sizes = (mean["slots"], mean["undelivered_bytes"] / 1e3, mean["resent_bytes"] / 1e3)
        shares = (mean["slot_utilisation"], mean["guard_loss"])
        shown.add_row(
            *map(str, key if isinstance(key, tuple) else (key,)),
            *(f"{time:.3f}" for time in times),
            *(f"{size:.0f}" for size in sizes),
            *("-" if pd.isna(share) else f"{share:.1%}" for share in shares),
        )
    return shown


def new_directory(scenario: str, out: Path | None) -> Path:
    """Make a run's results directory and return it.

    Raises
    ------
    ScenarioError
        If ``out`` is not empty.
    """
    path = out or RESULTS / scenario / datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
    if not make_directory(path) and any(path.iterdir()):
        raise ScenarioError(f"{path} is not empty", "choose another directory with --out")
    return path


def write_results(
    path: Path,
    tables: Mapping[str, pd.DataFrame],
    plots: Mapping[str, Figure],
    settings: Mapping[str, object],
    notes: Sequence[str] = (),
) -> None:
    """Write tables as CSV, plots as PNG, and ``run.json``."""
    for name, table in tables.items():
        write_whole(path / f"{name}.csv", table.to_csv(index=False))
    for name, figure in plots.items():
        write_whole(path / f"{name}.png", png_of(figure))
    run = {
        "format": FORMAT_VERSION,
        "command": ["python", *sys.argv],
        "settings": dict(settings),
        "notes": list(notes),
        "versions": dict(versions()),
        "machine": dict(machine()),
    }
    write_whole(path / "run.json", json.dumps(run, indent=1, default=str))
