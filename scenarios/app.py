"""An application on the hosts of an emulated fabric: MPI, JAX, iperf3, or any other program."""

import _checkout  # first: runs this file under the checkout's Python

import math
import os
import sys
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Annotated, cast

import typer

from scenarios.api.draw import Name, Set, fabric_named
from testbed.apps.app_checks import check_command, check_joined, check_tool, check_transport_of_hosts
from testbed.apps.app_faults import AppFault, app_faults
from testbed.apps.app_processes import Place
from testbed.apps.app_run import AppPlan
from testbed.apps.captures import captures_of
from testbed.apps.environment import of_asker
from testbed.apps.launchers import Launch, Launcher, Over, Per, hosts_named, launch
from testbed.live.emulate import check_slowed_light
from testbed.study.app_study import Carrying, run_app
from testbed.study.command import main
from testbed.study.options import (
    DatapathOption,
    Debug,
    NoWait,
    Out,
    Plots,
    check_effect,
    emulated_bps,
    listed,
    plot_formats,
)
from testbed.study.study_tables import FORMS, Makes
from testbed.study.toml_document import assigned
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.packets import DEFAULT_MTU
from traffic.transports.host_settings import TransportSetup

MOST_SCALE, MOST_S = 1e6, 1e6
BUILDERS = cast(Mapping[str, Makes], FORMS["fabric"]["builder"]).values()
Command = Annotated[
    list[str] | None, typer.Argument(metavar="-- COMMAND", help="The program and its arguments, behind --.")
]


def app(
    fabric: Name,
    command: Command = None,
    parameters: Set = [],  # noqa: B006
    on: Annotated[
        str | None, typer.Option(help="The hosts that take part, such as h0-h3,h5; by default all.")
    ] = None,
    launcher: Annotated[
        Launcher,
        typer.Option(
            "--launch",
            help="What starts it: each (the command on each host), mpirun, torchrun, jax (all three: a rank"
            " per GPU), or ssh (once, on the first host; it starts others by lightrail-ssh).",
        ),
    ] = "each",
    per: Annotated[
        Per | None, typer.Option(help="One process per host or per gpu; by default as the launcher has it.")
    ] = None,
    emulated_rate: Annotated[
        float | None,
        typer.Option(
            help="What the fastest NIC is shaped to [Mbit/s]; by default what this machine carries safely."
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Measure anew first what this machine carries (25 s)."),
    ] = False,
    transport: Annotated[
        str, typer.Option(help="The TCP of hosts: tcp (cubic), tcp:bbr, tcp:reno, tcp:dctcp ...")
    ] = "tcp",
    mptcp: Annotated[
        bool, typer.Option("--mptcp", help="Have the program's sockets use all NICs, by MPTCP (mptcpize).")
    ] = False,
    over: Annotated[
        Over | None,
        typer.Option(
            help="The addresses that OpenMPI uses: nics (one each), or host (one for all NICs of a host); by"
            " default nics, and host where circuits alone join hosts."
        ),
    ] = None,
    fail: Annotated[
        str | None,
        typer.Option(
            help="What fails, comma-separated, such as nic:0:1@2s-4s: NIC 1 of server 0, from 2 to 4 seconds"
            " after the start. server:3@2s ends its processes too (docs/reference/apps.md)."
        ),
    ] = None,
    compute_scale: Annotated[
        float,
        typer.Option(help="How many times as long programs compute that heed LIGHTRAIL_SCALE."),
    ] = 1.0,
    pcap: Annotated[
        str | None,
        typer.Option(help="NICs whose packets are kept, such as h0:0,h3:1, for tcpdump and Wireshark."),
    ] = None,
    against: Annotated[
        bool,
        typer.Option(
            "--against", help="Carry the bytes of the heaviest phase again, by lightrail's own generator."
        ),
    ] = False,
    demand: Annotated[
        Path | None,
        typer.Option(
            help="A matrix of the bytes that the program was to send, from server to server or GPU to GPU,"
            " for the report. It is read when the program has ended, which may write it."
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="After how long the application is ended [s]; by default never.")
    ] = None,
    datapath: DatapathOption = "netdev",
    no_wait: NoWait = False,
    out: Out = None,
    plots: Plots = "png",
    debug: Debug = False,
) -> None:
    """Run a program on the hosts of a fabric, and say what it did to the network.

    `app.py rail --set servers=4 --set rails=2 --launch mpirun -- /usr/bin/python3 mine.py` runs a rank per
    GPU. What it writes stands behind the names of hosts, and in hosts/ as it is; the exit code is its own.
    Computing is not slowed down, the network is: the first line says how much.
    docs/howto/programs_on_hosts.md shows more.
    """
    wired = fabric_named(fabric, [assigned(text) for text in parameters], "scenarios/app.py")
    words, env = tuple(command or ()), of_asker(os.environ)
    hosts = hosts_named(wired, on)
    check_command(words, env, os.getcwd())
    check_joined(wired, hosts)
    check_transport_of_hosts(transport)
    begun = _launch(wired, launcher, hosts, words, per, over, mptcp=mptcp)
    plan = AppPlan(
        fabric=wired,
        launch=begun,
        place=Place(env, os.getcwd(), _scale(compute_scale)),
        command=words,
        command_line=("python", *sys.argv),
        launcher=launcher,
        rate=math.nan,
        transport=TransportSetup(transport),
        mtu=DEFAULT_MTU,
        datapath=datapath,
        scheme="rails" if launcher == "mpirun" and over != "host" else "ecmp",
        faults=_faults(fail, wired),
        mptcp=mptcp,
        against=against,
        timeout_s=_timeout_s(timeout),
        captures=captures_of(pcap, wired) if pcap is not None else (),
    )
    if emulated_rate is not None:
        check_effect("--emulated-rate says what NICs are shaped to", {"--calibrate": calibrate})
    how = Carrying(
        rate_bps=None if emulated_rate is None else emulated_bps(emulated_rate),
        calibrate=calibrate,
        out=out,
        formats=plot_formats(plots),
        waits=not no_wait,
        demand=demand,
    )
    raise typer.Exit(run_app(plan, how))


def check_typed(words: Sequence[str]) -> None:
    """Raise ScenarioError if no -- precedes a command, or a builder's parameter is typed as an option.

    Options of a command that stands before -- would be taken for those of app.py.
    """
    options = words[: words.index("--")] if "--" in words else words
    if not options or {"-h", "--help"} & {*options}:
        return
    for word in options:
        key = word.removeprefix("--").partition("=")[0].replace("-", "_")
        if word.startswith("--") and any(key in signature(each).parameters for each in BUILDERS):
            raise ScenarioError(f"--{key} is a parameter of a builder", f"write --set {key}=VALUE")
    if "--" not in words:
        raise ScenarioError("there is no command to run", "write it behind --, as in: -- hostname")


def _launch(
    fabric: Fabric,
    launcher: Launcher,
    hosts: tuple[int, ...],
    words: tuple[str, ...],
    per: Per | None,
    over: Over | None,
    *,
    mptcp: bool,
) -> Launch:
    """Return the processes that the application begins with; refuse a launcher that is not installed."""
    path = os.environ.get("PATH", os.defpath)
    if launcher == "mpirun":
        check_tool("mpirun", path)
    elif over:
        raise ScenarioError(
            "--over is for OpenMPI, so it has no effect", "give --launch mpirun, or leave it out"
        )
    if mptcp:
        check_tool("mptcpize", path)
        words = ("mptcpize", "run", *words)
    has_packets = any(switch.kind == "packet" for switch in fabric.switches)
    return launch(fabric, launcher, hosts, words, per=per, over=over or ("nics" if has_packets else "host"))


def _faults(text: str | None, fabric: Fabric) -> tuple[AppFault, ...]:
    """Return the faults; refuse those that cannot be emulated."""
    faults = () if text is None else app_faults(listed(text), fabric)
    check_slowed_light(fabric, [each.fault for each in faults])
    return faults


def _scale(scale: float) -> float:
    if not 0 < scale <= MOST_SCALE:
        raise ScenarioError(f"a compute scale of {scale:g}", f"give one above 0, up to {MOST_SCALE:g}")
    return scale


def _timeout_s(timeout: float | None) -> float:
    if timeout is None:
        return math.inf
    if not 0 < timeout <= MOST_S:
        raise ScenarioError(f"a timeout of {timeout:g} s", f"give one above 0, up to {MOST_S:g}")
    return timeout


if __name__ == "__main__":
    main(app, check_typed)
