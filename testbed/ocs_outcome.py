"""What came of a schedule that was executed: its outcome, and what it did to the machine.

Beside what `testbed.fidelity` looks at, two things decide here: how late the engine heard of light,
and how much longer than the prediction all took; guard times and slow switches show there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from testbed.emulate import Emulation
from testbed.fidelity import STRAINED_RETRANSMITS, Watch, verdict
from testbed.means import Point, points
from testbed.network import Network
from testbed.ocs_executor import Execution, execute, predict_execution
from testbed.ocs_plan import CircuitExperiment
from testbed.outcome import Measures, Outcome, Verdict, summary_row
from traffic.engine import Health
from traffic.metrics import communication_s

BIG_SWITCH = "big switch"
ADVICE = {
    "void": "lower --emulated-rate, or end what else runs on this machine",
    "strained": "raise --slot-ms, or repeat it on an idle machine",
}


@dataclass(frozen=True, eq=False)
class Executed:
    """A schedule that was executed, and whether to believe it."""

    execution: Execution
    outcome: Outcome
    """Its records, prediction and verdict, as of any experiment."""


def executed(experiment: CircuitExperiment, network: Network, broken: Sequence[str] = ()) -> Executed:
    """Execute a schedule over a network booted at its scale, and judge it.

    Parameters
    ----------
    experiment, network
        As of `execute`.
    broken
        Settings that did not take effect, a sentence each.
    """
    with Watch(network) as watch:
        execution = execute(experiment, network)
    records, predicted = execution.records, predict_execution(experiment, execution.delays_s)
    measures = _measures(watch, execution)
    judged = _judged(execution, Outcome(experiment.plain, predicted, records, measures=measures), broken)
    return Executed(execution, Outcome(experiment.plain, predicted, records, judged, measures))


def executed_row(result: Executed) -> dict[str, object]:
    """Return an execution as a row of ``summary.csv``; times are real seconds, bytes emulated."""
    execution, experiment = result.execution, result.execution.experiment
    weights = [slot.weight for slots in experiment.schedule.switches for slot in slots]
    return {
        **summary_row(result.outcome),
        "bound_s": experiment.lower_bound_s,
        "ocses": len(experiment.ocses),
        "device": experiment.darkness.device,
        "delay_s": experiment.delay_s,
        "delay_varies": experiment.darkness.varies,
        "partial": experiment.partial,
        "makespan_s": experiment.schedule.makespan,
        "over_predicted": execution.cct_s / communication_s(result.outcome.predicted),
        "slots": len(weights),
        "shortest_slot_s": min(weights),
        "late_bytes": execution.undelivered_bytes[0],
        "missing_bytes": execution.undelivered_bytes[-1],
        "resent_bytes": execution.lost_bytes,
        "used": execution.slot_utilisation,
        "guard": execution.guard_loss,
        "overhead_p99_s": execution.overhead_s,
    }


def switched_row(outcome: Outcome, ocses: int) -> dict[str, object]:
    """Return the big switch that stands for some OCSes as a row beside theirs."""
    predicted_s = communication_s(outcome.predicted)
    over = communication_s(outcome.best) / predicted_s
    return {**summary_row(outcome), "scheme": BIG_SWITCH, "ocses": ocses, "over_predicted": over}


def circuit_points(table: pd.DataFrame) -> list[Point]:
    """Return the points of a summary, all as they come, with busbw relative to the big switch."""
    order = list(dict.fromkeys(zip(table["workload"], table["scheme"], strict=True)))
    return sorted(points(table, BIG_SWITCH), key=lambda point: order.index((point.workload, point.scheme)))


def _judged(execution: Execution, seen: Outcome, broken: Sequence[str]) -> Verdict:
    """Return whether to believe an execution; senders who do not drain lose light by their own choice.

    It is void where a reconfiguration failed or a connection was lost, also if all bytes came later.
    """
    failed = [entry.error for log in execution.logs.values() for entry in log if entry.error]
    judged = verdict(
        replace(seen.measures, retransmits=0),
        measured_s=communication_s(seen.best),
        predicted_s=communication_s(seen.predicted),
        bound_s=execution.lower_bound_s,
        unmet=[*broken, *failed],
    )
    lost = seen.measures.retransmits / seen.measures.packets
    if execution.experiment.meeting == "drain" and lost > STRAINED_RETRANSMITS and judged.word == "faithful":
        judged = Verdict("strained", (f"{lost:.1%} of the datagrams were lost although senders drained",))
    return replace(judged, advice=ADVICE.get(judged.word, ""))


def _measures(watch: Watch, execution: Execution) -> Measures:
    """Return what an execution did to the machine; what was lost is known datagram by datagram.

    Open vSwitch's own count of packets without a rule is of no use here: when rules change it counts
    there what the old ones carried, some hundred packets that all arrived.
    """
    experiment = execution.experiment
    payload = execution.payload_bytes
    emulated_s = experiment.dilation.emulated_s(execution.cct_s)
    seen = watch.measures(
        Emulation(execution.records, {}, Health(payload_bytes=payload), emulated_s), math.nan
    )
    lost = -(-execution.lost_bytes * execution.datagrams // payload)
    return replace(
        seen,
        retransmits=lost,
        packets=execution.datagrams,
        switch_drops=0,
        lateness_s=execution.lateness_s,
    )
