"""The trust tree: questions to ask of a row of results, in order, and the meaning of each answer."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from testbed.report.palette import INK, fixed_canvas, styled
from testbed.trust.agreement import AGREES_FROM, AGREES_TO

STOP, CARE, GO, MODEL = "#c0262d", "#b07d00", "#1f7a4d", "#2457a6"


@dataclass(frozen=True)
class Branch:
    """A question, and what follows from the answer that leaves the trunk."""

    question: str
    answer: str
    """The answer that leads to the end; any other leads to the next question."""
    end: str
    """Its meaning, and the next step."""
    colour: str
    goes_on: bool = False
    """True where the reader asks the next question all the same."""


BRANCHES = (
    Branch(
        "Is the verdict unsound?",
        "yes",
        "No number: the audit found a contradiction, such as bytes that were not owed.\n"
        "Report it with run.json; the report names the row that proves it.",
        STOP,
    ),
    Branch(
        "Is the verdict void?",
        "yes",
        "Not a result: the machine could not keep up.\n"
        "End what else runs on it, or lower --emulated-rate, and run again.",
        STOP,
    ),
    Branch(
        "Is the verdict model?",
        "yes",
        "A prediction: nothing was emulated, so no packets and no queues are in it.\n"
        "Compare placements and schedules by it; leave --model-only out to test it.",
        MODEL,
    ),
    Branch(
        "Is the verdict strained?",
        "yes",
        "The machine was near its limit. Read the reason below the table, and repeat the run\n"
        "on an idle machine or at a lower --emulated-rate before you quote the number.",
        CARE,
        goes_on=True,
    ),
    Branch(
        "Is CCT / model marked ! ?",
        "yes",
        f"A finding: the CCT is not {AGREES_FROM:.2f} to {AGREES_TO:.2f} times the prediction.\n"
        "Read 'Where the time went' in the report, and explain it before you quote it.",
        CARE,
        goes_on=True,
    ),
    Branch(
        "How like the real network?",
        "unlike",
        "Quote ratios of schemes, beside the bound and the prediction, but no queues,\n"
        "losses or tails. The report lists what is not kept; --dry-run shows it beforehand.",
        CARE,
    ),
    Branch(
        "",
        "partly",
        "Quote ratios of schemes, and CCT / bound. Queues and windows act as in the real\n"
        "network; name the numbers that are not kept.",
        GO,
    ),
    Branch(
        "",
        "alike",
        "Every dimensionless number is within a factor of 2 of the real network's:\n"
        "quote the times, with their spread over the seeds.",
        GO,
    ),
)
"""From the first question of a row to the last."""


@styled
def trust_tree() -> Figure:
    """Return the tree: questions down the left, ends on the right."""
    figure = fixed_canvas(9.0, 0.72 * len(BRANCHES) + 0.95, "May I trust this number?")
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.93))
    axes.set(xlim=(0, 9.0), ylim=(-len(BRANCHES) + 0.45, 1.05))
    axes.set_axis_off()
    _box(axes, (0.1, 0.62), 2.5, 0.32, "a row of results", INK, bold=True)
    questions = [line for line, branch in enumerate(BRANCHES) if branch.question]
    for line, branch in enumerate(BRANCHES):
        y = -line
        _box(axes, (3.45, y - 0.3), 5.45, 0.6, branch.end, branch.colour)
        if branch.question:
            _box(axes, (0.1, y - 0.2), 2.5, 0.4, branch.question, INK)
            _arrow(axes, (1.35, y + (0.62 if line == 0 else 0.8)), (1.35, y + 0.2))
            _arrow(axes, (2.6, y), (3.45, y), branch.answer)
        else:
            axes.plot([1.35, 1.35], [y + (0.8 if line - 1 in questions else 1), y], color=INK, linewidth=1)
            _arrow(axes, (1.35, y), (3.45, y), branch.answer)
        if line + 1 in questions:
            word = "no, or afterwards" if branch.goes_on else "no"
            axes.text(1.43, y - 0.33, word, fontsize=7.5, va="center", color="#555555")
    return figure


def _box(
    axes: Axes,
    corner: tuple[float, float],
    wide: float,
    high: float,
    text: str,
    colour: str,
    *,
    bold: bool = False,
) -> None:
    shape = "round,pad=0,rounding_size=0.06"
    axes.add_patch(
        FancyBboxPatch(corner, wide, high, shape, facecolor="white", edgecolor=colour, linewidth=1.2)
    )
    x, y = corner[0] + (wide / 2 if bold else 0.1), corner[1] + high / 2
    weight, place = ("bold", "center") if bold else ("normal", "left")
    axes.text(x, y, text, va="center", ha=place, fontsize=8.2, color=INK, weight=weight, linespacing=1.35)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], word: str = "") -> None:
    style = {"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0, "linewidth": 1}
    axes.annotate("", end, start, arrowprops=style)
    if word:
        axes.text(end[0] - 0.42, end[1] + 0.09, word, ha="center", va="bottom", fontsize=7.5, color="#555555")
