"""What `infinitehbd_dcn` says of its outcomes: bytes over ToR uplinks beside the orchestrator's figures."""

from collections.abc import Callable, Sequence

from controller.schedulers.infinitehbd import cut_nodes, deployment_line
from scenarios._infinitehbd.crossing import Crossing, Setting, crossed_share
from testbed.report.page import Block, Findings, Line, Sheet, counted
from testbed.run.outcome import Outcome


def crossing_findings(points: Sequence[Crossing]) -> Callable[[Sequence[Outcome]], Findings]:
    """Return what makes a table of the outcomes of points."""
    of_experiment = {(point.experiment.job.name, point.placement): point for point in points}

    def found(outcomes: Sequence[Outcome]) -> Findings:
        blocks: dict[str, list[Line]] = {}
        for outcome in outcomes:
            experiment = outcome.experiment
            point = of_experiment[experiment.job.name, experiment.label]
            blocks.setdefault(f"{point.figure}, {point.setting.share:.0%} of the GPUs", []).append(
                Line(_cells(point, outcome), outcome.verdict.word)
            )
        return Findings([_sheet(points[0].setting, blocks)])

    return found


def _cells(point: Crossing, outcome: Outcome) -> list[str]:
    fabric = outcome.experiment.fabric
    emulated = outcome.emulated
    return [
        point.placement,
        outcome.experiment.transport_name,
        outcome.verdict.word,
        f"{100 * point.share:.2f}",
        f"{100 * crossed_share(outcome.predicted, fabric):.2f}",
        f"{100 * crossed_share(emulated, fabric):.2f}" if emulated else "-",
    ]


def _sheet(setting: Setting, blocks: dict[str, list[Line]]) -> Sheet:
    tree = setting.tree
    cuts = cut_nodes(deployment_line(tree), setting.faulty, setting.hops)
    cut = (
        f" Groups end at {counted(len(cuts), 'node')} that would light both paths of a bundle."
        if cuts
        else ""
    )
    return Sheet(
        ("crosses ToRs [%]", "transport", "verdict"),
        ("orchestrator", "predicted", "emulated"),
        [Block(lines, title) for title, lines in blocks.items()],
        f"Share of bytes over uplinks of ToRs, beside the orchestrator's own figure. {tree.nodes} nodes, "
        f"{tree.tor_nodes} under a ToR (2 is fitted to the paper), {len(setting.faulty)} faulty, "
        f"K = {setting.hops}, TP-{setting.tp_gpus}. Shuffled: the unconstrained groups in random order, "
        f"paired as they come.{cut if cuts else ''}",
    )
