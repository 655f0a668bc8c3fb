"""Faults while an application runs, at seconds since its start as the application counts them.

They are written as ``--fail`` takes them everywhere (`traffic.fault_text`), with times in seconds: nobody
knows before how long an application takes. Switches go around a port that is down by themselves, and hosts
avoid the NIC; what an application makes of it is its own.

A server that fails loses its links first and its processes then, so that none of them says goodbye.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from testbed.apps.app_record import AppEvent
from testbed.experiment.dilation import Dilation
from testbed.live.link_states import set_links
from testbed.network.network import Network
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.fault_text import HINT as ANY_HINT
from traffic.fault_text import WrittenFault
from traffic.faults import Fault

KINDS = "nic, link, port, server, controller and switches"
HINT = (
    "write WHAT@TIME or WHAT@TIME-TIME in seconds since the start, such as nic:0:1@2s, server:3@2s-4s or "
    "link:leaf0-spine1@500ms; docs/reference/apps.md has all"
)


@dataclass(frozen=True)
class AppFault:
    """Faults while an application runs."""

    fault: Fault
    """Its times are seconds since the application's start, in the emulation."""
    host: int | None = None
    """The server whose processes end with it."""

    @property
    def name(self) -> str:
        """The text that it was written as."""
        return self.fault.name

    @property
    def begins_s(self) -> float:
        """When it comes [s]."""
        return self.fault.when.after_s

    @property
    def ends_s(self) -> float:
        """When it is over; infinity if it stays [s]."""
        lasts_s = self.fault.when.lasts_s
        return math.inf if lasts_s is None else self.begins_s + lasts_s


def app_faults(texts: Sequence[str], fabric: Fabric) -> tuple[AppFault, ...]:
    """Return the faults that are written so.

    Raises
    ------
    ScenarioError
        If a text is not a fault, the fabric has no such part, its time is a share, or it is a GPU.
    """
    return tuple(_app_fault(text, fabric) for text in dict.fromkeys(texts))


def _app_fault(text: str, fabric: Fabric) -> AppFault:
    try:
        return _of_text(text, fabric)
    except ScenarioError as error:
        # The hint of all faults has shares of a prediction, and GPUs.
        raise ScenarioError(error.sentence, HINT if error.hint == ANY_HINT else error.hint) from None


def _of_text(text: str, fabric: Fabric) -> AppFault:
    written = WrittenFault(text)
    kind, _, where = text.strip().partition("@")[0].partition(":")
    if "%" in text:
        raise ScenarioError(
            f"{text!r} comes at a share of a time, and how long an application takes is not known before",
            "give seconds since its start, as in nic:0:1@2s",
        )
    if kind == "gpu":
        raise ScenarioError(
            f"{text!r}: an application computes on this machine's CPUs, and on no GPU of the fabric",
            f"name {KINDS}",
        )
    fault = written.over(fabric, math.nan, 0.0)
    if kind != "server":
        return AppFault(fault)
    # A server that only has slower links, or lossy ones, goes on.
    return AppFault(fault, None if fault.only_impairs else int(where))


def at_real_times(fault: AppFault, dilation: Dilation, begun_s: float = 0.0) -> Fault:
    """Return a fault for the prediction.

    Parameters
    ----------
    fault
        What failed.
    dilation
        The emulation's scale.
    begun_s
        How long after the application's start the predicted job begins [s].
    """
    when = fault.fault.when
    lasts_s = None if when.lasts_s is None else dilation.real_s(when.lasts_s)
    after_s = dilation.real_s(max(when.after_s - begun_s, 0.0))
    return replace(fault.fault, when=replace(when, after_s=after_s, lasts_s=lasts_s))


class FaultsInTime:
    """Has faults come and be over on a network, each when it is due.

    Parameters
    ----------
    network
        A booted network of which all works.
    faults
        What fails when.
    end_processes
        Ends all processes of a server, whoever started them.
    """

    def __init__(
        self, network: Network, faults: Sequence[AppFault], end_processes: Callable[[int], None]
    ) -> None:
        self._network, self._end_processes = network, end_processes
        self._due = sorted(
            [(each.begins_s, True, each) for each in faults]
            + [(each.ends_s, False, each) for each in faults if math.isfinite(each.ends_s)],
            key=lambda change: change[0],
        )
        self._standing: list[AppFault] = []

    @property
    def next_s(self) -> float:
        """When the next change is due; infinity if there is none [s]."""
        return self._due[0][0] if self._due else math.inf

    @property
    def missed(self) -> list[AppEvent]:
        """The faults that have not come yet."""
        return [AppEvent(at_s, "missed", each.name) for at_s, begins, each in self._due if begins]

    def carry_out(self, now_s: Callable[[], float]) -> list[AppEvent]:
        """Carry out what is due, and return it; ``now_s`` is the time since the application's start [s]."""
        found = list[AppEvent]()
        while self.next_s <= now_s():
            _, begins, each = self._due.pop(0)
            standing = [other for other in self._standing if other is not each] + [each] * begins
            self._set(standing)
            at_s = now_s()
            if begins and each.host is not None:
                self._end_processes(each.host)
            self._set_daemon(each, works=not begins)
            self._follow()
            found.append(AppEvent(at_s, "failed" if begins else "mended", each.name))
        return found

    def mend(self) -> None:
        """Have all work again, for what is measured after the application's end."""
        self._due.clear()
        if self._standing:
            self._set([])
            self._network.mend()
            self._follow()

    def _set(self, standing: list[AppFault]) -> None:
        before, now = ([each.fault for each in some] for some in (self._standing, standing))
        set_links(self._network, before, now)
        self._standing = standing

    def _set_daemon(self, each: AppFault, *, works: bool) -> None:
        if each.fault.daemon and works:
            self._network.revive(each.fault.daemon)
        elif each.fault.daemon:
            self._network.kill(each.fault.daemon, for_good=False)

    def _follow(self) -> None:
        """Have switches and hosts go around what is down now, where somebody is there to tell them."""
        if not any(each.fault.daemon for each in self._standing):
            self._network.follow([port for each in self._standing for port in each.fault.ports])
