"""Mininet's CLI on a live fabric with OCSes: ``circuits``, ``light``, ``device`` and ``show`` by hand."""

from collections.abc import Callable

from mininet.cli import CLI
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from controller.devices import DEVICES, Darkness, darkness_of, device_named
from testbed.network import Network
from testbed.table import duration_text
from topologies.errors import LightrailError, NetworkError, ScenarioError

WAIT_S = 30.0
IDEAL = Darkness().device
"""What an OCS is called that is lit again at once; no device of the table."""


class OcsCLI(CLI):  # type: ignore[misc]
    """Mininet's CLI over a network with OCSes.

    Parameters
    ----------
    network
        A booted network.
    time
        Emulated time over real time, for the devices' delays.
    """

    prompt = "lightrail> "

    def __init__(self, network: Network, time: float = 1.0) -> None:
        self._network = network
        self._time = time
        self._console = Console(highlight=False)
        super().__init__(network.mininet)

    def do_circuits(self, _line: str) -> None:
        """Show what every OCS lights: circuits."""
        self._told(self._print_circuits)

    def do_light(self, line: str) -> None:
        """Light circuits of an OCS, or none: light ocs0 0>3 3>0 (light ocs0 -)."""
        example = "type light ocs0 0>1 1>0, or light ocs0 - to darken it"
        self._command(line, example, self._network.northbound.light)

    def do_show(self, line: str) -> None:
        """Show days and nights: show ocs0 50ms 0>1,1>0 20ms - 50ms 0>2,2>0."""
        example = "type days and nights, like show ocs0 50ms 0>1,1>0 20ms -"
        self._command(line, example, self._network.northbound.show)

    def do_device(self, line: str) -> None:
        """Make an OCS behave as a device or as ideal, or list them: device ocs0 mems-3d (device)."""
        name, device = _halves(line)
        if not device and name in ["", *self._ocses()]:
            self._console.print(devices_table())
            return
        self._command(line, "type device for the list of devices", self._set_device)

    def _set_device(self, name: str, device: str) -> object:
        darkness = (
            Darkness()
            if device == IDEAL
            else darkness_of(device_named(device), self._time, self._network.rate_factor)
        )
        return self._network.northbound.set_darkness(name, darkness)

    def _ocses(self) -> list[str]:
        return [switch.name for switch in self._network.fabric.switches if switch.kind == "ocs"]

    def _command(self, line: str, example: str, command: Callable[[str, str], object]) -> None:
        """Give the OCS that a line names first what follows, and show what came of it."""
        name, rest = _halves(line)

        def given() -> None:
            self._check(name, rest, example)
            command(name, rest)
            self._network.northbound.wait_idle(name, WAIT_S)
            self._print_circuits()

        self._told(given)

    def _check(self, name: str, rest: str, example: str) -> None:
        """Refuse a line without an OCS of this network, or with nothing for it."""
        ocses = self._ocses()
        if name and name not in ocses:
            raise ScenarioError(f"there is no OCS {name!r}", f"take {', '.join(ocses)}")
        if not rest:
            raise ScenarioError(f"nothing for {name} to do" if name else "no OCS is named", example)

    def _told(self, command: Callable[[], object]) -> None:
        """Do something, or say why not: an error shall not end the CLI."""
        try:
            command()
        except LightrailError as error:
            # As it is: what was typed may hold brackets, which are not rich's.
            self._console.print(str(error), style="red", markup=False)

    def _print_circuits(self) -> None:
        table = Table("OCS", "circuits", "phase", "device", "delay", "dark for", box=None)
        for name in self._ocses():
            try:
                status = self._network.northbound.ocs(name)
            except NetworkError as error:
                table.add_row(name, "unknown", escape(str(error)))
                continue
            log = [entry for entry in self._network.northbound.ocs_log(name) if entry.lit_s]
            lit = " ".join(f"{a}>{b}" for a, b in status.circuits) or "-"
            dark = f"{((log[-1].lit_s or 0) - (log[-1].dark_s or 0)) * 1e3:.1f} ms" if log else "-"
            table.add_row(name, lit, status.phase, status.device, f"{status.delay_s * 1e3:g} ms", dark)
        self._console.print(table)


def devices_table() -> Table:
    """Return the table of devices, with their sources."""
    table = Table("device", "what", "ports", "delay", "p99", "source", box=None)
    for device in DEVICES.values():
        p99 = "" if device.delay_p99_s is None else duration_text(device.delay_p99_s)
        delay = duration_text(device.delay_s)
        table.add_row(device.name, device.what, str(device.ports or ""), delay, p99, device.source)
    return table


def _halves(line: str) -> tuple[str, str]:
    name, _, rest = line.strip().partition(" ")
    return name, rest.strip()
