"""The plot of a point: each flow's rate, queue and window over time."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from testbed.report.palette import COLOURS, canvas, horizontal_grid, legend_below, styled
from testbed.trust.outcome import Outcome
from traffic.clock import SECOND

PS_PER_US = SECOND // 10**6
KB = 1e3
STEPS = 40
"""Over so many equal times the rate is a mean: in a shorter one a flow of many has hardly a packet."""
FEW = len(COLOURS)
"""Up to so many flows each has a colour of its own, and a name."""
EARLY, LATE = COLOURS["rails"], COLOURS["plb"]
"""Of more flows: those that start with the first, and later ones."""


def has_samples(outcome: Outcome) -> bool:
    """Return whether there are samples of an outcome's flows over time."""
    return outcome.emulated is not None and len(outcome.emulated.tables.flows) > 0


def samples_of(outcome: Outcome) -> pd.DataFrame:
    """Return the samples of a point's flows as they are drawn: flow, at_us, and what was so then."""
    tables = outcome.run.tables
    lanes = [tables.lanes[lane] for lane in tables.sources["lane"]]
    names = [f"{lane.source.server} to {lane.destination.server}" for lane in lanes]
    flows, starts_ps = _until_it_ends(tables.flows), np.unique(tables.messages["released_ps"])
    first_ps = flows.groupby("source")["at_ps"].transform("min")
    return pd.DataFrame(
        {
            "flow": flows["source"],
            "name": [names[source] for source in flows["source"]],
            "is_late": np.searchsorted(starts_ps, first_ps, side="right") > 1,
            "at_us": flows["at_ps"] / PS_PER_US,
            "delivered_kb": flows["delivered_bytes"] / KB,
            "on_the_way_kb": (flows["sent_bytes"] - flows["delivered_bytes"]) / KB,
            "window_kb": flows["window_bytes"] / KB,
            "queue_us": flows["queue_ps"].where(flows["queue_ps"] >= 0) / PS_PER_US,
        }
    )


def _until_it_ends(flows: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of each flow up to the first at which all of it had arrived."""
    delivered = flows.groupby("source")["delivered_bytes"]
    is_done = flows["delivered_bytes"] == delivered.transform("max")
    return flows[is_done.groupby(flows["source"]).cumsum() <= 1]


@styled
def windows_over_time(samples: pd.DataFrame, title: str) -> Figure:
    """Return the rate, queue and window of each flow over time, a panel each.

    Parameters
    ----------
    samples
        From `samples_of`.
    title
        What was run.
    """
    figure = canvas(8.0, 6.4, title)
    rate, queue, window = panels = figure.subplots(3, 1, sharex=True)
    has_window = samples["window_kb"].notna().any()
    size = "window_kb" if has_window else "on_the_way_kb"
    edges = np.linspace(samples["at_us"].min(), samples["at_us"].max(), STEPS + 1)
    for mine, colour, label in _flows(samples):
        _draw_rate(rate, mine, edges, colour, label)
        met = mine[mine["queue_us"].notna()]
        in_touch = met["at_us"].diff().fillna(0.0) <= 2 * (edges[1] - edges[0])
        queue.plot(met["at_us"], met["queue_us"].where(in_touch), color=colour, linewidth=0.9)
        window.step(mine["at_us"], mine[size], where="post", color=colour, linewidth=0.9)
    rate.set_ylabel("rate [Gbit/s]")
    queue.set_ylabel("queue [µs]")
    window.set(ylabel=f"{'window' if has_window else 'on the way'} [kB]", xlabel="time [µs]")
    for axes in panels:
        axes.set_ylim(bottom=0)
        horizontal_grid(axes)
    legend_below(figure)
    return figure


def _draw_rate(axes: Axes, mine: pd.DataFrame, edges: NDArray[np.float64], colour: str, label: str) -> None:
    delivered_kb = np.interp(edges, mine["at_us"], mine["delivered_kb"], left=0.0)
    gbps = 8 * np.diff(delivered_kb) / np.diff(edges)  # a kB in a microsecond is 8 Gbit/s
    axes.plot((edges[1:] + edges[:-1]) / 2, gbps, color=colour, linewidth=1.2, label=label)


def _flows(samples: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, str, str]]:
    """Yield the samples of each flow, its colour, and what the legend calls it."""
    flows = [mine for _, mine in samples.groupby("flow")]
    if len(flows) <= FEW:
        for mine, colour in zip(flows, COLOURS.values(), strict=False):
            yield mine, colour, str(mine["name"].iloc[0])
        return
    for mine in flows:
        if mine["is_late"].iloc[0]:
            yield mine, LATE, "flows that start later"
        else:
            yield mine, EARLY, "flows from the start"
