"""Programs over a booted network: the controller steps OCSes, and messages take what is lit.

Slots are a little longer than planned: headers, guard times, and what a slot loses at its start.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.circuits.circuits import Circuits
from controller.circuits.programs import Day, Program
from testbed.core.backend import LightChanged
from testbed.experiment.dilation import Dilation
from testbed.live.lit_lanes import LitLanes
from testbed.live.news import News, NowShown
from testbed.network.network import Network
from topologies.errors import ScenarioError, StuckError
from topologies.events import Show, TimedCircuits
from topologies.fabric import Fabric, Nic, Port
from traffic.scheme_setup import WhileLitSetup
from traffic.transports.loop import Arrival
from traffic.transports.slots import header_share
from traffic.transports.transport import NicRate

LEAD_S = 0.15
"""How long before it begins a program is announced to the OCSes."""
LINGER_S = 0.01
"""How long after the last program what is on its way may still land."""
SILENCE_S = 30.0
"""After so long without news of light, past the last end that was announced, it has come to a stop."""
BACK_S, IDLE_S = 30.0, 5.0
"""How long an OCS may stay away between programs, and take to go dark after them."""
LAST_SHARE, LAST_S = 0.1, 0.05
"""How much longer an OCS' last slot may be lit, so that what is late needs no slot of its own: as a share of
the slot, and on top [s]. It ends with the last byte, or when nothing that is missing can use it."""


class LivePrograms:
    """Shows programs, and opens lanes while their circuits are lit; times are those of `time.monotonic`.

    Parameters
    ----------
    network
        Whose OCSes.
    dilation
        The scale of bytes and time.
    ocs_of
        The OCS that each NIC is on.
    sending
        The policy of senders before a reconfiguration, and what slots are longer for.
    nic_rate_bps
        The rate that a NIC has now, at emulated scale [bit/s].
    exact
        Whether the first programs' last slots are lit no longer than they need: what a fault leaves over
        needs slots of its own anyway.
    """

    def __init__(
        self,
        network: Network,
        dilation: Dilation,
        ocs_of: Mapping[Nic, str],
        sending: WhileLitSetup,
        nic_rate_bps: NicRate,
        *,
        exact: bool = False,
    ) -> None:
        self._network, self._dilation, self._exact = network, dilation, exact
        self._slots_longer_s = sending.margins.slot_s(sending.meeting)
        """What slots are longer for than their bytes need [s]."""
        self._slowest_bps = min(map(nic_rate_bps, ocs_of), default=1.0)
        self.lanes = LitLanes(network, dilation, ocs_of, sending, nic_rate_bps)
        """The lanes that carry messages."""
        self.showing: dict[str, float] = {}
        """The OCSes that show programs, and when each has ended; infinite before."""
        self._coming: dict[str, int] = {}
        """How many slots each of them has yet to light."""
        self._planned_ends: dict[str, float] = {}
        """When the slot of each ends, or the last one is lit longer than planned."""
        self._longer_s: dict[str, float] = {}
        """How much longer the last slot of each is lit."""
        self._left_lit: list[str] = []
        """The OCSes whose last slots were of no more use before they had ended."""
        self.begun_at: float | None = None
        """When the first program began."""
        self.left_over: list[int] = []
        """What each round of programs left over, if it did [bytes, emulated]."""
        self._failed: frozenset[Port] = frozenset()
        self._heard_at = 0.0

    def show(self, order: Show, news: News) -> float:
        """Have the controller step OCSes through programs; return when they begin."""
        if self.begun_at is not None:
            self._network.northbound.wait_ready(BACK_S, None, check=self._network.check_alive)
            self._take_back(news)
        exact = order.exact or (self._exact and self.begun_at is None)
        begins_at = time.monotonic() + (LEAD_S if self.begun_at is None else 0.0)
        self.begun_at = self.begun_at or begins_at
        self._heard_at = begins_at
        _check_alone(self._network.fabric, [ocs for ocs, _ in order.programs])
        for ocs, slots in order.programs:
            self.showing[ocs], self._coming[ocs] = float("inf") if slots else begins_at, len(slots)
            self._planned_ends[ocs] = begins_at
            if slots:
                *days, last = self._days(ocs, slots)
                longer_s = self._longer_s[ocs] = 0.0 if exact else last.duration_s * LAST_SHARE + LAST_S
                days.append(replace(last, duration_s=last.duration_s + longer_s))
                program = Program(tuple(days), order.partial)
                self._network.northbound.show(ocs, program, begins_at, news.path)
        return begins_at

    def _days(self, ocs: str, slots: Sequence[TimedCircuits]) -> list[Day]:
        """Return what an OCS shows for slots, each a little longer than planned."""
        fabric, mtu = self._network.fabric, self._network.mtu
        ports, rate_bps = fabric.switches[fabric.switch_index[ocs]].ports, self._slowest_bps
        lit_s = [slot_s(slot.lit_s, self._dilation, rate_bps, self._slots_longer_s, mtu) for slot in slots]
        days = zip(slots, lit_s, strict=True)
        return [Day(Circuits(ports, slot.circuits), lasts_s) for slot, lasts_s in days]

    def heard(self, notice: NowShown, now_ps: int, until_ps: int | None) -> list[LightChanged]:
        """Point senders where light goes now; return what to report, at the run's times."""
        now, fabric, ocs = time.monotonic(), self._network.fabric, notice.ocs
        self._heard_at = max(now, notice.until_s or 0.0)
        ends = [
            (fabric.peer(Port(ocs, a)), fabric.peer(Port(ocs, b)))
            for a, b in notice.circuits
            if self._failed.isdisjoint((Port(ocs, a), Port(ocs, b)))
        ]
        outputs = {fabric.nic_at(near): fabric.nic_at(far) for near, far in ends}
        if notice.ended:
            self.lanes.ended(ocs, now)
            self.showing[ocs] = self._planned_ends[ocs] = now
            self._coming[ocs] = 0
            return []
        if notice.until_s is None:
            self.lanes.dark(ocs, outputs)
        else:
            self.lanes.lit(ocs, outputs, notice.until_s, now)
            self._coming[ocs] -= 1
            is_last = not self._coming[ocs]
            self._planned_ends[ocs] = notice.until_s - (self._longer_s[ocs] if is_last else 0.0)
        return [LightChanged(ocs, notice.circuits, now_ps, until_ps)]

    def avoid(self, failed: frozenset[Port]) -> None:
        """Send nothing over failed ports in slots to come."""
        self._failed = failed

    def turn(self) -> tuple[list[Arrival], list[str]]:
        """Send what can be sent; return what arrived and, once all programs have ended, their OCSes."""
        arrived, now = self.lanes.turn(), time.monotonic()
        if now > max(self.showing.values()) + LINGER_S or self._are_spent(now):
            self._left_lit = [ocs for ocs, at in self.showing.items() if at > now]
            self.lanes.end()
            missing = self.lanes.missing_bytes
            self.left_over += [missing] if missing else []
            ended, self.showing = list(self.showing), {}
            return arrived, ended
        if now - self._heard_at > SILENCE_S:
            raise StuckError(f"no OCS said what is lit for {SILENCE_S:g} s", "run it again")
        return arrived, []

    def _are_spent(self, now: float) -> bool:
        """Return whether only what last slots are lit longer is left, and no use for what is missing."""
        planned = not any(self._coming.values()) and now > max(self._planned_ends.values())
        return bool(planned and self.lanes.missing_bytes) and not self.lanes.busy

    def _take_back(self, news: News) -> None:
        """End last slots that were of no more use, and read what was said of them."""
        for ocs in self._left_lit:
            self.lanes.ended(ocs, time.monotonic())
            self._network.northbound.light(ocs, "-", partial=False, busy="replace")
        if self._left_lit:
            news.read()
        self._left_lit = []

    def darken(self) -> None:
        """End what is left of the programs."""
        lit = [*self.showing, *self._left_lit]
        for ocs in lit:
            self._network.northbound.light(ocs, "-", partial=False, busy="replace")
        for ocs in lit:
            self._network.northbound.wait_idle(ocs, IDLE_S)
        self.lanes.end()


def _check_alone(fabric: Fabric, ocses: Iterable[str]) -> None:
    """Raise ScenarioError if light crosses one of some OCSes and another switch."""
    for ocs in ocses:
        for port in fabric.used_ports(ocs):
            if (far := fabric.peer(port).node) in fabric.switch_index:
                raise ScenarioError(
                    f"OCS {ocs} is linked to {far}, and datagrams over programs cross one OCS only",
                    "order circuits that stay (Reconfigure), or leave that link out",
                )


def slot_s(real_s: float, dilation: Dilation, rate_bps: float, longer_s: float, mtu: int) -> float:
    """Return how long a slot is lit so that it carries all that it would carry without costs [emulated s].

    Parameters
    ----------
    real_s
        How long it would be lit [real s].
    dilation
        The emulation's scale.
    rate_bps
        The rate of the slowest NIC, which datagrams suit [bit/s].
    longer_s
        What it is longer for than its bytes need [s].
    mtu
        Largest packet [bytes].
    """
    return dilation.emulated_s(real_s) * header_share(rate_bps, mtu) + longer_s
