"""The plots: what is drawn is what the summary and the records say, and void points are marked."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.typing import ColorType
from numpy.typing import NDArray

from testbed.report.figures import figures
from testbed.report.heat_maps import nic_heat_map, uplink_heat_map
from testbed.report.images import image_of
from testbed.report.means import points
from testbed.report.palette import (
    BOUND,
    CIRCUIT_COLOURS,
    COLOURS,
    LONGEST_LINE,
    OWN,
    TRANSPORT_COLOURS,
    VOID_HATCH,
    canvas,
    colours,
    legend,
    legend_below,
    styled,
)
from testbed.report.plots import (
    busbw_bars,
    cct_cdf,
    cct_percentiles,
    emulated_against_predicted,
    overtaken_by_packets,
)
from testbed.trust.outcome import Outcome, summary
from tests.hostile_names import NAMES, raw
from tests.testbed.cases import (
    STRAINED,
    VOID,
    bars_of,
    experiment_of,
    outcome_of,
    small_fabric,
    small_outcomes,
    with_orders,
    with_verdict,
)
from topologies.big_switch import big_switch_fabric
from topologies.rail import rail_fabric
from traffic.metrics import nic_received_bytes, nic_sent_bytes, uplink_bytes
from traffic.records import NVLINK
from traffic.transports.reordering import Reordering
from traffic.workloads.synthetic import sparse, uniform

SHADES = colours(["ecmp", "rails", "optimal"])


def texts_of(figure: Figure) -> list[str]:
    """Return all that is written in a figure."""
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]


def lines_of(axes: Axes) -> dict[str, Line2D]:
    return {str(line.get_gid()): line for line in axes.get_lines() if line.get_gid()}


def images_of(figure: Figure) -> list[NDArray[np.float64]]:
    """Return the numbers of each map, colour bars left out."""
    images = [image for axes in figure.axes for image in axes.get_images() if isinstance(image, AxesImage)]
    return [np.asarray(image.get_array(), dtype=float) for image in images]


def test_bars_are_as_high_as_the_means() -> None:
    table = summary(small_outcomes(seeds=2))
    (axes,) = busbw_bars(table, SHADES).axes
    heights = {gid: bar.get_height() for gid, (bar,) in bars_of(axes).items()}
    assert heights == {f"{p.workload}|{p.scheme}": p["busbw_relative"].value for p in points(table)}
    lines = [line for line in axes.collections if isinstance(line, LineCollection)]
    limits = {line.get_gid(): line.get_segments()[0][0][1] for line in lines if line.get_gid()}
    assert limits == {f"{p.workload}|{p.name}|bound": p["busbw_limit"].value for p in points(table)}


def test_many_workloads_stand_in_rows_of_one_scale_and_no_figure_outgrows_a_page() -> None:
    (row,) = summary(small_outcomes(seeds=1)[:1]).to_dict("records")
    table = pd.DataFrame([row | {"workload": f"load {number}"} for number in range(15)])
    figure = busbw_bars(table, SHADES)
    assert figure.get_figwidth() <= 9
    assert [len(bars_of(axes)) for axes in figure.axes] == [5, 5, 5]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1


def test_percentile_bars_are_as_high_as_the_means_in_the_unit_of_the_axis() -> None:
    outcomes = small_outcomes(seeds=2)
    table = summary(outcomes)
    figure = cct_percentiles(outcomes, table, SHADES)
    for axes, workload in zip(figure.axes, ("uniform", "sparse 0.4"), strict=True):
        assert axes.get_ylabel() == "time [ms]"
        for point in (point for point in points(table) if point.workload == workload):
            drawn = [bar.get_height() for bar in bars_of(axes)[f"{workload}|{point.scheme}"]]
            columns = ("cct_mean_s", "cct_p80_s", "cct_p95_s", "cct_p99_s")
            assert drawn == pytest.approx([1e3 * point[column].value for column in columns])


def test_void_bars_are_hatched_and_say_so_and_others_are_not() -> None:
    figure = busbw_bars(summary(with_verdict(small_outcomes(seeds=1), VOID, 1)), SHADES)
    bars = bars_of(figure.axes[0])
    assert {gid: bar.get_hatch() for gid, (bar,) in bars.items()} == {
        "uniform|ecmp": None,
        "uniform|rails": VOID_HATCH,
        "sparse 0.4|ecmp": None,
        "sparse 0.4|rails": None,
    }
    assert texts_of(figure).count("void") == 2  # at the bar, and in the legend


def test_a_void_baseline_makes_all_of_its_workload_void() -> None:
    bars = bars_of(busbw_bars(summary(with_verdict(small_outcomes(seeds=1), VOID, 0)), SHADES).axes[0])
    assert bars["uniform|rails"][0].get_hatch() == VOID_HATCH


def test_strained_and_model_points_say_so() -> None:
    outcomes = with_verdict(small_outcomes(seeds=1), STRAINED, 1)
    assert "strained" in texts_of(busbw_bars(summary(outcomes), SHADES))
    model = [outcome_of(experiment_of(small_fabric(), uniform(4), name)) for name in ("ecmp", "rails")]
    assert "model" in texts_of(busbw_bars(summary(model), SHADES))
    assert "model: nothing was emulated" in texts_of(cct_cdf(model, SHADES))


def test_the_distribution_is_that_of_the_messages_over_the_bound() -> None:
    (axes,) = cct_cdf([outcome := small_outcomes(seeds=1)[2]], SHADES).axes
    crossed = outcome.run.records[outcome.run.records["path"] != NVLINK]
    bound_s = summary([outcome])["bound_s"][0]
    drawn = np.asarray(lines_of(axes)["sparse 0.4|ecmp"].get_xdata(), dtype=float)
    assert drawn[1:] == pytest.approx(np.sort(crossed["end_s"]) / bound_s)


def test_the_line_of_what_was_overtaken_is_the_share_by_so_many_or_more() -> None:
    lines = lines_of(overtaken_by_packets(with_orders(), SHADES).axes[0])
    assert list(lines) == ["uniform|rails"]  # of ecmp none was overtaken
    line = lines["uniform|rails"]
    assert np.asarray(line.get_xdata()).tolist() == [1, 1, 4, 20]
    assert np.asarray(line.get_ydata()).tolist() == pytest.approx([0.1, 0.1, 0.04, 0.01])


def test_packets_of_several_seeds_count_together_but_for_void_ones() -> None:
    first, *_ = (o for o in with_orders() if o.experiment.scheme == "rails")
    other = replace(first, order=Reordering({0: 0, 1: 100}))
    both, sound, void = (
        lines_of(overtaken_by_packets(outcomes, SHADES).axes[0])["uniform|rails"]
        for outcomes in (
            [first, other],
            with_verdict([first, other], VOID, 1),
            [replace(first, verdict=VOID)],
        )
    )
    assert np.asarray(both.get_ydata()).tolist() == pytest.approx([0.55, 0.55, 0.02, 0.005])
    assert np.asarray(sound.get_ydata()).tolist() == pytest.approx([0.1, 0.1, 0.04, 0.01])
    assert [both.get_linestyle(), sound.get_linestyle(), void.get_linestyle()] == ["-", "-", ":"]


def test_order_is_drawn_where_it_is_known() -> None:
    drawn = [
        [plot.name for plot in figures(outcomes, summary(outcomes)) if plot.name == "overtaken"]
        for outcomes in (with_orders(), small_outcomes(seeds=1))
    ]
    assert drawn == [["overtaken"], []]
    nothing = [o for o in with_orders() if o.experiment.scheme == "ecmp"]
    assert image_of(overtaken_by_packets(nothing, SHADES), "png").startswith(b"\x89PNG")


def test_a_void_distribution_is_dotted_and_named_only_where_no_seed_is_sound() -> None:
    outcomes = small_outcomes(seeds=2)
    figure = cct_cdf(with_verdict(outcomes, VOID, 0, 4, 1), SHADES)
    lines = lines_of(figure.axes[0])
    assert lines["uniform|ecmp"].get_linestyle() == ":"
    assert lines["uniform|rails"].get_linestyle() == "-"
    assert "ecmp: void" in texts_of(figure)
    assert "rails: void" not in texts_of(figure)


def test_the_maps_show_what_the_nics_and_uplinks_carried() -> None:
    fabric = rail_fabric(3, 2)
    demand = sparse(6, 0.3, top_k=1)
    outcomes = [outcome_of(experiment_of(fabric, demand, name)) for name in ("rails", "ecmp")]
    ecmp, rails = (outcomes[1].link_bytes, outcomes[0].link_bytes)
    expected = [f(sent, fabric) / 1e6 for f in (nic_sent_bytes, nic_received_bytes) for sent in (ecmp, rails)]
    figure = nic_heat_map(outcomes, demand.name)
    drawn = images_of(figure)[:4]
    assert all(np.array_equal(one, other) for one, other in zip(drawn, expected, strict=True))
    assert [text for text in texts_of(figure) if text.startswith("ecmp (model)")] != []
    uplinks = images_of(uplink_heat_map(outcomes, demand.name))[:2]
    assert uplinks[0].sum() * 1e6 == pytest.approx(uplink_bytes(ecmp, fabric).to_numpy().sum())
    assert not uplinks[1].any()


def test_fabrics_have_maps_of_their_own_by_label_and_uplinks_where_there_are_some() -> None:
    fabrics = {"rails": rail_fabric(4, 2), "one switch": big_switch_fabric(4, nics=2, gpus=2)}
    outcomes = [
        outcome_of(replace(experiment_of(fabric, uniform(8), "ecmp"), label=label))
        for label, fabric in fabrics.items()
    ]
    loads = images_of(nic_heat_map(outcomes, "uniform"))
    assert len([load for load in loads if load.shape == (4, 2)]) == 4, "sent and received on two fabrics"
    texts = texts_of(uplink_heat_map(outcomes, "uniform"))
    assert [text.split(" (")[0] for text in texts if "(model)" in text] == ["rails"]


def test_void_maps_are_crossed_out() -> None:
    outcomes = with_verdict(small_outcomes(seeds=1), VOID, 1)
    figure = nic_heat_map(outcomes, "uniform")
    for axes in figure.axes[:2]:
        (cross,) = [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_hatch()]
        _, image = axes.get_images()
        left, right, _, _ = image.get_extent()
        assert (cross.get_bbox().x0, cross.get_bbox().x1) == (left, right)
    assert any(text.startswith("rails (void)") for text in texts_of(figure))


def test_the_scatter_shows_every_emulated_point_and_crosses_void_ones() -> None:
    outcomes = with_verdict(small_outcomes(seeds=1), VOID, 3)
    outcomes.append(outcome_of(experiment_of(small_fabric(), uniform(4), "optimal")))
    figure = emulated_against_predicted(summary(outcomes), SHADES)
    dots = {str(c.get_gid()): c for c in figure.axes[0].collections if isinstance(c, PathCollection)}
    ratios = {gid: np.asarray(c.get_offsets())[:, 1].tolist() for gid, c in dots.items()}
    assert ratios == {
        "ecmp|sound": pytest.approx([1.04, 1.04]),
        "rails|sound": pytest.approx([1.04]),
        "rails|void": pytest.approx([1.04]),
    }
    assert texts_of(figure).count("void") == 2


def test_no_two_colours_of_lightrail_s_are_the_same() -> None:
    assert len({*COLOURS.values(), *OWN}) == len(COLOURS) + len(OWN)
    assert colours(["mine:f", "rails", "a:b"]) == {"rails": COLOURS["rails"], "a:b": OWN[0], "mine:f": OWN[1]}
    assert colours(["while lit, spectra"]) == {"while lit, spectra": CIRCUIT_COLOURS["spectra"]}
    assert colours(["rails, one NIC less", "rails"])["rails"] == COLOURS["rails"]
    assert colours(TRANSPORT_COLOURS) == TRANSPORT_COLOURS


@given(
    st.lists(
        st.sampled_from([*COLOURS, *CIRCUIT_COLOURS]) | st.text(min_size=1, max_size=9),
        max_size=60,
        unique=True,
    )
)
def test_no_two_schemes_of_a_run_share_a_colour_or_have_the_bound_s(names: list[str]) -> None:
    found = colours(names)
    assert set(found) == set(names)
    assert len({*found.values(), BOUND}) == len(names) + 1


def colours_drawn(figure: Figure) -> set[tuple[str, str]]:
    """Return the schemes that a figure shows, each with its colour, as drawn and as in the legend."""
    drawn = [
        (text.get_text(), handle)
        for legend in figure.legends
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
    ]
    for artist in figure.findobj(lambda artist: "|" in str(artist.get_gid())):
        first, last, *_ = str(artist.get_gid()).split("|")
        drawn.append((first if isinstance(artist, PathCollection) else last, artist))
    return {(scheme, to_hex(ink)) for scheme, artist in drawn for ink in inks_of(artist)}


def inks_of(artist: object) -> list[ColorType]:
    """Return the colour of a bar, a line or dots; none of anything else."""
    if isinstance(artist, Line2D):
        return [artist.get_color()]
    if isinstance(artist, PathCollection):
        return [tuple(map(float, row)) for row in np.asarray(artist.get_facecolor())]  # type: ignore[misc]
    return [artist.get_facecolor()] if isinstance(artist, Rectangle) else []


def test_a_scheme_has_one_colour_in_all_plots_of_a_run_and_in_their_legends() -> None:
    names = ["a:own", "b:own", "c:own", "d:own"]
    outcomes = [
        replace(outcome, experiment=replace(outcome.experiment, label=name))
        for name, outcome in zip(names, with_orders(), strict=True)
    ]
    outcomes[0] = outcome_of(outcomes[0].experiment)  # not emulated, so some plots do not have it
    plots = [plot for plot in figures(outcomes, summary(outcomes)) if "_load" not in plot.name]
    drawn = set.union(*(colours_drawn(plot.draw()) for plot in plots if "timeline" not in plot.name))
    assert {pair for pair in drawn if pair[0] in names} == set(colours(names).items())


def test_a_legend_of_long_names_is_no_wider_than_its_figure() -> None:
    names = [f"while lit, {name}" for name in ("bvn", "eclipse", "less", "rotor", "spectra", "spectra_plus")]
    figure = canvas(6.5, 3.4, "")
    legend(figure, names, colours(names), bound="lower bound of the last message", words=["model"])
    image_of(figure, "png")
    (drawn,) = figure.legends
    assert drawn.get_window_extent().x1 <= figure.bbox.x1


def test_a_legend_of_names_without_end_leaves_room_for_the_plot() -> None:
    names = [f"{'n' * 300}{number}" for number in range(8)]
    outcomes = [replace_label(each, names[n]) for n, each in enumerate(2 * small_outcomes(seeds=1)[:4])]
    for plot in figures(outcomes, summary(outcomes), names[0]):
        assert image_of(plot.draw(), "png").startswith(b"\x89PNG")


def replace_label(outcome: Outcome, label: str) -> Outcome:
    """Return an outcome whose experiment has a label."""
    return replace(outcome, experiment=replace(outcome.experiment, label=label))


def test_a_workload_without_the_baseline_says_so() -> None:
    figure = busbw_bars(summary(small_outcomes(seeds=1)[1:]), SHADES)
    assert texts_of(figure).count("ecmp was not run") == 1
    assert set(bars_of(figure.axes[0])) == {"sparse 0.4|ecmp", "sparse 0.4|rails"}


@pytest.mark.parametrize("verdict", [None, VOID])
def test_all_plots_of_a_run_are_drawn_without_a_warning(verdict: object) -> None:
    outcomes = small_outcomes(seeds=2)
    outcomes = with_verdict(outcomes, VOID, *range(len(outcomes))) if verdict else outcomes
    plots = figures(outcomes, summary(outcomes))
    assert [plot.name for plot in plots] == [
        "busbw",
        "cct_percentiles",
        "cct_cdf",
        "emulated_against_predicted",
        "nic_load_uniform",
        "uplink_load_uniform",
        "timeline_uniform",
        "nic_load_sparse_0.4",
        "uplink_load_sparse_0.4",
        "timeline_sparse_0.4",
    ]
    assert all(image_of(plot.draw(), "png").startswith(b"\x89PNG") for plot in plots)


def test_plots_without_data_are_left_out() -> None:
    outcomes: list[Outcome] = [outcome_of(experiment_of(rail_fabric(2, 2, 0), uniform(4), "rails"))]
    names = [plot.name for plot in figures(outcomes, summary(outcomes))]
    assert names == ["cct_percentiles", "cct_cdf", "nic_load_uniform", "timeline_uniform"]


@pytest.mark.drawn
@pytest.mark.parametrize("name", [*NAMES.values(), "\ud800"], ids=[*NAMES, "half a character"])
def test_names_of_others_are_drawn_as_they_are(name: str) -> None:
    @styled
    def named() -> Figure:
        figure = canvas(6.5, 3.0, name)
        left, right = figure.subplots(1, 2)
        left.bar(range(2), [1, 2], label=name)
        left.set_xticks(range(2), [name, name])
        left.set(title=name, ylabel=name)
        right.bar([name], [1])
        right.annotate(name, (0, 0))
        legend_below(figure)
        return figure

    figure = named()
    assert len(image_of(figure, "png")) > 1000  # without a warning, as all of tests
    written = texts_of(figure)
    assert max(len(line) for text in written for line in text.split("\n")) <= LONGEST_LINE
    assert not raw("".join(written))
    assert not [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_parse_math()]
    left, _ = figure.axes
    if name == NAMES["formula of a plot"]:
        assert name == figure.get_suptitle() == left.get_title("left") == left.get_ylabel()
        assert [text.get_text() for text in left.get_xticklabels()] == [name, name]
        assert [text.get_text() for text in figure.legends[0].get_texts()] == [name]


def test_axes_with_logarithms_have_numbers_and_no_formulas() -> None:
    @styled
    def drawn() -> Figure:
        figure = canvas(6.5, 3.0, "")
        wide, narrow, signed = figure.subplots(1, 3)
        wide.plot([1, 1e6], [1, 1e6])
        wide.set(xscale="log", yscale="log")
        narrow.plot([0, 1], [0.3, 0.9])
        narrow.set(yscale="log")
        signed.plot([-100, 100], [0, 1])
        signed.set_xscale("symlog", linthresh=1)
        return figure

    figure = drawn()
    image_of(figure, "png")
    written = [
        [text.get_text().replace("\N{MINUS SIGN}", "-") for text in axis.get_ticklabels(which="both")]
        for axis in axes_of(figure)
    ]
    assert all(math.isfinite(float(text)) for texts in written for text in texts if text)
    assert {"1", "100", "1e+06"} < {*written[0]}
    assert {"0.3", "0.4", "0.6"} < {*written[3]}
    assert {"-10", "0", "10"} < {*written[4]}


def axes_of(figure: Figure) -> list[Axis]:
    """Return the axes of all panels, each panel's x before its y."""
    return [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
