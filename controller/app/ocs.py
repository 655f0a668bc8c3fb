"""All OCSes of a fabric: carries out what `controller.circuits.reconfiguration` orders, on the app's thread.

Whatever happens elsewhere (a timer, a proof, a client's request) comes as a piece of work that the app
runs on its one thread, so that all state here has one owner and no lock.

After an unexpected error it is unknown what the switch shows: its connection is ended, and with it what was
under way, so that no OCS stays busy. The switch begins anew when it is back.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import monotonic, sleep

from controller.app.app_thread import AppThread
from controller.app.notices import Subscriber
from controller.app.openflow import Datapath, barrier, hang_up
from controller.app.proof import Proof
from controller.app.timers import Timers
from controller.circuits.bundles import coming, committed, discarded, going, remaining
from controller.circuits.circuits import Circuits, check_permitted
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.orders import Connect, Darken, Notify, Order, Prepare, Wait
from controller.circuits.programs import Showing
from controller.circuits.reconfiguration import WHEN_TO_FLIP, Command, OpticalSwitch
from controller.circuits.status import LogEntry, OcsRecord, OcsStatus
from topologies.errors import DemandError, NetworkError
from topologies.fabric import Fabric

log = logging.getLogger("controller")

AHEAD_S = 0.001
"""How long before its time a timer goes off; the app's thread sleeps the rest. So the two changes of
threads on the way, 0.3 ms and now and then 3 ms where both CPUs are busy, come before it and not after."""

Decision = Callable[[OpticalSwitch, float], Iterable[Order]]
"""What an OCS decides at a time [s]."""


class OpticalSwitches:
    """The OCSes of a fabric; every method but those marked so is for the app's thread.

    Parameters
    ----------
    fabric
        What is wired.
    thread
        The app's thread.
    proof
        Proves that changes are on the wire.
    records
        What another controller left, from which this one takes over: these OCSes keep their circuits.
    news
        The subscriber that hears all that is lit, whoever ordered it; None for none.
    """

    def __init__(
        self,
        fabric: Fabric,
        thread: AppThread,
        proof: Proof,
        records: Sequence[OcsRecord] = (),
        news: Subscriber | None = None,
    ) -> None:
        self._thread, self._proof, self._timers = thread, proof, Timers(thread)
        ocses = [switch for switch in fabric.switches if switch.kind == "ocs"]
        self._ocses = {switch.name: OpticalSwitch(switch.ports, index) for index, switch in enumerate(ocses)}
        self._switches = {switch.name: switch for switch in ocses}
        self._datapaths: dict[str, Datapath] = {}
        self._barriers: dict[tuple[str, int], int] = {}
        self._prepared: dict[str, int] = {}
        """The reconfiguration whose light is prepared; its number is that of its bundles and messages."""
        self._subscribers: dict[str, Subscriber] = {}
        """Of each OCS; those that were started by one request may have one in common."""
        self._of_all = news
        self._taken_over = {record.status.name for record in records}
        """The OCSes that have not connected yet and keep what they show."""
        for record in records:
            self._ocses[record.status.name].take_over(record)

    def __contains__(self, name: str) -> bool:
        """Whether there is an OCS of this name; from any thread."""
        return name in self._ocses

    def ports(self, name: str) -> int:
        """Return how many ports an OCS has; from any thread."""
        return self._ocses[name].lit.ports

    def keeps(self, name: str, datapath: Datapath) -> bool:
        """Return whether an OCS that connects keeps its circuits, which no packet notices, and no others."""
        if name not in self._taken_over:
            return False
        self._taken_over.discard(name)
        datapath.send(remaining(0, self._ocses[name].lit.pairs))
        return True

    def connected(self, name: str, datapath: Datapath) -> None:
        """Record a new connection, over which the switch was proved to have forgotten all other circuits."""
        if name in self._ocses:
            self._datapaths[name] = datapath
            self._step(name, OpticalSwitch.found)

    def disconnected(self, name: str) -> None:
        """Record that a connection has ended: what the OCS shows is unknown until the next one."""
        self._lose(name, f"the connection to OCS {name} was lost, and with it what was under way or lit")

    def answered(self, name: str, transaction: int) -> None:
        """Have a change proved whose barrier was answered: the rules have changed, now the wire must."""
        number = self._barriers.pop((name, transaction), None)
        if number is not None:
            self._proof.ask(partial(self._confirmed, name, number))

    def refused(self, name: str, transaction: int, error: str) -> bool:
        """Record that a switch refused a message; return whether it was about circuits."""
        if name not in self._ocses or not 0 < transaction <= self._ocses[name].number:
            return False
        self._step(name, lambda ocs, now: ocs.refused(transaction, error, now))
        return True

    def status(self, name: str) -> OcsStatus:
        """Return what an OCS shows and does; from any thread, as all below.

        Raises
        ------
        NetworkError
            If it is not connected: what it shows is unknown.
        """
        return self._thread.ask(lambda: self._status(name))

    def log(self, name: str) -> list[LogEntry]:
        """Return an OCS' reconfigurations, also while it is not connected."""
        return self._thread.ask(lambda: list(self._ocses[name].log))

    def set_delay(self, name: str, delay: ReconfigurationDelay, seed: int) -> None:
        """Set how long an OCS is dark from the next reconfiguration on, and draw anew."""
        self._thread.ask(lambda: self._connected(name).set_delay(delay, seed))

    def command(self, name: str, command: Command) -> None:
        """Give an OCS a command; DemandError if it does not permit the circuits."""
        check_permitted(self._switches[name], command.circuits)
        self._start(name, lambda ocs, now: ocs.command(command, now))

    def provision(self, name: str, circuits: Circuits) -> None:
        """Set circuits on an OCS' idle side; DemandError if it does not permit them."""
        check_permitted(self._switches[name], circuits)
        self._start(name, lambda ocs, now: ocs.provision(circuits, now))

    def flip(self, names: Sequence[str], notify: Path | None) -> None:
        """Have OCSes exchange their two sides, in one turn of the app's thread.

        Parameters
        ----------
        names
            Which, each once.
        notify
            As of `Showing`.

        Raises
        ------
        DemandError
            If there is no such socket to notify, or an OCS cannot flip now; it says when its shadow is ready.
        NetworkError
            If one is not connected. In either case all are left as they are.
        """
        self._thread.ask(lambda: self._flip(names, notify))

    def _flip(self, names: Sequence[str], notify: Path | None) -> None:
        now_s = monotonic()
        for name in names:
            if reason := self._connected(name).why_not_flip(now_s):
                raise DemandError(f"OCS {name} {reason}", WHEN_TO_FLIP)
        subscriber = Subscriber(notify, self._thread) if notify and names else None
        for name in names:
            self._subscribe(name, subscriber)
            self._step(name, OpticalSwitch.flip)

    def run(self, showings: Mapping[str, Showing]) -> None:
        """Have OCSes show programs; all begin in one turn of the app's thread.

        Parameters
        ----------
        showings
            What each shows, by its name.

        Raises
        ------
        DemandError
            If there is no such socket to notify, or an OCS does not permit a day's circuits.
        NetworkError
            If one is not connected. In either case all are left as they are.
        """
        for name, showing in showings.items():
            for day in showing.program.days:
                check_permitted(self._switches[name], day.circuits)
        self._thread.ask(lambda: self._run(showings))

    def _run(self, showings: Mapping[str, Showing]) -> None:
        for name in showings:
            self._connected(name)
        subscribers = self._opened({showing.notify for showing in showings.values() if showing.notify})
        now_s = monotonic()
        for name, showing in showings.items():
            self._subscribe(name, subscribers[showing.notify] if showing.notify else None)
            self._show(name, showing, now_s)

    def _show(self, name: str, showing: Showing, now_s: float) -> None:
        begins_s = now_s if showing.start_s is None else showing.start_s
        self._step(name, lambda ocs, now: ocs.run(showing.program, begins_s, now))

    def _opened(self, paths: Iterable[Path]) -> dict[Path, Subscriber]:
        """Return a subscriber for each path; DemandError, and none is left open, if one has no socket."""
        with ExitStack() as stack:
            opened = {path: stack.enter_context(closing(Subscriber(path, self._thread))) for path in paths}
            stack.pop_all()
        return opened

    def _subscribe(self, name: str, subscriber: Subscriber | None) -> None:
        """Notify a subscriber of an OCS from now on, in place of the one before."""
        old = self._subscribers.pop(name, None)
        if subscriber:
            self._subscribers[name] = subscriber
        if old:
            old.forget(name)  # a notice from before must not overtake one from now on
            if old not in self._subscribers.values():
                old.close()

    def _start(self, name: str, begin: Decision) -> None:
        def work() -> None:
            self._connected(name)
            self._step(name, begin, DemandError)

        self._thread.ask(work)

    def _connected(self, name: str) -> OpticalSwitch:
        if name not in self._datapaths:
            raise NetworkError(
                f"OCS {name} is not connected, or not proved to be dark yet", "wait until its switch is back"
            )
        return self._ocses[name]

    def _status(self, name: str) -> OcsStatus:
        ocs = self._connected(name)
        return OcsStatus(
            name=name,
            ports=ocs.lit.ports,
            phase=ocs.phase,
            circuits=ocs.lit.pairs,
            busy=ocs.busy,
            queued=ocs.queued,
            number=ocs.log[-1].number if ocs.log else 0,
            error=ocs.error,
            shadow=ocs.shadow.circuits.pairs if ocs.shadow else None,
            shadow_ready_s=ocs.shadow.ready_s if ocs.shadow else None,
            **asdict(ocs.delay),
        )

    def _step(self, name: str, decide: Decision, *refusals: type[Exception]) -> None:
        """Carry out what an OCS decides; an error that refuses what was asked for has changed nothing."""
        try:
            self._carry_out(name, decide(self._ocses[name], monotonic()))
        except refusals:
            raise
        except Exception as error:
            log.exception("OCS %s failed", name)
            if datapath := self._datapaths.get(name):
                hang_up(datapath)
            self._lose(name, f"OCS {name} failed: {type(error).__name__}: {error}")

    def _lose(self, name: str, error: str) -> None:
        """End all that was under way over a connection, if there is one."""
        if self._datapaths.pop(name, None):
            self._prepared.pop(name, None)
            self._barriers = {key: number for key, number in self._barriers.items() if key[0] != name}
            self._carry_out(name, self._ocses[name].lost(error, monotonic()))

    def _carry_out(self, name: str, orders: Iterable[Order]) -> None:
        for order in orders:
            match order:
                case Darken(number, pairs):
                    self._discard(name)
                    self._send(name, going(number, pairs, self._ocses[name].lit.pairs))
                    self._fence(name, number)
                case Prepare(number, pairs):
                    self._discard(name)
                    self._prepared[name] = number
                    self._send(name, coming(number, pairs))
                case Connect(number):
                    self._send(name, committed(self._prepared.pop(name)))
                    self._fence(name, number)
                    self._proof.hasten()
                case Wait(number, until_s):
                    # Only the newest wait of an OCS counts: an older one is of what was replaced.
                    self._timers.set(name, until_s - AHEAD_S, partial(self._woken, name, number, until_s))
                case Notify():
                    self._notify(name, order)

    def _woken(self, name: str, number: int, until_s: float) -> None:
        sleep(max(until_s - monotonic(), 0.0))
        if name in self._datapaths:
            self._step(name, lambda ocs, now: ocs.woken(number, now))

    def _confirmed(self, name: str, number: int, proved_s: float, error: str) -> None:
        def decide(ocs: OpticalSwitch, _now: float) -> Iterable[Order]:
            if error:
                return ocs.unproved(number, f"OCS {name}: {error}", proved_s)
            return ocs.confirmed(number, proved_s)

        if name in self._datapaths:
            self._step(name, decide)

    def _discard(self, name: str) -> None:
        """Throw away what was prepared for a command that was replaced or refused."""
        if name in self._prepared:
            self._send(name, discarded(self._prepared.pop(name)))

    def _send(self, name: str, messages: bytes) -> None:
        self._datapaths[name].send(messages)

    def _fence(self, name: str, number: int) -> None:
        last = barrier(self._datapaths[name])
        self._barriers[name, self._datapaths[name].set_xid(last)] = number
        self._datapaths[name].send_msg(last)

    def _notify(self, name: str, notice: Notify) -> None:
        news = {"ocs": name, "circuits": notice.circuits.pairs, "now": notice.now}
        news |= {"until_s": notice.until_s, "ended": notice.ended, "error": notice.error}
        for subscriber in filter(None, (self._of_all, self._subscribers.get(name))):
            subscriber.notify(news)
