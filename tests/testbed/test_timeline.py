"""The picture of what servers and OCSes did: its rows, its colours, and where they end."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from scenarios._infinitehbd.ring.dying import Dying, dying_ring
from testbed.core.run import Run
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from testbed.report.images import image_of
from testbed.report.timeline import (
    COLLECTIVES,
    DARK,
    GAP_PIXELS,
    MOST_COLOURS,
    MOST_ROWS,
    OTHERS,
    WAITS,
    Column,
    timeline,
    timeline_of,
)
from testbed.trust.outcome import Verdict
from tests.testbed.cases import VOID, slowed, small_outcomes, with_verdict
from tests.testbed.run_cases import moe, ring
from tests.testbed.runs import changed, run_of
from topologies.fabric import Fabric
from topologies.khop_ring import KHopRing
from topologies.rail import rail_fabric

NOTHING = pd.DataFrame(columns=["at_s", "what", "which"])


def moe_column() -> Column:
    case = moe()
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    return Column("mine", case.fabric, {"emulated": slowed(run, 1.1), "predicted": run})


def names_of(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def keys_of(columns: list[Column]) -> list[str]:
    """Return what the key under a picture names."""
    (key,) = timeline(columns, "title", ["credit"]).legends
    return [text.get_text() for text in key.get_texts()]


def pixels_of(axes: Axes) -> NDArray[np.float64]:
    (image,) = axes.get_images()
    return np.asarray(image.get_array(), dtype=float)


def exchanges(fabric: Fabric, nodes: dict[str, float], servers: int) -> Run:
    """Return a run in which GPU 0 of each server but the last sends to the next, in nodes one by one."""
    rows, tasks, at_s = [], [], 0.0
    gpus = fabric.gpus // len(fabric.servers)
    for node, took_s in nodes.items():
        ends = [(gpus * server, gpus * (server + 1)) for server in range(servers - 1)]
        rows += [(node, *pair, 1, at_s, at_s + took_s, "nvlink") for pair in ends]
        tasks.append((node, -1, at_s, at_s + took_s))
        at_s += took_s
    columns = ["node", "source", "destination", "bytes", "start_s", "end_s", "path"]
    messages = pd.DataFrame(rows, columns=columns)
    return run_of(messages, pd.DataFrame(tasks, columns=["node", "gpu", "start_s", "end_s"]), NOTHING)


def test_it_has_a_row_per_server_and_ocs_for_each_run_the_emulated_above() -> None:
    column = moe_column()
    figure = timeline([column], "title", ["credit"])
    assert [names_of(axes) for axes in figure.axes] == [["h0", "h1", "h2", "h3", "ocs0", "ocs1"]] * 2
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["mine, emulated: 78.9 ms", "mine, predicted: 71.7 ms"]
    above, below = (axes.get_position().y0 for axes in figure.axes)
    assert above > below
    assert {axes.get_xlim() for axes in figure.axes} == {(0.0, figure.axes[0].get_xlim()[1])}
    assert image_of(figure, "png").startswith(b"\x89PNG")


def test_the_key_names_computes_collectives_light_and_faults_and_no_more() -> None:
    assert keys_of([moe_column()]) == [
        "compute",
        "dispatch",
        "combine",
        "paler: received",
        "waits for light or a link",
        "lit, a colour for each permutation",
        "dark",
        "fails; known (dots); back (dashes)",
    ]
    fabric = rail_fabric(2, 1)
    run = exchanges(fabric, {"all": 1.0}, 2)
    assert keys_of([Column("", fabric, {"predicted": run})]) == ["all", "paler: received"]


def test_a_bar_is_as_long_as_the_server_was_busy() -> None:
    fabric = rail_fabric(3, 1)
    runs = {"predicted": exchanges(fabric, {"long": 3.0, "short": 1.0}, 2)}
    (axes,) = timeline([Column("", fabric, runs)], "title", ["credit"]).axes
    pixels = pixels_of(axes)
    blue = np.all(np.isclose(pixels, [int(COLLECTIVES[0][i : i + 2], 16) / 255 for i in (1, 3, 5)]), axis=2)
    lines = np.flatnonzero(blue.any(axis=1))
    assert blue[lines[0]].mean() == pytest.approx(0.75, abs=0.01)
    assert blue[lines[0], : blue.shape[1] // 2].all()
    # In the upper lane of h0 alone: h1 received, which is paler, and h2 did nothing.
    assert len(lines) < len(pixels) / 3


def test_who_only_waits_is_hatched_and_the_ocses_of_a_dead_node_are_dark() -> None:
    experiment = dying_ring(KHopRing(5, 2, 2), 6, 10**9, Dying((1,), "shrink", 0.4, 1e-3, 1), gpu_bps=6.4e12)
    run = predict(experiment)
    column = Column("", experiment.fabric, {"predicted": run})
    (axes,) = timeline([column], "title", ["credit"]).axes
    rows = np.split(pixels_of(axes), len(column.rows))
    at_s = run.events.set_index("what")["at_s"] / run.iteration_s
    middle = slice(*(round(at_s[what] * rows[0].shape[1]) for what in ("failed", "detected")))

    def share(row: int, colour: str) -> float:
        """Return how much of a row has a colour while a node is dead and nobody knows, gaps aside."""
        return float(np.isclose(rows[row][:-GAP_PIXELS, middle], to_rgb(colour)).all(axis=2).mean())

    assert share(column.rows.index("h2"), WAITS) == pytest.approx(3 / 8, abs=0.03), "of the dead node"
    assert share(column.rows.index("h8"), WAITS) == 0, "spare"
    assert share(column.rows.index("n1b0"), DARK) > 0.98
    assert share(column.rows.index("n0b1"), DARK) == 0
    assert "waits for light or a link" in keys_of([column])


def test_many_servers_share_rows_and_many_collectives_colours() -> None:
    fabric = rail_fabric(4 * MOST_ROWS, 1)
    nodes = {f"layer[{number}]/{what}": 1.0 for number in range(9) for what in ("tokens", "weights")}
    run = exchanges(fabric, nodes, 4 * MOST_ROWS)
    column = Column("", fabric, {"predicted": run})
    assert len(column.rows) == MOST_ROWS
    assert column.rows[:2] == ["h0 ..", "h4 .."]
    assert keys_of([column]) == ["layer/tokens", "layer/weights", "paler: received"]


def test_a_collective_has_one_colour_whichever_starts_first() -> None:
    fabric = rail_fabric(2, 1)
    run = exchanges(fabric, {"a": 1.0, "b": 1.0}, 2)
    messages, tasks = (
        table.assign(**{name: table[name].to_numpy()[::-1] for name in ("start_s", "end_s")})
        for table in (run.messages, run.tasks)
    )
    other = changed(run, messages=messages, tasks=tasks)
    assert other.messages.set_index("node")["start_s"].to_dict() == {"a": 1.0, "b": 0.0}
    keys = [keys_of([Column("", fabric, {"predicted": each})]) for each in (run, other)]
    assert keys == [["a", "b", "paler: received"]] * 2


def test_what_takes_least_of_too_many_collectives_is_others() -> None:
    fabric = rail_fabric(2, 1)
    nodes = {name: 1.0 + index for index, name in enumerate("abcdefghijk")}
    names = keys_of([Column("", fabric, {"predicted": exchanges(fabric, nodes, 2)})])
    assert names == [OTHERS, *"efghijk", "paler: received"]
    assert len(names) == MOST_COLOURS + 1


def test_a_node_may_have_any_name() -> None:
    case = ring()
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    name = r"$\frac$ <b> 100 % _"
    renamed = {"node": {"gradients": name}}
    named = changed(run, tasks=run.tasks.replace(renamed), messages=run.messages.replace(renamed))
    column = Column(name, case.fabric, {name: named})
    assert name in keys_of([column])
    assert image_of(timeline([column], name, ["tcp"]), "png").startswith(b"\x89PNG")


def test_outcomes_of_a_workload_stand_beside_each_other_and_one_that_is_void_says_so() -> None:
    outcomes = with_verdict(small_outcomes(seeds=1)[:2], VOID, 1)
    outcomes[0] = replace(outcomes[0], verdict=Verdict("faithful"))
    figure = timeline_of(outcomes)
    titles = [axes.get_title(loc="left").partition(":")[0] for axes in figure.axes]
    assert titles == ["ecmp, emulated", "ecmp, predicted", "rails, emulated (void)", "rails, predicted"]
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_a_run_that_takes_far_longer_than_the_others_goes_on() -> None:
    fabric = rail_fabric(2, 1)
    columns = [
        Column(f"{took_s:g}", fabric, {"predicted": exchanges(fabric, {"all": took_s}, 2)})
        for took_s in (1.0, 1.0, 9.0)
    ]
    figure = timeline(columns, "title", ["credit"])
    assert [axes.get_title(loc="left").endswith("goes on") for axes in figure.axes] == [False, False, True]
    assert figure.axes[0].get_xlim()[1] == pytest.approx(2.5)


def test_a_run_in_which_nothing_took_time_is_drawn() -> None:
    fabric = rail_fabric(1, 1)
    none = exchanges(fabric, {"all": 0.0}, 1)
    assert image_of(timeline([Column("", fabric, {"predicted": none})], "title", ["tcp"]), "png")
