"""The options that scenarios share, each with the help that teaches it."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from testbed.machine.congestion import check_known
from testbed.machine.datapath import DEFAULT, Datapath
from testbed.run.calibrate import FASTEST_NIC_BPS, SLOWEST_NIC_BPS
from topologies.addresses import ENTROPIES
from topologies.errors import ScenarioError
from topologies.fabric import MOST_BUFFER_BYTES, Fabric
from topologies.own import own_fabric
from traffic.fault_text import WrittenFault
from traffic.job import LONGEST_S
from traffic.packets import frame_bytes
from traffic.transports.host_settings import TransportSetup
from traffic.transports.registry import check_transport, congestion_control

DEFAULT_TRANSPORTS = "credit,tcp"
"""Two that exist: a conclusion that holds under one of them alone is one about the transport."""
MOST_WINDOW_PACKETS = 1000
MOST_TIMEOUT_MS = 100_000.0
"""The kernel's own longest is 120 s."""

LEAST_VOLUME, MOST_VOLUME = 1e-12, 1e3
"""Of emulated over real bytes: a byte of a terabyte, and far more than a run of seconds ever needs."""
Word = TypeVar("Word", bound=str)
MOST_SEEDS = 10_000
MOST_JOBS = 1000
MOST_GBPS = 1e6
MOST_NUMBER = 1_000_000_000
"""Of a list of whole numbers that says nothing else."""

Servers = Annotated[int, typer.Option(help="Servers, each with as many GPUs and NICs as there are rails.")]
Rails = Annotated[int, typer.Option(help="Rails; NIC n of every server is on leaf n.")]
OwnFabric = Annotated[
    str | None,
    typer.Option(
        "--fabric",
        metavar="FABRIC",
        help="A fabric of your own, as module:function or a JSON file (docs/own_fabric.md), in place of a"
        " rail fabric of the size and the rate above.",
    ),
]
Schemes = Annotated[
    str,
    typer.Option(
        help="Spraying schemes, comma-separated: ecmp, plb, minrtt, reps, spray, pxn, rails, optimal;"
        " ecmp:4, reps:8, pxn:4 have so many entropies; or your own as module:function (docs/own_scheme.md)."
    ),
]
Seeds = Annotated[
    int, typer.Option(help="How many seeds; each draws the workload, and what the switches hash, anew.")
]
EmulatedRate = Annotated[
    float | None,
    typer.Option(
        help="What a NIC is shaped to in the emulation [Mbit/s]; by default what this machine carries safely."
    ),
]
Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        help="Measure anew first what this machine carries (5 s), on which the automatic rate depends.",
    ),
]
Mtu = Annotated[
    int,
    typer.Option(
        help="MTU of the emulation's links, 1500 to 9000 [bytes]. Small packets are more per message, and"
        " cost the switch as much each: the automatic rate is as much lower."
    ),
]
Buffer = Annotated[
    int | None,
    typer.Option(
        help="What a switch port holds in the emulation before it drops [full packets of --mtu];"
        " by default 2 MiB."
    ),
]
Volume = Annotated[
    float | None,
    typer.Option(
        help="Emulated over real bytes, which makes times as much longer or shorter; by default as much as"
        " takes long enough to be timed."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print what the emulation would keep of the real network's dimensionless numbers, and how long"
        " the run would take, and boot nothing; a machine that is not calibrated is first (5 s).",
    ),
]
LinkDelay = Annotated[
    float,
    typer.Option(
        "--link-delay-us",
        help="Propagation delay of every link, one way, at real scale [us]; needs a kernel with netem.",
    ),
]
RealLinkDelay = Annotated[
    float,
    typer.Option(
        "--real-link-delay-us",
        help="Propagation delay of a link of the real network, one way, for its dimensionless numbers; what"
        " is emulated has --link-delay-us [us].",
    ),
]
Loss = Annotated[
    float,
    typer.Option(
        "--loss",
        help="Share of packets that every link loses at random in each direction, 0.01 for 1 %: of the"
        " emulation's packets (--mtu), at any scale; needs a kernel with netem.",
    ),
]
Transports = Annotated[
    str | None,
    typer.Option(
        "--transport",
        help="What moves bytes between NICs, comma-separated: credit (datagrams that receivers grant), tcp"
        " (the kernel's; also tcp:bbr, tcp:reno ...), ideal (clairvoyant), or your own as module:Class"
        f" (docs/own_transport.md). By default {DEFAULT_TRANSPORTS}, or the one that the scenario is about;"
        " the first of them where nothing is emulated.",
    ),
]
Entropies = Annotated[
    int,
    typer.Option(
        help=f"How many of a NIC's {ENTROPIES} entropies schemes have that choose as they go, where packets"
        " are datagrams (credit; docs/spraying.md)."
    ),
]
InitialWindow = Annotated[
    int | None,
    typer.Option(
        "--initial-window",
        help="TCP's initial window [packets]; by default as the transport needs it, see run.json.",
    ),
]
LeastTimeout = Annotated[
    float | None,
    typer.Option(
        "--least-rto-ms",
        help="TCP's least retransmission timeout in the emulation [ms]; under tcp by default twice the round"
        " trip through a full port.",
    ),
]
ShareQueuePairs = Annotated[
    bool,
    typer.Option(
        "--share-queue-pairs",
        help="Have all collectives share queue pairs, instead of each communicator having its own"
        " (docs/jobs.md).",
    ),
]
Fail = Annotated[
    str | None,
    typer.Option(
        "--fail",
        help="What fails, comma-separated, such as nic:3:1@40%-70%: NIC 1 of server 3, from 40 to 70 % of the"
        " prediction. Also link:leaf0-spine1@2ms, link:leaf0:3@40%, server:2@40%, gpu:5@40%, port:ocs0:3@40%,"
        " controller@40%, switches@40%; nic:3:1@40%=0.5 goes on at half its rate, nic:3:1@40%=loss:0.01 loses"
        " 1 % of its packets. Every point runs without and with it.",
    ),
]
DelayMs = Annotated[float, typer.Option("--delay-ms", help="Reconfiguration delay of the OCSes [ms].")]
NicRate = Annotated[float, typer.Option("--rate", help="Rate of a NIC, at real scale [Gbit/s].")]
DetectAfter = Annotated[
    float,
    typer.Option(
        "--detect-us", help="How long after a fault, and after its end, everybody knows, at real scale [us]."
    ),
]
ModelOnly = Annotated[
    bool,
    typer.Option("--model-only", help="Predict by the fluid model and emulate nothing; needs no rights."),
]
Cli = Annotated[
    bool,
    typer.Option(
        "--cli",
        help="Open Mininet's CLI on the live fabric, and measure nothing; it has replay, rates and fail too.",
    ),
]
NoSandbox = Annotated[
    bool,
    typer.Option(
        "--no-sandbox", help="Use the machine's own Open vSwitch and namespaces, as plain Mininet does."
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
        "--datapath",
        envvar=DEFAULT,
        help="What forwards: Open vSwitch's daemon (netdev, the same on every machine), or the kernel's"
        " openvswitch module, where the machine has it (kernel).",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        parser=directory, metavar="DIRECTORY", help="Results directory; by default ./results/SCENARIO/TIME."
    ),
]
Jobs = Annotated[int, typer.Option(help="How many processes predict and draw; by default as many as CPUs.")]
Resume = Annotated[
    Path | None,
    typer.Option(
        parser=directory,
        metavar="DIRECTORY",
        help="Go on with the run of a results directory: carry out the points that it lacks, and write its"
        " tables and its report anew (docs/study.md).",
    ),
]
Part = Annotated[
    str | None,
    typer.Option(
        metavar="K/N",
        help="Carry out the K-th of N parts of the points only, into the directory of --out, which all parts"
        " share; --resume with it joins them (docs/cluster.md).",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Carry points out on the machines of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT"
        " (docs/cluster.md).",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def own_alone(own: str, others: str, given: bool) -> Fabric:
    """Return the user's own fabric; ScenarioError if other options are given, which say its size too."""
    if given:
        raise ScenarioError(f"--fabric says what {others} say too", "leave out the one or the others")
    return own_fabric(own)


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


def whole_numbers(text: str, option: str, least: int = 1, most: int = MOST_NUMBER) -> list[int]:
    """Return the whole numbers of a list by commas, each once; ScenarioError for any other word."""
    words = listed(text)
    for word in words:
        is_whole = word.isdecimal() and word.isascii() and len(word) <= len(str(MOST_NUMBER))
        if not is_whole or not least <= int(word) <= most:
            raise ScenarioError(f"{word[:20]!r} of {option}", f"give whole numbers from {least} to {most}")
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


def transports(
    text: str, initial_window: int | None, least_timeout_ms: float | None, entropies: int = ENTROPIES
) -> list[TransportSetup]:
    """Return the transports of a list by commas, each once, with entropies and what hosts' TCP is set to."""
    if initial_window is not None and not 1 <= initial_window <= MOST_WINDOW_PACKETS:
        raise ScenarioError(
            f"an initial window of {initial_window} packets", f"give 1 to {MOST_WINDOW_PACKETS}"
        )
    if least_timeout_ms is not None and not 1 <= least_timeout_ms <= MOST_TIMEOUT_MS:
        raise ScenarioError(f"a least timeout of {least_timeout_ms:g} ms", f"give 1 to {MOST_TIMEOUT_MS:g}")
    timeout_s = None if least_timeout_ms is None else least_timeout_ms / 1e3
    return [
        TransportSetup(transport_named(name), initial_window, timeout_s, entropies) for name in listed(text)
    ]


def transport_named(name: str) -> str:
    """Return the name of a transport; ScenarioError if there is none."""
    check_transport(name)
    check_known(congestion_control(name))
    return name


def faults(text: str) -> list[WrittenFault]:
    """Return the faults of a list by commas."""
    return [WrittenFault(word) for word in listed(text)]


def real_link_delay_s(delay_us: float) -> float:
    """Return what a link of the real network delays [s]; ScenarioError if it is not a time."""
    if not 0 <= delay_us <= LONGEST_S * 1e6:
        raise ScenarioError(
            f"a real link's delay of {delay_us:g} us",
            f"give --real-link-delay-us from 0 to {LONGEST_S * 1e6:g}",
        )
    return delay_us / 1e6


def known_after_s(time_us: float, option: str = "--detect-us") -> float:
    """Return how long until faults are known [s]; ScenarioError if it is not a time."""
    if not 0 <= time_us <= LONGEST_S * 1e6:
        raise ScenarioError(
            f"faults that are known after {time_us:g} us", f"give {option} from 0 to {LONGEST_S * 1e6:g}"
        )
    return time_us / 1e6


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


def part_of(text: str) -> tuple[int, int]:
    """Return which part of how many a text like 3/20 names; ScenarioError if it names none."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if found and 1 <= int(found[1]) <= int(found[2]):
        return int(found[1]), int(found[2])
    raise ScenarioError(f"{text!r} is not a part", "give --part like 3/20, from 1/20 to 20/20")


def check_jobs(jobs: int) -> int:
    """Return a number of processes; ScenarioError if it is not one."""
    if not 1 <= jobs <= MOST_JOBS:
        raise ScenarioError(f"{jobs} processes", f"give --jobs from 1 to {MOST_JOBS}")
    return jobs
