"""All plots of a run, each with the sentence that says what to see in it."""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from testbed.report.heat_maps import has_uplinks, nic_heat_map, one_per_scheme, uplink_heat_map
from testbed.report.means import BASELINE, transports_of
from testbed.report.page import Plot, slug
from testbed.report.palette import Shades, colours
from testbed.report.plots import (
    BAND,
    busbw_bars,
    cct_cdf,
    cct_over_transports,
    cct_percentiles,
    emulated_against_predicted,
    has_order,
    overtaken_by_packets,
)
from testbed.report.timeline import timeline_of
from testbed.report.training_plots import phase_bars, phased
from testbed.trust.outcome import Outcome


def figures(outcomes: Sequence[Outcome], table: pd.DataFrame, baseline: str = BASELINE) -> list[Plot]:
    """Return the plots that a run has data for, those of each transport by themselves.

    Parameters
    ----------
    outcomes
        At least one.
    table
        Their summary.
    baseline
        What busbw is relative to; without a busbw of it in the run there is no plot of busbw.
    """
    transports, shades = transports_of(table), colours(table["name"])
    if len(transports) == 1:
        return _figures(outcomes, table, shades, baseline)
    plots = [
        Plot("cct_over_transports", partial(cct_over_transports, table, shades), OVER_TRANSPORTS_CAPTION),
    ]
    for transport in transports:
        mine = [outcome for outcome in outcomes if outcome.experiment.transport_name == transport]
        plots += [
            Plot(f"{plot.name}_{slug(transport)}", plot.draw, f"Over {transport}. {plot.caption}")
            for plot in _figures(mine, table[table["transport"] == transport], shades, baseline)
        ]
    return plots


def _figures(outcomes: Sequence[Outcome], table: pd.DataFrame, shades: Shades, baseline: str) -> list[Plot]:
    """Return the plots of what one transport carried."""
    plots = []
    if table.loc[table["name"] == baseline, "busbw_gbytes_s"].notna().any():
        bars = partial(busbw_bars, table, shades, baseline)
        plots.append(Plot("busbw", bars, BUSBW_CAPTION.format(baseline)))
    plots += [
        Plot("cct_percentiles", partial(cct_percentiles, outcomes, table, shades), PERCENTILES_CAPTION),
        Plot("cct_cdf", partial(cct_cdf, outcomes, shades), CDF_CAPTION),
    ]
    if (table["verdict"] != "model").any():
        caption = SCATTER_CAPTION.format(*BAND)
        dots = partial(emulated_against_predicted, table, shades)
        plots.append(Plot("emulated_against_predicted", dots, caption))
    if any(map(has_order, outcomes)):
        plots.append(Plot("overtaken", partial(overtaken_by_packets, outcomes, shades), OVERTAKEN_CAPTION))
    for model in phased(table):
        bars = partial(phase_bars, table, shades, model)
        plots.append(Plot(f"phases_{slug(model)}", bars, f"{model}. {PHASES_CAPTION}"))
    for workload in dict.fromkeys(table["workload"]):
        plots += _heat_maps(outcomes, str(workload))
        shown = one_per_scheme(outcomes, str(workload), faults=True)
        caption = f"{workload}. {TIMELINE_CAPTION}"
        plots.append(Plot(f"timeline_{slug(str(workload))}", partial(timeline_of, shown), caption))
    return plots


OVER_TRANSPORTS_CAPTION = (
    "CCT over the lower bound under each transport. Where the order of the schemes changes from one group to "
    "the next, it is the transport's, not the schemes'. Means over the seeds, whiskers are the standard "
    "deviation."
)
BUSBW_CAPTION = (
    "Bus bandwidth as nccl-tests defines it, over that of {} with the same demand. Means over the seeds, "
    "whiskers are the standard deviation. The red line is what the lower bound would give."
)
PERCENTILES_CAPTION = (
    "Mean and percentiles over the messages that crossed the network. Means over the seeds, whiskers "
    "are the standard deviation. No scheme can bring its last message under the red line."
)
CDF_CAPTION = (
    "When which share of the messages was done, all seeds together, in units of the lower bound. A steep "
    "line near 1 is a scheme under which all messages end together and no NIC idles."
)
SCATTER_CAPTION = (
    "Every emulated point against what max-min fair fluids over the same paths would take. In the band, "
    "{:.2f} to {:.2f}, emulation and model count as agreeing."
)
OVERTAKEN_CAPTION = (
    "What share of the packets was overtaken by so many later ones of their message or more, at emulated "
    "scale, all seeds together. A scheme without a line had none overtaken."
)
PHASES_CAPTION = (
    "What the four all-to-alls of an iteration take together, and the iteration with its compute. Means over "
    "the seeds, whiskers are the standard deviation; no scheme gets under the red lines."
)
NIC_CAPTION = (
    "Bytes that each NIC of each server sent and received, one seed, a scale for each. MSE is the normalised "
    "load MSE: 0 is even within each server, 1 is all on one NIC."
)
TIMELINE_CAPTION = (
    "What each server did when: computed (grey), sent (above), and received (paler, below); a colour for "
    "each collective, light grey for nothing. A message counts from when nothing held it back to its last "
    "byte, so the last bar to end is who the others wait for."
)
UPLINK_CAPTION = (
    "Bytes from each leaf to each spine, one seed, one scale. A scheme that keeps to its rails needs no "
    "spine; under hashing, a dark cell beside light ones is a collision."
)


def _heat_maps(outcomes: Sequence[Outcome], workload: str) -> list[Plot]:
    name = slug(workload)
    maps = [Plot(f"nic_load_{name}", partial(nic_heat_map, outcomes, workload), f"{workload}. {NIC_CAPTION}")]
    if has_uplinks([outcome for outcome in outcomes if outcome.experiment.job.name == workload]):
        figure = partial(uplink_heat_map, outcomes, workload)
        maps.append(Plot(f"uplink_load_{name}", figure, f"{workload}. {UPLINK_CAPTION}"))
    return maps
