"""Fidelity: whether this machine was able to carry an emulation, by its own health and nothing else.

Before a run a sample of links is measured against its nominal rate (`testbed.network.link_sample`), and
a control whose duration is known is carried out (`testbed.trust.control`). During the run the machine's
counters say whether something waited for a CPU, stood still, or lost packets where no queue was full
(`testbed.trust.evidence`). What a verdict needs and does not know makes it strained at best.

How far the result is from its prediction decides nothing here (`testbed.trust.agreement`). Only what beats
its lower bound is void: something was not measured.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from testbed.live.light_log import LightLog
from testbed.machine.wall_clock import STEP_S
from testbed.trust.control import Control
from testbed.trust.outcome import Measures, Outcome, Verdict, Word

BELOW_BOUND = 0.98
FULL_CORE = 0.97
"""Of one thread's CPU. Open vSwitch polls all ports for each packet, so at two fifths of what it forwards at
most it used 0.75 to 0.91 in runs within 3 % of their prediction."""
SHORT_S = 0.1
"""What takes less at emulated scale shows how a run starts, and little else [s]."""
ADVICE: dict[Word, str] = {
    "void": "lower --emulated-rate, or end what else runs on this machine",
    "strained": "repeat it on an idle machine, or lower --emulated-rate",
}
LIGHT_ADVICE: dict[Word, str] = {
    "void": ADVICE["void"],
    "strained": "raise --slot-ms, or repeat it on an idle machine",
}
WORST_LAST: tuple[Word, ...] = ("faithful", "strained", "void", "unsound")
NOTHING_SENT = "no byte crossed the network"


@dataclass(frozen=True)
class Limit:
    """What one measure of the machine may be."""

    value: Callable[[Measures], float]
    strained: float
    """Above this a result is strained."""
    void: float
    """Above this it is void."""
    sentence: str
    """The sentence on a value above; it may name any of the `Measures`, as ``seen``."""
    unknown: str
    """What is said to be unknown where there is no value."""


def _share(count: float, packets: float) -> float:
    return count / max(packets, 1)


TOO_SLOW = Limit(
    lambda seen: _share(seen.socket_drops, seen.packets),
    0.0,
    1e-3,
    "switches were too slow for {:.2%} of the packets",
    "what switches were too slow for (its sockets are the machine's own)",
)
WAITED = Limit(
    lambda seen: seen.cpu_pressure,
    0.60,
    0.80,
    "something waited for a CPU {:.0%} of the time{seen.busy_text}",
    "CPU pressure (the kernel has no PSI)",
)
SWITCH_CPU = Limit(
    lambda seen: seen.switch_cpu,
    FULL_CORE,
    math.inf,
    "switches used {:.2f} CPUs, about all that one thread can",
    "CPU of switches (the daemon is the machine's own)",
)
ENGINE_CPU = Limit(
    lambda seen: seen.engine_cpu,
    FULL_CORE,
    math.inf,
    "the engine used {:.2f} CPUs, about all that one thread can",
    "CPU of the engine",
)
SWITCH_STALL = Limit(
    lambda seen: seen.switch_stall_s,
    0.10,
    0.40,
    "switches could not run for {:.2f} s",
    "stalls of switches (the daemon is the machine's own)",
)
LATE = Limit(
    lambda seen: seen.lateness_s, 0.01, 0.05, "the engine was {:.3f} s late", "how late the engine was"
)
CLOCK_STEP = Limit(
    lambda seen: abs(seen.clock_step_s),
    STEP_S,
    math.inf,
    "this machine's clock was set by {:.3f} s during the run, or it was suspended",
    "steps of this machine's clock",
)
ALWAYS = (TOO_SLOW, WAITED, SWITCH_CPU, ENGINE_CPU, SWITCH_STALL, LATE, CLOCK_STEP)
"""Whatever carries the bytes. A port's buffer bridges 0.1 s at 160 Mbit/s; 0.5 s show in any result."""
LINK_RATES = Limit(
    lambda seen: abs(seen.worst_link_error),
    0.04,
    0.10,
    "a sampled link is {:.1%} off its rate",
    "the links' rates (none was sampled)",
)
SWITCH_DROPS = Limit(
    lambda seen: _share(seen.switch_drops, seen.packets),
    0.0,
    1e-3,
    "switches dropped {:.2%} of the packets",
    "drops in switches (they did not answer)",
)
ENGINE_STALL = Limit(
    lambda seen: seen.stall_s, 0.10, 0.40, "the engine stood still for {:.2f} s", "stalls of the engine"
)
LATE_PACKETS = Limit(
    lambda seen: seen.late_packets,
    4.0,
    10.0,
    "the engine was late by {:.1f} packets of a NIC",
    "how many packets the engine was late by",
)
"""Whatever the rate: beside another program all-to-alls took 1.04 to 1.07 times their prediction when it was
late by 4 to 6, and 1.2 to 1.4 times by 8 to 12, which at 100 Mbit/s a NIC is less than 10 ms. An engine that
is too slow for its rate is late by 4 to 6 too, at 144 Mbit/s 3 ms: they took 1.1 to 1.4 times as long."""
LATE_CHOICE = replace(LATE_PACKETS, strained=1.5, void=4.0)
"""The same where packets choose their paths as they go: NICs hold 2 of them, and 12 of placed ones. Uniform
all-to-alls under `nscc` with REPS took 1.25 times their prediction with the engine late by 0.2 to 0.9,
1.34 times by 1.6, and 1.58 times by 1.8 to 2.8. At an automatic rate it is late by 0.1 to 1.3."""
AWAY = Limit(
    lambda seen: seen.away,
    0.03,
    0.10,
    "NICs had nothing to send for {:.1%} of the time, as the engine was away",
    "for how long the engine was away",
)
"""As much as a control may be off. An all-to-all at 65 Mbit/s a NIC took 1.08 times as long with its engine
stopped for 50 of each 600 ms, and 1.05 times for 20 of each 220 ms: too seldom for its lateness."""
PACKETS = (LINK_RATES, SWITCH_DROPS, ENGINE_STALL, LATE_PACKETS, AWAY, *ALWAYS)
"""Over packet switches."""
CHOSEN = tuple(LATE_CHOICE if limit is LATE_PACKETS else limit for limit in PACKETS)
"""The same for schemes that choose as they go."""
LIT = PACKETS[1:]
"""The same over circuits that stay lit, whose links are not sampled: light does not queue."""
DRAINED = Limit(
    lambda seen: _share(seen.retransmits, seen.packets),
    0.02,
    math.inf,
    "{:.1%} of the datagrams were lost although senders drained",
    "lost datagrams",
)
BEHIND_STRAINED, BEHIND_VOID = 0.08, 0.30
"""How much longer than its slots a schedule may take, as a share: what senders and OCSes are late."""
LATE_SHARE = 0.01
"""How much of all bytes may miss its slots where packets carry the rest: a datagram of each message may."""
CONTROL = Limit(
    lambda seen: abs(seen.control_error),
    0.03,
    0.10,
    "traffic of a known duration was {:.1%} off it",
    "a control (none was carried out)",
)
PRESSED = replace(WAITED, sentence="during a control something waited for a CPU {:.0%} of the time")


def verdict(
    measures: Measures,
    *,
    measured_s: float,
    bound_s: float,
    emulated_s: float = math.inf,
    unmet: Sequence[str] = (),
    limits: Sequence[Limit] = PACKETS,
) -> Verdict:
    """Return whether the machine was able to emulate, and if not why and what to change.

    Parameters
    ----------
    measures
        What was seen of the machine; NaN is unknown.
    measured_s, bound_s
        The CCT, and the least that the job's own patterns take, what they pass on included [real seconds].
    emulated_s
        The prediction at emulated scale [s]; a short run is advised of that.
    unmet
        Settings that did not take effect, a sentence each.
    limits
        What the measures are held to.
    """
    if measures.packets == 0:
        return Verdict("model", (NOTHING_SENT,))
    void = [*unmet[:3], *_exceeded(measures, limits, void=True)]
    if not math.isfinite(measured_s):
        void.append(f"it took {measured_s:g} s, which was not measured")
    if measured_s < BELOW_BOUND * bound_s:
        void.append(
            f"it took {measured_s / bound_s:.2f} of the least time possible, so something was not measured"
        )
    if void:
        return Verdict("void", tuple(void), _advice("void", emulated_s))
    strained = [*_exceeded(measures, limits, void=False), *_unknown(measures, limits)]
    if math.isnan(bound_s):
        strained.append("unknown: the lower bound")
    if strained:
        return Verdict("strained", tuple(strained), _advice("strained", emulated_s))
    return Verdict("faithful")


def verdict_of_light(
    measures: Measures, light: LightLog, *, measured_s: float, unmet: Sequence[str] = ()
) -> Verdict:
    """Return whether a schedule's result can be believed; senders who do not drain lose light by choice.

    There is no rate to sample: how late the engine heard of light, what was lost, what missed its slots, and
    how much longer than these all took are the evidence. A schedule covers its demand, so that what misses
    its slots does so by the machine's fault, whatever that cost. It is void where a reconfiguration failed
    or a connection was lost, also if all bytes came later. What is sent into a port that has failed is lost.
    Parameters are those of `verdict`.
    """
    failed = [entry.error for log in light.logs.values() for entry in log if entry.error]
    experiment = light.experiment
    drains = experiment.sending.meeting == "drain" and not experiment.failing
    behind = Limit(
        lambda _seen: 0.0 if experiment.spraying else light.behind,
        BEHIND_STRAINED,
        BEHIND_VOID,
        "the schedule took {:.0%} longer than its slots",
        "how long the schedule took",
    )
    judged = verdict(
        measures,
        measured_s=measured_s,
        bound_s=light.lower_bound_s,
        unmet=[*unmet, *failed],
        limits=(*ALWAYS, DRAINED, _missed(light), behind) if drains else ALWAYS,
    )
    return replace(judged, advice=LIGHT_ADVICE.get(judged.word, ""))


def _missed(light: LightLog) -> Limit:
    """Return what is said of bytes that missed their slots: how many, how late, and what that cost.

    Its value is the share of the schedule that they came after it; with packets beside circuits, their share.
    """
    late = light.late_bytes
    missed = f"{late:,} bytes missed their slots, and light was heard of up to {light.latest_s:.4f} s late"
    if light.experiment.spraying:
        share = late / max(light.payload_bytes, 1)
        return Limit(lambda _seen: share, LATE_SHARE, math.inf, missed, "late bytes")
    after = (
        f"the last of them came {light.behind_s:.3f} s after the slots, {light.behind:.0%} of the schedule"
    )
    share = light.behind if late else -math.inf
    return Limit(lambda _seen: share, -1.0, BEHIND_VOID, f"{missed}; {after}", "late bytes")


def with_control(outcome: Outcome, control: Control | None) -> Outcome:
    """Return an outcome judged by one more control beside it (`controlled`).

    Over the circuits of a rule, and where nothing was sent, a control says nothing.
    """
    if outcome.verdict.word == "model" or outcome.experiment.is_once_lit:
        return outcome
    seen = control.error if control else math.nan
    worst = max(outcome.measures.control_error, seen, key=_size)
    return replace(
        outcome,
        verdict=controlled(outcome.verdict, control),
        measures=replace(outcome.measures, control_error=worst),
    )


def controlled(before: Verdict, control: Control | None) -> Verdict:
    """Return a verdict judged by one more control: the worse word counts, all reasons stay."""
    seen, limits = Measures(), [CONTROL]
    if control:
        seen = Measures(control_error=control.error, cpu_pressure=control.cpu_pressure)
        limits = [CONTROL, PRESSED]
    judged = verdict(seen, measured_s=0.0, bound_s=0.0, limits=limits)
    worse = max(before, judged, key=lambda each: WORST_LAST.index(each.word))
    reasons = tuple(dict.fromkeys((*before.reasons, *judged.reasons)))
    return replace(worse, reasons=reasons)


def _size(error: float) -> float:
    return -1.0 if math.isnan(error) else abs(error)


def _advice(word: Word, emulated_s: float) -> str:
    """Return what to change; a trace that is too small is so at any rate."""
    if emulated_s < SHORT_S:
        return f"send more bytes: these take under {SHORT_S:g} s here, too little to be timed"
    return ADVICE[word]


def _exceeded(measures: Measures, limits: Sequence[Limit], *, void: bool) -> list[str]:
    """Return a sentence for each measure above its limit."""
    return [
        limit.sentence.format(limit.value(measures), seen=measures)
        for limit in limits
        if limit.value(measures) > (limit.void if void else limit.strained)
    ]


def _unknown(measures: Measures, limits: Sequence[Limit]) -> list[str]:
    return [f"unknown: {limit.unknown}" for limit in limits if math.isnan(limit.value(measures))]
