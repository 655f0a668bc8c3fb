"""Mininet's CLI on a live fabric with OCSes: ``circuits``, ``light``, ``device`` and ``show`` by hand."""

from collections.abc import Callable

from mininet.cli import CLI
from rich.console import Console
from rich.table import Table

from controller.devices import DEVICES, Darkness, darkness_of, device_named
from testbed.network import Network
from topologies.errors import LightrailError

WAIT_S = 30.0
UNITS = ((60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


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
        table = Table("OCS", "circuits", "phase", "device", "delay", "dark for", box=None)
        for name in self._ocses():
            status = self._network.northbound.ocs(name)
            log = [entry for entry in self._network.northbound.ocs_log(name) if entry.lit_s]
            lit = " ".join(f"{a}>{b}" for a, b in status.circuits) or "-"
            dark = f"{((log[-1].lit_s or 0) - (log[-1].dark_s or 0)) * 1e3:.1f} ms" if log else "-"
            table.add_row(name, lit, status.phase, status.device, f"{status.delay_s * 1e3:g} ms", dark)
        self._console.print(table)

    def do_light(self, line: str) -> None:
        """Light circuits of an OCS, or none: light ocs0 0>3 3>0 (light ocs0 -)."""
        name, circuits = _halves(line)
        self._try(lambda: self._network.northbound.light(name, circuits), name)

    def do_show(self, line: str) -> None:
        """Show days and nights: show ocs0 50ms 0>1,1>0 20ms - 50ms 0>2,2>0."""
        name, program = _halves(line)
        self._try(lambda: self._network.northbound.show(name, program), name)

    def do_device(self, line: str) -> None:
        """Make an OCS behave as a device, or list them: device ocs0 mems-3d (device)."""
        name, device = _halves(line)
        if not name:
            self._console.print(devices_table())
            return

        def set_device() -> object:
            darkness = (
                darkness_of(device_named(device), self._time, self._network.rate_factor)
                if device
                else Darkness()
            )
            return self._network.northbound.set_darkness(name, darkness)

        self._try(set_device, name)

    def _ocses(self) -> list[str]:
        return [switch.name for switch in self._network.fabric.switches if switch.kind == "ocs"]

    def _try(self, command: Callable[[], object], name: str) -> None:
        """Do something to an OCS and show what came of it, or say why not."""
        try:
            command()
            self._network.northbound.wait_idle(name, WAIT_S)
        except LightrailError as error:
            self._console.print(str(error), style="red")
            return
        self.do_circuits("")


def devices_table() -> Table:
    """Return the table of devices, with their sources."""
    table = Table("device", "what", "ports", "delay", "p99", "source", box=None)
    for device in DEVICES.values():
        p99 = "" if device.delay_p99_s is None else _text(device.delay_p99_s)
        table.add_row(
            device.name, device.what, str(device.ports or ""), _text(device.delay_s), p99, device.source
        )
    return table


def _text(time_s: float) -> str:
    unit_s, unit = next((u for u in UNITS if time_s >= u[0] * 0.9999), UNITS[-1])
    return f"{time_s / unit_s:g} {unit}"


def _halves(line: str) -> tuple[str, str]:
    name, _, rest = line.strip().partition(" ")
    return name, rest.strip()
