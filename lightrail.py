"""All names that an experiment of one's own needs, behind one import: ``import lightrail as lr``.

===========  ===========================================================================================
experiments  Experiment, run, predict, Outcome, EventLog, timeline_of
fabrics      rail_fabric, fat_tree_fabric, leaf_spine_fabric, big_switch_fabric, parallel_ocs_fabric,
             patch_panel_fabric, draw_fabric; of one's own: Fabric, Switch, Link, Port, duplex
demands      uniform, sparse, sender_skew, receiver_skew, ocs_demand; demand_of_file; Demand, single
jobs         Job, Compute, Collective, AllToAll, Ring, PointToPoint; read_job, read_trace
circuits     Scheduled, over_ocses, Foreseen, ReconfigurationDelay, device_named; ONCE_LIT, WHILE_LIT
faults       Fault, When; Down, Slow, Lossy
programs     network
one's own    ProactivePolicy, ReactivePolicy, Schedule, Slot, Rule, Routing, Pattern, PerPacket, LinkEffect
===========  ===========================================================================================

Each is loaded when it is asked for first, so the import itself takes no time. ``dir(lightrail)`` lists all of
them, docs/reference/python.md describes them. The modules are lightrail's rooms, in the checkout beside this
file.
"""

import ast
import sys
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # type checkers and editors read these imports, and so does `_modules`
    from controller.circuits.devices import (
        ReconfigurationDelay as ReconfigurationDelay,
        device_named as device_named,
        real_delay as real_delay,
    )
    from controller.circuits.foreseen import Foreseen as Foreseen
    from controller.circuits.rule import Rule as Rule
    from controller.schedulers.demand import Matrix as Matrix
    from controller.schedulers.matching import heaviest_permutation as heaviest_permutation
    from controller.schedulers.schedule import Schedule as Schedule, Slot as Slot
    from scenarios.api.experiments import run as run
    from scenarios.api.network import network as network
    from testbed.report.fabric_drawing import draw_fabric as draw_fabric
    from testbed.report.timeline import timeline_of as timeline_of
    from testbed.experiment.dilation import Dilation as Dilation
    from testbed.experiment.experiment import Experiment as Experiment
    from testbed.experiment.ocs_plan import (
        Scheduled as Scheduled,
        dilation_for as dilation_for,
        over_ocses as over_ocses,
    )
    from testbed.core.event_log import EventLog as EventLog
    from testbed.trust.outcome import Outcome as Outcome
    from testbed.model.predict import predict as predict
    from topologies.big_switch import big_switch_fabric as big_switch_fabric
    from topologies.errors import LightrailError as LightrailError
    from topologies.events import (
        NodeStarted as NodeStarted,
        Reconfigure as Reconfigure,
        SetTimer as SetTimer,
        TimerFired as TimerFired,
    )
    from topologies.fabric import (
        Fabric as Fabric,
        Link as Link,
        Port as Port,
        Switch as Switch,
        equal_servers as equal_servers,
    )
    from topologies.fat_tree import fat_tree_fabric as fat_tree_fabric
    from topologies.leaf_spine import leaf_spine_fabric as leaf_spine_fabric
    from topologies.light import duplex as duplex
    from topologies.parallel_ocs import parallel_ocs_fabric as parallel_ocs_fabric
    from topologies.patch_panel import patch_panel_fabric as patch_panel_fabric
    from topologies.rail import rail_fabric as rail_fabric
    from topologies.routes import Routes as Routes
    from topologies.routing import Routing as Routing
    from traffic.collectives.all_to_all import AllToAll as AllToAll
    from traffic.collectives.pattern import Pattern as Pattern
    from traffic.collectives.point_to_point import PointToPoint as PointToPoint
    from traffic.collectives.ring import Ring as Ring
    from traffic.congestion.control import (
        Acknowledged as Acknowledged,
        CongestionControl as CongestionControl,
        Granted as Granted,
        Lost as Lost,
        PerPacket as PerPacket,
        Pipe as Pipe,
        ReceiverControl as ReceiverControl,
        Red as Red,
        Sent as Sent,
    )
    from traffic.demand import Demand as Demand
    from traffic.effects import (
        DaemonEffect as DaemonEffect,
        Down as Down,
        GpuEffect as GpuEffect,
        LinkEffect as LinkEffect,
        LinkState as LinkState,
        Lossy as Lossy,
        Slow as Slow,
    )
    from traffic.faults import Fault as Fault, When as When
    from traffic.job import Collective as Collective, Compute as Compute, Job as Job
    from traffic.job_file import read_job as read_job
    from traffic.messages import Chunks as Chunks, Messages as Messages
    from traffic.ops import each_alone as each_alone
    from traffic.readers.detect import read_trace as read_trace
    from traffic.scheme_setup import ONCE_LIT as ONCE_LIT, ROUTED as ROUTED, WHILE_LIT as WHILE_LIT
    from traffic.spraying.policy import (
        Assignment as Assignment,
        LaneSet as LaneSet,
        ProactivePolicy as ProactivePolicy,
        ReactivePolicy as ReactivePolicy,
    )
    from traffic.spraying.rails import rails_of as rails_of, same_rail as same_rail
    from traffic.steps import single as single
    from traffic.transports.host_settings import TransportSetup as TransportSetup
    from traffic.workloads.ocs_workloads import demand_of_file as demand_of_file, ocs_demand as ocs_demand
    from traffic.workloads.synthetic import (
        receiver_skew as receiver_skew,
        sender_skew as sender_skew,
        sparse as sparse,
        uniform as uniform,
    )

_OUTSIDE = """\
lightrail runs from its checkout, and this is a copy of lightrail.py alone; install that checkout with \
pip install --editable, or as root: bash vagrant/provision.sh"""
_PYTHON = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
"""The checkout's own, which has the packages."""


@cache
def _modules() -> dict[str, str]:
    """Return the module of each name: the imports above, which Python itself does not carry out."""
    tree = ast.parse(Path(__file__).read_text())
    block = next(each for each in tree.body if isinstance(each, ast.If))
    return {
        alias.name: each.module or ""
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }


def _loaded(module: str) -> ModuleType:
    """Return a module of lightrail's rooms; ImportError if they or the packages they need are not here."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module.partition(".")[0]:
            raise ImportError(_OUTSIDE, name="lightrail") from None
        if not _PYTHON.exists() or Path(sys.prefix).resolve() == _PYTHON.parents[1].resolve():
            raise
        has_not = f"{sys.executable} has no package {error.name}, which lightrail needs"
        raise ImportError(f"{has_not}; run this with {_PYTHON}", name="lightrail") from None


def __getattr__(name: str) -> object:
    """Return a name of lightrail's, loaded now; Python asks this once for each."""
    if name not in _modules():
        close = get_close_matches(name, _modules())
        hint = f"did you mean {' or '.join(close)}?" if close else "dir(lightrail) lists what it has"
        raise AttributeError(f"lightrail has no {name!r}; {hint}")
    value: object = getattr(_loaded(_modules()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_modules())


def main() -> None:
    """Run the command ``lightrail``."""
    try:
        command = _loaded("scenarios.api.command")
    except ImportError as error:
        if error.name != "lightrail":
            raise
        print(error, file=sys.stderr)
        sys.exit(2)
    command.main()


if __name__ == "__main__":
    main()
