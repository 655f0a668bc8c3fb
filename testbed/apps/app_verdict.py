"""The verdict of an application's run: whether this machine was able to carry what its programs sent.

It is that of any run (`testbed.trust.fidelity`), with two differences. No engine of lightrail's sends, so
there is none that could be late. And programs compute on the CPUs that forward their packets: OpenMPI's ranks
spin while they wait, so that something waits for a CPU all of the time, whatever the network does. What
counts is whether switches had to wait (`testbed.trust.evidence.Watch.switch_wait`). Open vSwitch runs before
any program, and the kernel says for how long its threads were ready and had no CPU; where packet switches
route, `testbed.machine.pulse` says how late the kernel was.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from testbed.trust.control import Control
from testbed.trust.fidelity import (
    CLOCK_STEP,
    LINK_RATES,
    SWITCH_CPU,
    SWITCH_DROPS,
    SWITCH_STALL,
    TOO_SLOW,
    Limit,
    controlled,
    verdict,
)
from testbed.trust.outcome import Measures, Verdict

WAIT_STRAINED, WAIT_VOID = 0.10, 0.30
"""The share of the time that switches may wait for a CPU. Beside other work an all-to-all between 4 hosts
of 2 NICs had 0.09, and took 1.04 times as long as the generator's and 1.05 times as long as predicted."""
APP_ADVICE = "run fewer or smaller processes, or lower --emulated-rate"


def app_verdict(
    measures: Measures,
    switch_wait: float,
    controls: Sequence[Control | None],
    *,
    has_packets: bool,
    duration_s: float,
    unmet: Sequence[str] = (),
    stopped: str = "",
) -> Verdict:
    """Return the verdict of an application's run, and if it is not faithful why and what to change.

    Parameters
    ----------
    measures
        What was seen of the machine; NaN is unknown.
    switch_wait
        The share of the run in which switches waited for a CPU, 0..1; NaN if unknown.
    controls
        The known-answer controls before and after it; None where one could not be carried out.
    has_packets
        Whether packet switches join hosts, so that there are links to sample and controls to carry out.
    duration_s
        How long it ran, at emulated scale [s].
    unmet
        Settings that did not take effect, a sentence each.
    stopped
        Why it was ended before its own end; such a run is void.
    """
    if stopped:
        return Verdict("void", (stopped,), "let it run to its end")
    waited = Limit(
        lambda _seen: switch_wait,
        WAIT_STRAINED,
        WAIT_VOID,
        "switches waited for a CPU {:.0%} of the time{seen.busy_text}",
        "how long switches waited for a CPU (the daemon is the machine's own)",
    )
    links = (LINK_RATES,) if has_packets else ()
    limits = (*links, SWITCH_DROPS, TOO_SLOW, waited, SWITCH_CPU, SWITCH_STALL, CLOCK_STEP)
    judged = verdict(measures, measured_s=duration_s, bound_s=0.0, unmet=unmet, limits=limits)
    if judged.word == "model":
        return judged
    judged = replace(judged, advice=APP_ADVICE if judged.advice else "")
    for control in controls if has_packets else ():  # no application runs beside it: its advice stays
        judged = controlled(judged, control)
    return judged


def worst_error(controls: Sequence[Control | None]) -> float:
    """Return the error of the worst control; NaN if there was none."""
    errors = [control.error for control in controls if control]
    return max(errors, key=abs, default=math.nan)
