"""An optical fabric to explore by hand: light circuits, type days and nights, ping over them."""

import _checkout  # first: runs this file under the checkout's Python

from typing import Annotated

import typer

from controller.circuits.devices import ReconfigurationDelay, delay_of, device_named, real_delay
from testbed.cli.cli import explored
from testbed.experiment.ocs_plan import Scheduled, over_ocses
from testbed.study.command import main
from testbed.study.options import DatapathOption, Debug, NoWait, check_ports, emulated_bps
from testbed.study.worker import EmulationWorker
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.job import Job
from traffic.workloads.ocs_workloads import SCALED, ocs_demand

MOST_TIMES = 1e9
"""Emulated over real time, at most: the fastest device of 3.8 ns is then dark for some seconds."""
LINE_S = 0.1
"""How long the busiest NIC sends alone in what is replayed, at real scale."""


def ocs_explore(
    servers: Annotated[int, typer.Option(help="Servers, each with a NIC on every OCS.")] = 4,
    ocses: Annotated[int, typer.Option(help="OCSes side by side.")] = 2,
    packet_switch: Annotated[
        bool, typer.Option("--packet-switch", help="One more NIC on a packet switch.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="What each OCS stands for; the CLI's 'device' lists all.")
    ] = "mems-3d",
    time: Annotated[
        float, typer.Option(help="Emulated over real time: with 1000 a delay of 10 us becomes 10 ms.")
    ] = 1.0,
    emulated_rate: Annotated[
        float, typer.Option(help="What a NIC of 100 Gbit/s is shaped to in the emulation [Mbit/s].")
    ] = 100.0,
    cli: Annotated[
        bool, typer.Option("--cli", help="Open Mininet's CLI: all that this does, also without the option.")
    ] = True,
    datapath: DatapathOption = "netdev",
    no_wait: NoWait = False,
    debug: Debug = False,
) -> None:
    """Servers on parallel OCSes, and Mininet's CLI with some commands more.

    'circuits' shows what is lit; 'light ocs0 0>1 1>0' lights; 'show ocs0 50ms 0>1,1>0 20ms -' types
    days and nights; 'device ocs0 polatis' changes the delay; 'replay benchmark spectra' executes a
    schedule. Circuits go one way: for a ping ('h0 ping 10.0.0.2') light both.
    """
    check_ports(device_named(device), servers)
    fabric = parallel_ocs_fabric(servers, ocses, packet_switch=packet_switch)
    rate = emulated_bps(emulated_rate) / fabric.nic_rate_bps(fabric.nics[0])
    delay, jobs = _delay(device, time), _jobs(fabric)
    schedule = Scheduled("spectra", real_delay(device_named(device)))
    with EmulationWorker(terminal=True, waits=not no_wait) as worker:
        list(worker.call(explored, fabric, rate, datapath, jobs, delay, schedule, time))


def _jobs(fabric: Fabric) -> dict[str, Job]:
    """Return what can be replayed over the OCSes, by name: as much as a line carries in 100 ms."""
    servers, ocses = len(fabric.servers), sum(switch.kind == "ocs" for switch in fabric.switches)
    line_bytes = LINE_S * fabric.nic_rate_bps(fabric.nics[0]) / 8
    demands = {name: ocs_demand(name, 0, servers, line_bytes) for name in SCALED} if servers > 1 else {}
    return {name: over_ocses(demand, ocses) for name, demand in demands.items()}


def _delay(device: str, time: float) -> ReconfigurationDelay:
    """Return how long the OCSes are dark in emulated time; ScenarioError if no --time or too little."""
    if not 0 < time <= MOST_TIMES:
        raise ScenarioError(
            f"emulated time cannot be {time:g} times real time", f"give --time above 0, up to {MOST_TIMES:g}"
        )
    return delay_of(device_named(device), time)


if __name__ == "__main__":
    main(ocs_explore)
