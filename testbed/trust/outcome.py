"""What came of an experiment: its run on both backends, the bound, and the verdict."""

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Literal

import pandas as pd

from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.live.light_log import LightLog
from testbed.live.sources import Queueing
from testbed.trust.agreement import findings, nic_busy
from testbed.trust.similitude import Number, likeness, message_packets
from topologies.fabric import Port
from traffic.bounds import NOTHING_LENT
from traffic.job import Job
from traffic.job_bounds import communication_bound_s, job_bound_s, node_bounds_s, together_bound_s
from traffic.metrics import (
    busbw_gbytes_s,
    cct,
    collective_times_s,
    communication_s,
    load_mse,
    nic_received_bytes,
    nic_sent_bytes,
)
from traffic.transports.reordering import Reordering

SHARES = ("marked", "recycled", "moved")
"""What the summary has of a reactive scheme: chunks that met congestion, chunks whose entropy was used again,
chunks before which the path was changed."""
ORDER = ("overtaken", "overtaken_p50", "overtaken_p99", "overtaken_max", "held_bytes")
"""What the summary has of how packets overtook each other: the share that was overtaken (RFC 4737), by how
many packets the median one was, the 99th percentile and the most; and the most that a receiver that delivers
in order would hold of one message [real bytes]."""
QUEUES = ("queue_p50_s", "queue_p99_s", "queue_max_s", "packets_marked")
"""The columns of the summary about the queues that packets met: the median delay, the 99th percentile and the
largest [real s]; and how many packets were marked."""
Word = Literal["faithful", "strained", "void", "unsound", "model"]
MEASURED = (
    "cct_s",
    "iteration_s",
    "cct_mean_s",
    "cct_p80_s",
    "cct_p95_s",
    "cct_p99_s",
    "busbw_gbytes_s",
    "mse_sent",
    "mse_received",
    "predicted_s",
    "over_predicted",
    "free_s",
    "over_free",
)
"""The columns of a summary that are empty where a run is unsound."""
LEFT_OUT: tuple[Word, ...] = ("void", "unsound")
"""The words of what is left out of means and claims."""
NOT_POSSIBLE = "this is an error of lightrail, or of code of your own: please report it with run.json"
"""What to do about what is unsound."""


@dataclass(frozen=True)
class Verdict:
    """Whether the machine was able to emulate; whether the model agrees is another question (`agreement`)."""

    word: Word
    """``faithful``; ``strained``: look at the reason; ``void``: the machine could not keep up;
    ``unsound``: its tables say what cannot be, so nothing of it is known; ``model``: nothing was emulated, or
    no byte crossed the network."""
    reasons: tuple[str, ...] = ()
    """Why it is not faithful, a sentence each."""
    advice: str = ""
    """What to change."""


@dataclass(frozen=True)
class Measures:
    """What was seen of the machine during a run, at emulated scale; NaN is unknown, never 0.

    Counts are whole numbers where they are known: an int, which a summary writes without a fraction.
    """

    retransmits: int | float = math.nan
    """Packets that were sent again, by TCP or since they counted as lost; over circuits datagrams."""
    packets: int | float = math.nan
    """Packets that the servers' NICs sent."""
    queue_drops: int | float = math.nan
    """Packets that full port queues dropped (qdisc)."""
    queue_marks: int | float = math.nan
    """Packets that port queues marked (ECN), for a congestion control that needs it."""
    socket_drops: int | float = math.nan
    """Packets that switches were too slow to take: Open vSwitch (AF_PACKET), or a kernel that routes."""
    switch_drops: int | float = math.nan
    """Packets that switches counted as dropped or in error, those without a rule or a route among them."""
    cpu_pressure: float = math.nan
    """Share of the run in which something waited for a CPU (/proc/pressure/cpu, ``some``), 0..1."""
    switch_cpu: float = math.nan
    """CPUs that Open vSwitch used; where packet switches route, the share of the CPU that forwarded most."""
    engine_cpu: float = math.nan
    """Share of a CPU that the engine used, which has one thread, 0..1."""
    other_cpu: float = math.nan
    """CPUs that all other processes of the machine used, the controller among them."""
    switch_stall_s: float = math.nan
    """The longest time in which switches could not run though they had to [s]."""
    stall_s: float = math.nan
    """The longest that the engine was away from its events [s]."""
    lateness_s: float = math.nan
    """How long the engine kept an event waiting at most, whenever it came, but for one in ten [s]."""
    late_packets: float = math.nan
    """The same in packets of the fastest NIC; 0 where TCP carries bytes, which the kernel sends in time."""
    away: float = math.nan
    """Share of the run in which NICs had nothing to send as the engine was away, 0..1; 0 over TCP."""
    clock_step_s: float = math.nan
    """By how much the wall clock was set, or for how long the machine was suspended [s]."""
    aggregate_bps: float = math.nan
    """Payload that arrived at all servers together, over the run [bit/s]."""
    worst_link_error: float = math.nan
    """Largest deviation of the sampled links from their nominal rate, before the run."""
    control_error: float = math.nan
    """The worst known-answer control before or after the run: its time over the known one, less 1."""
    sent_over_granted: float = math.nan
    """What senders sent over what of it was granted when it was sent; NaN without grants."""
    packets_sent: int | float = math.nan
    """Datagrams that NICs sent over packet switches; NaN, as the next three, where TCP carries bytes."""
    packets_arrived: int | float = math.nan
    """Those of them that arrived and counted."""
    packets_anew: int | float = math.nan
    """Those that counted as lost, so that their bytes were sent again."""
    packets_late: int | float = math.nan
    """Those that arrived and did not count: they counted as lost, were taken back, or came twice."""

    @property
    def busy_text(self) -> str:
        """Return how many CPUs were used by what, as far as is known, behind a colon."""
        used = {"switches": self.switch_cpu, "the engine": self.engine_cpu, "all else": self.other_cpu}
        known = [f"{what} {cpus:.2f}" for what, cpus in used.items() if not math.isnan(cpus)]
        return f": of CPUs {', '.join(known)} were used" if known else ""


@dataclass(frozen=True, eq=False)
class Outcome:
    """An experiment with what was measured, what was predicted, and what is the best possible."""

    experiment: Experiment
    predicted: Run
    """By the fluid model, over the paths really taken where there was an emulation."""
    emulated: Run | None = None
    """With real packets; None for a model-only run."""
    verdict: Verdict = Verdict("model")
    """By the machine's health alone."""
    measures: Measures = field(default_factory=Measures)
    light: LightLog | None = None
    """What circuits did, if they carried it."""
    lent_bytes: Mapping[Port, float] = field(default_factory=dict)
    """What the emulation's shapers lent after each pause, as prediction and bound have it [real bytes]."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """What a reactive scheme counted: the shares of its chunks that were ``SHARES``, as far as it says."""
    wire: pd.DataFrame | None = None
    """What each circuit was seen to carry (`testbed.trust.carried`), where circuits follow the job."""
    inert: tuple[str, ...] = ()
    """Which constants of a reactive scheme could not act (`traffic.spraying.policy.NamesInert`)."""
    free: Run | None = None
    """By the fluid model with its own hash, path choice and delays, as without the emulation, but with what
    shapers lent; None where the emulation had no others, so that it is `predicted`."""
    numbers: tuple[Number, ...] = ()
    """What the emulation keeps of the real network's dimensionless numbers; none where nobody asked."""
    order: Reordering | None = None
    """How packets overtook each other, at emulated scale; None where nothing says so."""
    queueing: Queueing | None = None
    """The queues that packets met; None where TCP carries them, or none was sent."""
    machine: str = field(default_factory=platform.node)
    """Name of the machine that carried it out."""

    def __post_init__(self) -> None:
        """Call it unsound if a run of it cannot be, whatever the machine was able to."""
        audits = {name: run.audit for name, run in self.all_runs.items() if run.audit}
        found = [f"{name}: {finding}" for name, audit in audits.items() for finding in audit.findings]
        if found and self.verdict.word != "unsound":
            reasons = (*found, *self.verdict.reasons)
            object.__setattr__(self, "verdict", Verdict("unsound", reasons, NOT_POSSIBLE))

    @property
    def is_sound(self) -> bool:
        """Whether its tables may be: what is unsound has no numbers."""
        return self.verdict.word != "unsound"

    @property
    def run(self) -> Run:
        """The emulated run, or the predicted one where nothing was emulated."""
        return self.predicted if self.emulated is None else self.emulated

    @property
    def runs(self) -> dict[str, Run]:
        """The run on each backend that there was, by its name: ``emulated``, ``predicted``."""
        runs = {"emulated": self.emulated, "predicted": self.predicted}
        return {name: run for name, run in runs.items() if run is not None}

    @property
    def all_runs(self) -> dict[str, Run]:
        """All runs that there were, by the names of their fields."""
        return self.runs if self.free is None else {**self.runs, "free": self.free}

    def with_runs(self, changed: Callable[[str, Run], Run]) -> "Outcome":
        """Return the outcome with what a function makes of each of its runs, given its field's name."""
        runs = {name: changed(name, run) for name, run in self.all_runs.items()}
        emulated, free = runs.get("emulated"), runs.get("free")
        return replace(self, predicted=runs["predicted"], emulated=emulated, free=free)

    @cached_property
    def cct_s(self) -> float:
        """How long it took (`completion_s`), NaN if it is unsound [s]."""
        return completion_s(self.experiment.job, self.run) if self.is_sound else math.nan

    @cached_property
    def predicted_s(self) -> float:
        """The same as predicted [s]."""
        return completion_s(self.experiment.job, self.predicted) if self.is_sound else math.nan

    @property
    def over_predicted(self) -> float:
        """How long bytes were under way over what was predicted; NaN where nothing was."""
        return self.cct_s / self.predicted_s if self.predicted_s else math.nan

    @cached_property
    def free_s(self) -> float:
        """The same as predicted by the model's own choices alone [s]."""
        if self.free is None or not self.is_sound:
            return self.predicted_s
        return completion_s(self.experiment.job, self.free)

    @property
    def over_free(self) -> float:
        """How long bytes were under way over what the model's own choices give; NaN where nothing was."""
        return self.cct_s / self.free_s if self.free_s else math.nan

    @property
    def findings(self) -> tuple[str, ...]:
        """Where the time went if emulated and predicted disagree, a sentence each."""
        if self.emulated is None:
            return ()
        seen = self.measures
        return findings(
            self.over_predicted,
            over_free=self.over_free,
            packets=seen.packets,
            retransmits=seen.retransmits,
            queue_drops=seen.queue_drops,
            nic_busy=nic_busy(self.link_bytes, self.experiment.fabric, self.cct_s),
        )

    @cached_property
    def bound_s(self) -> float:
        """How long its bytes are under way at least [s]: `bound_s`, with what shapers lent."""
        return bound_s(self.experiment, self.lent_bytes)

    @cached_property
    def node_bounds_s(self) -> dict[str, float]:
        """How long each node takes at least, by its name [s]; ``bound_s`` is of these."""
        return node_bounds_of(self.experiment, self.lent_bytes)

    @property
    def link_bytes(self) -> dict[Port, int]:
        """How many bytes each port sent in `run`."""
        return self.run.link_bytes


def completion_s(job: Job, run: Run) -> float:
    """Return the collective completion time of a run: how long bytes were under way [s].

    Where a node starts at a time of its own, waits for it count too: it is then the time from the start of
    the job to its last end.
    """
    return run.iteration_s if job.has_starts else communication_s(run.tables)


def bound_s(
    experiment: Experiment, lent_bytes: Mapping[Port, float] = NOTHING_LENT, *, forwarded: bool = False
) -> float:
    """Return how long the job's bytes are under way at least, as `completion_s` has it [s].

    It is a bound of the fabric and of what the job owes, whatever carries it and goes beside it. Shapers may
    lend each collective ``lent_bytes``; schedules over circuits are paced without. What GPUs that a fault
    takes along send and receive does not count. With ``forwarded`` it is the least that the job's own
    patterns take, which may have GPUs pass bytes on (`traffic.job_bounds.node_bounds_s`); waits for nodes'
    own starts do not count then.
    """
    if experiment.rule and experiment.rule.bound_s and not experiment.gone:
        return experiment.rule.bound_s()
    job, fabric = experiment.job, experiment.fabric
    bounds_s = node_bounds_of(experiment, lent_bytes, forwarded=forwarded)
    if forwarded:
        return communication_bound_s(job, bounds_s)
    longest_s = (job_bound_s if job.has_starts else communication_bound_s)(job, bounds_s)
    return max(longest_s, together_bound_s(job, fabric, lent_bytes, experiment.gone))


def node_bounds_of(
    experiment: Experiment, lent_bytes: Mapping[Port, float] = NOTHING_LENT, *, forwarded: bool = False
) -> dict[str, float]:
    """Return how long each node of an experiment takes at least, by its name [s].

    Where circuits have a bound, which is of the whole job, that is the bound of its only collective.
    Parameters are those of `bound_s`.
    """
    job, rule = experiment.whole_job, experiment.rule
    bounds_s = node_bounds_s(job, experiment.fabric, lent_bytes, experiment.gone, forwarded=forwarded)
    if rule and rule.bound_s and not experiment.gone and len(job.collectives) == 1:
        bounds_s[job.collectives[0].name] = rule.bound_s()
    return bounds_s


def summary_row(outcome: Outcome) -> dict[str, object]:
    """Return an outcome as one row of ``summary.csv``; all times are real seconds."""
    experiment, fabric = outcome.experiment, outcome.experiment.fabric
    times, measured, predicted = cct(outcome.run.tables), outcome.cct_s, outcome.predicted_s
    row = {
        "workload": experiment.job.name,
        "note": experiment.job.note,
        "scheme": experiment.scheme_name,
        "circuits": experiment.circuits_name,
        "name": experiment.name,
        "transport": experiment.transport_name,
        "seed": experiment.seed,
        "fabric": experiment.fabric.name,
        "rate": experiment.dilation.rate,
        "volume": experiment.dilation.volume,
        "cct_s": measured,
        "iteration_s": outcome.run.iteration_s,
        "cct_mean_s": times.mean_s,
        "cct_p80_s": times.p80_s,
        "cct_p95_s": times.p95_s,
        "cct_p99_s": times.p99_s,
        "busbw_gbytes_s": math.nan
        if experiment.gone
        else busbw_gbytes_s(experiment.job, collective_times_s(outcome.run.tables)),
        "mse_sent": load_mse(nic_sent_bytes(outcome.link_bytes, fabric)),
        "mse_received": load_mse(nic_received_bytes(outcome.link_bytes, fabric)),
        "predicted_s": predicted,
        "predicted_as": experiment.predicted_as,
        "over_predicted": outcome.over_predicted,
        "free_s": outcome.free_s,
        "over_free": outcome.over_free,
        "findings": "; ".join(outcome.findings),
        "bound_s": outcome.bound_s,
        "audited": "; ".join(outcome.run.audit.limits or ("all",)) if outcome.run.audit else "",
        "verdict": outcome.verdict.word,
        "reasons": "; ".join(outcome.verdict.reasons),
        "advice": outcome.verdict.advice,
        "likeness": likeness(outcome.numbers) or "",
        "message_packets": message_packets(outcome.numbers),
        **asdict(outcome.measures),
        **{name: outcome.shares.get(name, float("nan")) for name in SHARES},
        **order_columns(outcome.order, experiment.dilation.volume),
        **queue_columns(outcome.queueing),
        "inert": "; ".join(outcome.inert),
        "machine": outcome.machine,
        "key": experiment.key,
        **(outcome.light.columns if outcome.light else {}),
    }
    if outcome.is_sound:
        return row
    return {**row, **dict.fromkeys(MEASURED, math.nan)}


def order_columns(order: Reordering | None, volume: float) -> dict[str, float]:
    """Return what `ORDER` names, NaN where no packet arrived; ``volume`` is emulated over real bytes."""
    if order is None or not order.packets:
        return dict.fromkeys(ORDER, math.nan)
    extents = [order.extent(share) for share in (0.5, 0.99, 1.0)]
    return dict(zip(ORDER, [order.overtaken, *extents, order.held_bytes / volume], strict=True))


def queue_columns(queueing: Queueing | None) -> dict[str, float]:
    """Return the columns that `QUEUES` names, NaN where nothing measures queues."""
    if queueing is None:
        return dict.fromkeys(QUEUES, math.nan)
    found = queueing.p50_s, queueing.p99_s, queueing.max_s, queueing.marked
    return dict(zip(QUEUES, found, strict=True))


def summary(outcomes: list[Outcome]) -> pd.DataFrame:
    """Return the summary table, a row per outcome."""
    return pd.DataFrame([summary_row(outcome) for outcome in outcomes])
