"""All OCSes of a fabric: carries out what `controller.circuits.reconfiguration` orders, on the app's thread.

Whatever happens elsewhere (a timer, a proof, a client's wish) comes as a piece of work that the app
runs on its one thread, so that all state here has one owner and no lock.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import monotonic, sleep

from controller.app.app_thread import AppThread
from controller.app.notices import Subscriber
from controller.app.openflow import Datapath, barrier, hub
from controller.app.proof import Proof
from controller.circuits.bundles import coming, committed, discarded, going
from controller.circuits.circuits import check_permitted
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.orders import Darken, Light, Notice, Order, Prepare, Wait
from controller.circuits.programs import Program
from controller.circuits.reconfiguration import Command, Entry, OpticalSwitch
from controller.circuits.status import OcsStatus
from topologies.errors import NetworkError
from topologies.fabric import Fabric

AHEAD_S = 0.001
"""How long before its time a timer goes off; the app's thread sleeps the rest. So the two changes of
threads on the way, 0.3 ms and now and then 3 ms where both CPUs are busy, come before it and not after."""


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
    """

    def __init__(self, fabric: Fabric, thread: AppThread, proof: Proof) -> None:
        self._thread, self._proof = thread, proof
        ocses = [switch for switch in fabric.switches if switch.kind == "ocs"]
        self._ocses = {switch.name: OpticalSwitch(switch.ports, index) for index, switch in enumerate(ocses)}
        self._switches = {switch.name: switch for switch in ocses}
        self._datapaths: dict[str, Datapath] = {}
        self._barriers: dict[tuple[str, int], int] = {}
        self._prepared: dict[str, int] = {}
        """The reconfiguration whose light is prepared; its number is that of its bundles and messages."""
        self._subscribers: dict[str, Subscriber] = {}

    def __contains__(self, name: str) -> bool:
        """Whether there is an OCS of this name; from any thread."""
        return name in self._ocses

    def ports(self, name: str) -> int:
        """Return how many ports an OCS has; from any thread."""
        return self._ocses[name].lit.ports

    def connected(self, name: str, datapath: Datapath) -> None:
        """Take note of a new connection, over which the switch was proved to have forgotten all circuits."""
        if name in self._ocses:
            self._datapaths[name] = datapath
            self._carry_out(name, self._ocses[name].found(monotonic()))

    def disconnected(self, name: str) -> None:
        """Take note that a connection has ended: what the OCS shows is unknown until the next one."""
        if self._datapaths.pop(name, None):
            self._prepared.pop(name, None)
            self._barriers = {key: number for key, number in self._barriers.items() if key[0] != name}
            error = f"the connection to OCS {name} was lost, and with it what was under way or lit"
            self._carry_out(name, self._ocses[name].lost(error, monotonic()))

    def answered(self, name: str, transaction: int) -> None:
        """Take note that a switch has answered a barrier: its rules have changed, now the wire must."""
        number = self._barriers.pop((name, transaction), None)
        if number is not None:
            self._proof.ask(partial(self._confirmed, name, number))

    def refused(self, name: str, transaction: int, error: str) -> bool:
        """Take note that a switch refused a message; return whether it was about circuits."""
        if name not in self._ocses or not 0 < transaction <= self._ocses[name].number:
            return False
        self._carry_out(name, self._ocses[name].refused(transaction, error, monotonic()))
        return True

    def status(self, name: str) -> OcsStatus:
        """Return what an OCS shows and does; from any thread, as all below.

        Raises
        ------
        NetworkError
            If it is not connected: what it shows is unknown.
        """
        return self._thread.ask(lambda: self._status(name))

    def log(self, name: str) -> list[Entry]:
        """Return an OCS' reconfigurations, also while it is not connected."""
        return self._thread.ask(lambda: list(self._ocses[name].log))

    def set_delay(self, name: str, delay: ReconfigurationDelay, seed: int) -> None:
        """Set how long an OCS is dark from the next reconfiguration on, and draw anew."""
        self._thread.ask(lambda: self._connected(name).set_delay(delay, seed))

    def command(self, name: str, command: Command) -> None:
        """Give an OCS a command; DemandError if it does not permit the circuits."""
        check_permitted(self._switches[name], command.circuits)
        self._start(name, lambda now: self._ocses[name].command(command, now))

    def run(self, name: str, program: Program, start_s: float | None, notify: Path | None) -> None:
        """Have an OCS show a program.

        Parameters
        ----------
        name
            Which.
        program
            What it shows.
        start_s
            When the first night begins, on this machine's monotonic clock [s]; None for now.
        notify
            A unix datagram socket that receives whatever changes (`controller.app.notices`).

        Raises
        ------
        DemandError
            If there is no such socket, or the OCS does not permit a day's circuits. It is left as it is.
        """
        for day in program.days:
            check_permitted(self._switches[name], day.circuits)

        def begin(now: float) -> Iterable[Order]:
            subscriber = Subscriber(notify, self._thread) if notify else None
            if old := self._subscribers.pop(name, None):
                old.close()
            if subscriber:
                self._subscribers[name] = subscriber
            return self._ocses[name].run(program, now if start_s is None else start_s, now)

        self._start(name, begin)

    def _start(self, name: str, begin: Callable[[float], Iterable[Order]]) -> None:
        def work() -> None:
            self._connected(name)
            self._carry_out(name, begin(monotonic()))

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
            **asdict(ocs.delay),
        )

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
                case Light(number):
                    self._send(name, committed(self._prepared.pop(name)))
                    self._fence(name, number)
                    self._proof.hasten()
                case Wait(number, until_s):
                    delay_s = max(until_s - AHEAD_S - monotonic(), 0.0)
                    wake = partial(self._woken, name, number, until_s)
                    hub.spawn_after(delay_s, self._thread.post, wake)
                case Notice():
                    self._notify(name, order)

    def _woken(self, name: str, number: int, until_s: float) -> None:
        sleep(max(until_s - monotonic(), 0.0))
        if name in self._datapaths:
            self._carry_out(name, self._ocses[name].woken(number, monotonic()))

    def _confirmed(self, name: str, number: int, now: float, error: str) -> None:
        if name in self._datapaths:
            ocs = self._ocses[name]
            orders = (
                ocs.unproved(number, f"OCS {name}: {error}", now) if error else ocs.confirmed(number, now)
            )
            self._carry_out(name, orders)

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

    def _notify(self, name: str, notice: Notice) -> None:
        if name in self._subscribers:
            news = {"ocs": name, "circuits": notice.circuits.pairs, "now": notice.now}
            news |= {"until_s": notice.until_s, "ended": notice.ended, "error": notice.error}
            self._subscribers[name].notify(news)
