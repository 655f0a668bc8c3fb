"""The options that scenarios share, each with the help that teaches it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from controller.circuits.devices import Device
from testbed.machine.congestion import check_known
from testbed.machine.datapath import DEFAULT, Datapath
from testbed.report.page import FORMATS, Format
from testbed.trust.calibrate import FASTEST_NIC_BPS, SLOWEST_NIC_BPS
from topologies.errors import ScenarioError
from topologies.fabric import MOST_BUFFER_BYTES
from traffic.fault_text import WrittenFault
from traffic.job import LONGEST_S
from traffic.packets import frame_bytes
from traffic.transports.registry import check_transport, congestion_control

DEFAULT_TRANSPORTS = "credit,tcp"
"""Two that exist: a conclusion that holds under one of them alone is one about the transport."""

LEAST_VOLUME, MOST_VOLUME = 1e-12, 1e3
"""Of emulated over real bytes: a byte of a terabyte, and far more than a run of seconds ever needs."""
Word = TypeVar("Word", bound=str)
MOST_SEEDS = 10_000
MOST_JOBS = 1000
MOST_GBPS = 1e6
MOST_NUMBER = 1_000_000_000
"""Of a list of whole numbers that says nothing else."""

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print what the emulation would keep of the real network's dimensionless numbers, and how long"
        " the run would take, and boot nothing; a machine that is not calibrated is first (25 s).",
    ),
]
NicRate = Annotated[float, typer.Option("--rate", help="Rate of a NIC, at real scale [Gbit/s].")]
NoSandbox = Annotated[
    bool,
    typer.Option(
        "--no-sandbox", help="Use the machine's own Open vSwitch and namespaces, as plain Mininet does."
    ),
]
NoWait = Annotated[
    bool,
    typer.Option(
        "--no-wait", help="End with an error if another emulation runs on this machine, instead of waiting."
    ),
]


def directory(text: str) -> Path:
    """Return a path; ScenarioError for none, which would be the directory that one happens to be in."""
    if not text.strip():
        raise ScenarioError("--out names no directory", "leave it out, or give a directory")
    return Path(text)


DatapathOption = Annotated[
    Datapath,
    typer.Option(
        envvar=DEFAULT,
        metavar="NAME",
        help="What forwards: Open vSwitch's daemon (netdev, the same on every machine), the kernel's"
        " openvswitch module, where the machine has it (kernel), or packet switches that are network"
        " namespaces and route (route, from Linux 6.11 on).",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        parser=directory, metavar="DIRECTORY", help="Results directory; by default ./results/SCENARIO/TIME."
    ),
]
Plots = Annotated[
    str,
    typer.Option(
        metavar="FORMATS",
        help="Formats of the plots, comma-separated: png, pdf (vectors, fonts embedded), svg"
        " (docs/howto/figures.md).",
    ),
]
Events = Annotated[
    bool,
    typer.Option(
        "--events",
        help="Write what happened in each point, as text beside the point: points/KEY.predicted.events,"
        " and KEY.emulated.events where it is emulated (docs/explain/events.md).",
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error, and check the state of each run.")
]


def with_default(told: str, default: object) -> str:
    """Return the help of an option with its default, where None is that it was not given."""
    return told if default in (None, "") else f"{told} [default: {default}]"


def check_effect(why: str, options: Mapping[str, object], hint: str = "leave it out") -> None:
    """Refuse options that have no effect.

    Parameters
    ----------
    why
        The reason, which the sentence begins with.
    options
        Their values by name: None or False where one was not given.
    hint
        What to do.

    Raises
    ------
    ScenarioError
        If one was given.
    """
    if given := [name for name, value in options.items() if value not in (None, False)]:
        has = "has" if len(given) == 1 else "have"
        raise ScenarioError(f"{why}, so {' and '.join(given)} {has} no effect", hint)


def buffer_bytes(packets: int, mtu: int) -> int:
    """Return what a port holds that has room for so many full packets; ScenarioError for no such buffer."""
    most = MOST_BUFFER_BYTES // frame_bytes(mtu)
    if not 1 <= packets <= most:
        raise ScenarioError(f"port buffers of {packets} packets", f"give --buffer from 1 to {most}")
    return packets * frame_bytes(mtu)


def emulated_bps(rate_mbps: float) -> float:
    """Return what a NIC is shaped to [bit/s]; ScenarioError if links cannot be shaped to it."""
    if not SLOWEST_NIC_BPS <= rate_mbps * 1e6 <= FASTEST_NIC_BPS:
        raise ScenarioError(
            f"NICs cannot be emulated at {rate_mbps:g} Mbit/s each",
            f"give --emulated-rate from {SLOWEST_NIC_BPS / 1e6:g} to {FASTEST_NIC_BPS / 1e6:g}",
        )
    return rate_mbps * 1e6


def check_volume(volume: float | None) -> None:
    """Raise ScenarioError for a volume at which nothing can be emulated."""
    if volume is not None and not LEAST_VOLUME <= volume <= MOST_VOLUME:
        raise ScenarioError(
            f"{volume:g} times the bytes", f"give --volume from {LEAST_VOLUME:g} to {MOST_VOLUME:g}"
        )


def listed(text: str) -> list[str]:
    """Return the words of a list by commas, each once; ScenarioError if there are none."""
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise ScenarioError(f"the list {text!r} is empty", "separate its words by commas")
    return words


def chosen(text: str, known: Iterable[Word], option: str) -> list[Word]:
    """Return those words that a list by commas names, each once; ScenarioError for any other word."""
    choices = {str(word): word for word in known}
    words = listed(text)
    if unknown := [word for word in words if word not in choices]:
        raise ScenarioError(f"unknown word {unknown[0]!r} of {option}", f"choose from {', '.join(choices)}")
    return [choices[word] for word in words]


def plot_formats(text: str) -> list[Format]:
    """Return the formats of a list by commas; ScenarioError for any other word."""
    return chosen(text, FORMATS, "--plots")


def whole_numbers(text: str, option: str, most: int = MOST_NUMBER) -> list[int]:
    """Return the whole numbers from 1 on of a list by commas, each once; ScenarioError for any other word."""
    words = listed(text)
    for word in words:
        is_whole = word.isdecimal() and word.isascii() and len(word) <= len(str(MOST_NUMBER))
        if not is_whole or not 1 <= int(word) <= most:
            raise ScenarioError(f"{word[:20]!r} of {option}", f"give whole numbers from 1 to {most}")
    return list(dict.fromkeys(map(int, words)))


def size_bytes(size_mb: float, most_mb: float = 1e6) -> int:
    """Return a size [bytes]; ScenarioError for none, or for too large a one."""
    if not 0 < size_mb < most_mb:
        raise ScenarioError(f"a size of {size_mb:g} MB", f"give one above 0, and below {most_mb:g}")
    return round(size_mb * 1e6)


def nic_bps(rate_gbps: float, option: str = "--rate") -> float:
    """Return the rate of a NIC at real scale [bit/s]; ScenarioError if it is none."""
    if not 0 < rate_gbps <= MOST_GBPS:
        raise ScenarioError(f"{rate_gbps:g} Gbit/s of {option}", f"give a rate above 0, up to {MOST_GBPS:g}")
    return rate_gbps * 1e9


def transport_named(name: str) -> str:
    """Return the name of a transport; ScenarioError if there is none."""
    check_transport(name)
    check_known(congestion_control(name))
    return name


def faults(text: str) -> list[WrittenFault]:
    """Return the faults of a list by commas."""
    return [WrittenFault(word) for word in listed(text)]


def time_s(time_us: float, said: str, option: str) -> float:
    """Return the time that an option gives [s]; ScenarioError if it is none."""
    if not 0 <= time_us <= LONGEST_S * 1e6:
        raise ScenarioError(f"{said} {time_us:g} us", f"give {option} from 0 to {LONGEST_S * 1e6:g}")
    return time_us / 1e6


def known_after_s(time_us: float, option: str = "--detect-us") -> float:
    """Return how long until faults are known [s]; ScenarioError if it is not a time."""
    return time_s(time_us, "faults that are known after", option)


def share_at(percent: float) -> float:
    """Return when something fails, as a share of a time, from 0 to below 1; ScenarioError if it is none."""
    if not 0 <= percent < 100:
        raise ScenarioError(f"a failure at {percent:g} %", "give --at from 0 to below 100")
    return percent / 100


def shares(text: str) -> list[float]:
    """Return the numbers of a list by commas; ScenarioError if one is not a number."""
    try:
        return [float(word) for word in listed(text)]
    except ValueError as error:
        raise ScenarioError(f"{text!r} is not a list of numbers", "write them like 0.6,0.4") from error


def seed_range(count: int) -> range:
    """Return the seeds 0 .. count - 1; ScenarioError if there are none, or too many."""
    if not 1 <= count <= MOST_SEEDS:
        raise ScenarioError(f"{count} seeds", f"take 1 to {MOST_SEEDS}")
    return range(count)


def check_jobs(jobs: int) -> None:
    """Raise ScenarioError for a number of processes that is not one."""
    if not 1 <= jobs <= MOST_JOBS:
        raise ScenarioError(f"{jobs} processes", f"give --jobs from 1 to {MOST_JOBS}")


def check_ports(device: Device, servers: int) -> None:
    """Refuse more servers than the device has ports: each is on a port of every OCS."""
    if device.ports is not None and servers > device.ports:
        raise ScenarioError(
            f"{servers} servers on OCSes of {device.ports} ports, the most that {device.name} has",
            f"take {device.ports} servers or fewer, or another --device",
        )
