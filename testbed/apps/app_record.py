"""All that a run of an application left: what ran, whether to believe it, what was measured; one value.

Its files are `testbed.report.app_files`. All times are seconds of the emulation since the processes began
together; an application's own time is not slowed down, so they are its seconds too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.machine.versions import machine, versions
from testbed.trust.outcome import Measures, Verdict
from topologies.fabric import Fabric

LINKS = {"port": "str", "at_s": "float64", "bytes": "int64", "packets": "int64", "drops": "int64",
         "backlog_bytes": "int64"}  # fmt: skip
"""A row per port that sends and tick in which it sent, dropped or had something waiting: the port; the start
of the tick; what it sent, Ethernet's headers among it, and what its queue dropped in the tick; the most that
a reading of its queue found [bytes]. NICs' own queues are not seen over time, see `HostTcp.nic_drops`."""
TRAFFIC = {"at_s": "float64", "source": "int32", "destination": "int32", "packets": "int64",
           "wire_bytes": "int64", "payload_bytes": "int64"}  # fmt: skip
"""A row per bin of time and two hosts of which one sent to the other: the start of the bin, the indices of
the servers, packets, their IP lengths, and the payload of TCP and UDP in them that was sent for the first
time [bytes]."""
FLOWS = {"flow": "int32", "protocol": "str", "source": "int32", "destination": "int32",
         "source_address": "str", "source_port": "int32", "destination_address": "str",
         "destination_port": "int32", "first_s": "float64", "last_s": "float64", "packets": "int64",
         "wire_bytes": "int64", "payload_bytes": "int64", "resent_bytes": "int64"}  # fmt: skip
"""A row per flow, which goes one way: its number, its ends, when its first and last packets left its host,
and as of `TRAFFIC`; payload that was sent again is in ``resent_bytes``."""
PATHS = {"flow": "int32", "first_s": "float64", "last_s": "float64", "packets": "int64",
         "path": "str"}  # fmt: skip
"""A row per flow and stretch of time in which it kept a path: when the first and the last packet of it were
seen there, how many of the sampled ones, and the ports that sent it, divided by spaces, the NIC first. Two
rows of a flow are a change of path between ``last_s`` of one and ``first_s`` of the next."""
LIGHT = {"ocs": "str", "circuits": "str", "start_s": "float64", "end_s": "float64"}
"""A row per OCS and stretch of time in which it showed the same: the pairs of ports that were lit, as
``0>1 1>0``; nothing while it was dark."""


@dataclass(frozen=True)
class AppProcess:
    """A process of the application, as it was started and as it ended."""

    host: int
    """Index of its server."""
    rank: int
    """Its number among all processes that the launcher started."""
    command: tuple[str, ...]
    """Its command line."""
    exit_code: int | None
    """As a shell has it, 128 plus the number after a signal; None if it was still there at the end."""
    end_s: float
    """When it ended, or was ended [s]."""
    output: str = ""
    """The file of its output in the results directory, such as ``hosts/h0.out``."""


@dataclass(frozen=True)
class AppEvent:
    """Something that befell the network in the run: what a fault broke or mended, orders by hand."""

    at_s: float
    """When [s]."""
    what: str
    """``failed``, ``mended``, ``ordered`` or ``missed``: a fault whose time came after the end."""
    text: str
    """Of what, as it was written: ``nic:0:1``."""


@dataclass(frozen=True)
class HostTcp:
    """The counts of a host's own kernel from the start of the processes to the end of the last."""

    host: int
    """Index of the server."""
    segments: int
    """TCP segments sent, those again not among them (``Tcp: OutSegs``)."""
    resent: int
    """TCP segments sent again (``Tcp: RetransSegs``)."""
    timeouts: int
    """Times that TCP waited for its timeout before it sent again (``TcpExt: TCPTimeouts``)."""
    nic_drops: int
    """Packets that the queues of its NICs dropped."""
    unread: int = 0
    """Datagrams that came and for which a program's socket had no room (``Udp: RcvbufErrors``)."""


@dataclass(frozen=True)
class TapCounts:
    """How the tap on the wire fared."""

    packets: int
    """Packets that hosts sent and it counted."""
    missed: int
    """Packets that came faster than they were read: bytes of `TRAFFIC` and `FLOWS` lack them, but for TCP's
    payload, whose sequence numbers say it."""
    cpu_s: float
    """CPU time that reading took [s]."""
    bin_s: float
    """Width of the bins of `TRAFFIC` [s]."""


@dataclass(frozen=True)
class Beside:
    """The same bytes, carried by lightrail's own generator over the same network, and as predicted."""

    what: str
    """Which bytes: ``phase 2 of the application``, or the file of a matrix."""
    payload_bytes: int
    application_s: float
    """How long the application took for it [emulated s]."""
    generator_s: float
    """How long the generator took [emulated s]; NaN if it did not carry it."""
    predicted_s: float
    """How long the model says [emulated s]."""
    transport: str
    """The transport of the generator's bytes."""
    verdict: Verdict
    """Of the generator's run."""


@dataclass(frozen=True, eq=False)
class AppTables:
    """Measurements over time; times are seconds since the start of the processes."""

    links: pd.DataFrame
    """`LINKS`, by `testbed.apps.counters`."""
    traffic: pd.DataFrame
    """`TRAFFIC`, by `testbed.apps.traffic_tap`."""
    flows: pd.DataFrame
    """`FLOWS`, by the same."""
    paths: pd.DataFrame
    """`PATHS`, by the same."""
    light: pd.DataFrame
    """`LIGHT`, by whoever hears what OCSes report; empty on fabrics without."""


@dataclass(frozen=True, eq=False)
class AppRecord:
    """All that a run of an application left.

    `testbed.apps.app_run` fills it: `testbed.apps.counters` gives it ``tables.links``, ``tick_s`` and
    ``hosts``, `testbed.apps.traffic_tap` gives ``tap`` and the other tables but that of light.
    """

    fabric: Fabric
    """The network at real rates."""
    command_line: tuple[str, ...]
    """How the run was begun."""
    command: tuple[str, ...]
    """The application: what a user wrote behind ``--``."""
    launcher: str
    """``each``, ``mpirun``, ``torchrun``, ``jax`` or ``ssh``."""
    transport: str
    """The setting of hosts' TCP: ``tcp:cubic``, or ``tcp:cubic, MPTCP``."""
    rate_factor: float
    """Emulated rate over real rate."""
    started: datetime
    """When the processes began."""
    duration_s: float
    """From then to the end of the last of them [s]."""
    processes: tuple[AppProcess, ...]
    verdict: Verdict
    """Whether this machine was able to carry it."""
    measures: Measures
    """Measurements of the machine."""
    hosts: tuple[HostTcp, ...]
    """Of each host on which the application ran; none where this could not be read."""
    tap: TapCounts
    tick_s: float
    """Width of the ticks of `LINKS` [s]."""
    tables: AppTables
    compute_scale: float = 1.0
    """``LIGHTRAIL_SCALE``: by how much programs that heed it stretch their computing."""
    stopped: str = ""
    """Why it was ended before its own end, a sentence; empty if it was not."""
    events: tuple[AppEvent, ...] = ()
    """In order of time."""
    demand: NDArray[np.int64] | None = None
    """Payload that it was to send from server to server, if somebody said [bytes]."""
    beside: Beside | None = None
    predicted_s: float = math.nan
    """How long the model says that it takes with what failed and its own pauses; NaN if unknown [s]."""
    pcaps: tuple[str, ...] = ()
    """Captures in the results directory."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings as the machine had them; anything that JSON can hold."""
    versions: Mapping[str, str] = field(default_factory=versions)
    """Of all that ran it."""
    machine: Mapping[str, str | int] = field(default_factory=machine)
    """Its architecture and its CPUs."""

    @property
    def failed(self) -> bool:
        """Whether something of the network failed while it ran."""
        return any(event.what == "failed" for event in self.events)

    @property
    def exit_code(self) -> int:
        """The first exit code that is not 0, in order of ranks; 1 where a process had to be ended."""
        codes = (1 if each.exit_code is None else each.exit_code for each in self.processes)
        return next(filter(None, codes), 0)
