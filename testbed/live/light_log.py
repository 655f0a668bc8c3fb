"""What circuits did: the slots that were shown, what they carried, and how late and how long all was."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from controller.circuits.status import LogEntry
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import OcsPlan, plan_of
from testbed.live.programs import slot_s
from traffic.job_bounds import communication_bound_s, node_bounds_s
from traffic.transports.slots import SlotRecord


@dataclass(frozen=True, eq=False)
class LightLog:
    """What circuits did while they carried an experiment; real seconds and bytes unless said."""

    experiment: Experiment
    cct_s: float
    """From the first night to the last byte."""
    undelivered_bytes: tuple[int, ...]
    """What was missing after each round of slots, the last 0 [emulated bytes]."""
    slots: tuple[SlotRecord, ...]
    """What each slot carried [emulated seconds and bytes]."""
    logs: dict[str, list[LogEntry]]
    """What each OCS did [emulated seconds]."""
    start_s: float
    """When the first night began [emulated seconds, on the logs' clock]."""
    datagrams: int
    """How many arrived and counted."""
    payload_bytes: int
    """What these carried [emulated bytes]."""

    @property
    def slot_utilisation(self) -> float:
        """Bytes delivered over what the circuits that were lit could have carried, 0..1."""
        rate = self._plan.emulated_rate_bps / 8
        room = sum(self._lit_s(slot) * slot.circuits * rate for slot in self.slots)
        return sum(slot.delivered_bytes for slot in self.slots) / room if room else 0.0

    @property
    def guard_loss(self) -> float:
        """Share of the lit time in which nobody sends because the dark is near, 0..1."""
        lit_s = sum(map(self._lit_s, self.slots))
        sending = self.experiment.sending
        if sending.meeting != "drain" or not lit_s:
            return 0.0
        guard_s = sending.margins.guard_s
        open_s = sum(self._lit_s(replace(slot, until_s=slot.until_s - guard_s)) for slot in self.slots)
        return 1 - open_s / lit_s

    @property
    def _plan(self) -> OcsPlan:
        return plan_of(self.experiment.rule)

    def _lit_s(self, slot: SlotRecord) -> float:
        """Return how long a slot was lit until the last byte had arrived [emulated s]."""
        end_s = self.start_s + self.experiment.dilation.emulated_s(self.cct_s)
        return max(min(slot.until_s, end_s) - slot.lit_s, 0.0)

    @property
    def behind(self) -> float:
        """How much longer it took than its slots, with guard times and the devices' delays, as a share."""
        return self.behind_s / self._all_planned_s

    @property
    def behind_s(self) -> float:
        """The same in time [emulated s]."""
        return self.experiment.dilation.emulated_s(self.cct_s) - self._all_planned_s

    @property
    def _all_planned_s(self) -> float:
        return max(map(self._planned_s, self._plan.ocses))

    def _planned_s(self, ocs: str) -> float:
        """Return how long an OCS' slots take as the emulation plans them, the last no longer than needed."""
        plan, dilation = self._plan, self.experiment.dilation
        slots = plan.schedule.switches[plan.ocses.index(ocs)]
        rate_bps, sending = plan.emulated_rate_bps, self.experiment.sending
        longer_s = sending.margins.slot_s(sending.meeting)
        lit_s = [slot_s(slot.weight, dilation, rate_bps, longer_s, self.experiment.mtu) for slot in slots]
        dark_s = [entry.delay_s for entry in self.logs.get(ocs, ()) if entry.circuits]
        return sum(lit_s) + sum(dark_s[: len(slots)])

    @property
    def late_bytes(self) -> int:
        """What missed its slots: what the first round left over, less what the schedule leaves to packets.

        Emulated bytes.
        """
        plan = self._plan
        unserved_s = np.maximum(plan.line_s - plan.schedule.served(len(plan.line_s)), 0.0).sum()
        planned = unserved_s * plan.rate_bps / 8 * self.experiment.dilation.volume if plan.has_rest else 0.0
        return max(self.undelivered_bytes[0] - math.ceil(planned), 0)

    @property
    def lost_bytes(self) -> int:
        """What was sent into the dark, and sent again [emulated bytes]."""
        return sum(slot.lost_bytes for slot in self.slots)

    @property
    def lateness_s(self) -> float:
        """How long light waited until the engine heard of it, 99th percentile [emulated s]."""
        return max(float(np.percentile(self._heard_late_s, 99)), 0.0)

    @property
    def latest_s(self) -> float:
        """The longest that light waited until the engine heard of it [emulated s]."""
        return max([0.0, *self._heard_late_s])

    @property
    def _heard_late_s(self) -> list[float]:
        lit_s = {name: [entry.lit_s for entry in log if entry.lit_s] for name, log in self.logs.items()}
        return [min((slot.lit_s - s for s in lit_s[slot.ocs]), key=abs) for slot in self.slots]

    @property
    def delays_s(self) -> dict[str, tuple[float, ...]]:
        """How long each OCS was dark before each of its slots, as its device had it that time [real s]."""
        return drawn_s(self.logs, self.experiment.dilation)

    @property
    def lower_bound_s(self) -> float:
        """What no schedule beats with the delays that were drawn [real s]; they may be under the mean.

        Where GPUs are gone, only what is between the others counts.
        """
        plan, gone = self._plan, self.experiment.gone
        if gone:
            job = self.experiment.job
            return communication_bound_s(job, node_bounds_s(job, self.experiment.fabric, gone=gone))
        delay_s = min(chain.from_iterable(self.delays_s.values()), default=plan.delay_s)
        return plan.lower_bound_with(delay_s)

    @property
    def overhead_s(self) -> float:
        """From a command to light on the wire, without the device's delay, 99th percentile [emulated s]."""
        new = [entry for log in self.logs.values() for entry in log if entry.delay_s]
        each_s = [entry.lit_s - entry.command_s - entry.delay_s for entry in new if entry.lit_s]
        return float(np.percentile(each_s or [0.0], 99))

    @property
    def columns(self) -> Mapping[str, object]:
        """What a summary says of it beside what it says of any experiment; bytes are emulated."""
        plan = self._plan
        setup = plan.setup
        weights = [slot.weight for slots in plan.schedule.switches for slot in slots]
        return {
            "ocses": len(plan.ocses),
            "device": setup.delay.device,
            "delay_s": plan.delay_s,
            "delay_varies": setup.delay.varies,
            "partial": setup.partial,
            "makespan_s": plan.schedule.makespan,
            "slots": len(weights),
            "shortest_slot_s": min(weights),
            "late_bytes": self.undelivered_bytes[0],
            "missing_bytes": self.undelivered_bytes[-1],
            "resent_bytes": self.lost_bytes,
            "used": self.slot_utilisation,
            "guard": self.guard_loss,
            "behind": self.behind,
            "overhead_p99_s": self.overhead_s,
        }


def drawn_s(
    logs: Mapping[str, list[LogEntry]], dilation: Dilation, lit_before: Collection[str] = ()
) -> dict[str, tuple[float, ...]]:
    """Return how long each OCS was dark before each of its circuits, as its device had it [real s].

    Parameters
    ----------
    logs, dilation
        What OCSes did, and at which scale.
    lit_before
        Those whose first circuits were lit before the clock ran: these darkened nothing.
    """
    lit = {ocs: _ordered(log) for ocs, log in logs.items()}
    return {
        ocs: tuple(dilation.real_s(entry.delay_s) for entry in log[ocs in lit_before :])
        for ocs, log in lit.items()
    }


def _ordered(log: Sequence[LogEntry]) -> list[LogEntry]:
    """Return the entries of orders, without those of light that came back after its switch had lost it."""
    lost = [False, *(bool(entry.error) for entry in log)][: len(log)]
    return [entry for entry, again in zip(log, lost, strict=True) if entry.circuits and not again]
