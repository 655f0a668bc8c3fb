"""All names that an experiment of one's own needs, behind one import: ``import lightrail as lr``.

Each is loaded when it is asked for first, so the import itself takes no time. The modules are lightrail's
rooms, in the checkout beside this file.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.circuits.devices import (
        ReconfigurationDelay as ReconfigurationDelay,
    )
    from controller.circuits.devices import (
        device_named as device_named,
    )
    from controller.circuits.devices import (
        real_delay as real_delay,
    )
    from controller.circuits.foreseen import Foreseen as Foreseen
    from controller.circuits.rule import Rule as Rule
    from controller.schedulers.matching import heaviest_permutation as heaviest_permutation
    from controller.schedulers.schedule import Schedule as Schedule
    from controller.schedulers.schedule import Slot as Slot
    from scenarios.api.experiments import run as run
    from testbed.report.timeline import timeline_of as timeline_of
    from testbed.run.dilation import Dilation as Dilation
    from testbed.run.experiment import Experiment as Experiment
    from testbed.run.ocs_plan import (
        Scheduled as Scheduled,
    )
    from testbed.run.ocs_plan import (
        dilation_for as dilation_for,
    )
    from testbed.run.ocs_plan import (
        over_ocses as over_ocses,
    )
    from testbed.run.predict import predict as predict
    from topologies.big_switch import big_switch_fabric as big_switch_fabric
    from topologies.events import (
        NodeStarted as NodeStarted,
    )
    from topologies.events import (
        Reconfigure as Reconfigure,
    )
    from topologies.events import (
        SetTimer as SetTimer,
    )
    from topologies.events import (
        TimerFired as TimerFired,
    )
    from topologies.fabric import (
        Fabric as Fabric,
    )
    from topologies.fabric import (
        Link as Link,
    )
    from topologies.fabric import (
        Port as Port,
    )
    from topologies.fabric import (
        Switch as Switch,
    )
    from topologies.fabric import (
        equal_servers as equal_servers,
    )
    from topologies.fat_tree import fat_tree_fabric as fat_tree_fabric
    from topologies.leaf_spine import leaf_spine_fabric as leaf_spine_fabric
    from topologies.light import duplex as duplex
    from topologies.mfabric import mfabric_fabric as mfabric_fabric
    from topologies.parallel_ocs import parallel_ocs_fabric as parallel_ocs_fabric
    from topologies.patch_panel import patch_panel_fabric as patch_panel_fabric
    from topologies.rail import rail_fabric as rail_fabric
    from topologies.routes import Routes as Routes
    from traffic.collectives.all_to_all import AllToAll as AllToAll
    from traffic.collectives.point_to_point import PointToPoint as PointToPoint
    from traffic.collectives.ring import Ring as Ring
    from traffic.demand import Demand as Demand
    from traffic.effects import Down as Down
    from traffic.effects import LinkState as LinkState
    from traffic.effects import Lossy as Lossy
    from traffic.effects import Slow as Slow
    from traffic.faults import Fault as Fault
    from traffic.faults import When as When
    from traffic.job import Collective as Collective
    from traffic.job import Compute as Compute
    from traffic.job import Job as Job
    from traffic.job_file import read_job as read_job
    from traffic.messages import Chunks as Chunks
    from traffic.messages import Messages as Messages
    from traffic.ops import each_alone as each_alone
    from traffic.readers.detect import read_trace as read_trace
    from traffic.scheme_setup import ONCE_LIT as ONCE_LIT
    from traffic.scheme_setup import ROUTED as ROUTED
    from traffic.scheme_setup import WHILE_LIT as WHILE_LIT
    from traffic.spraying.policy import Assignment as Assignment
    from traffic.spraying.policy import LaneSet as LaneSet
    from traffic.spraying.rails import rails_of as rails_of
    from traffic.spraying.rails import same_rail as same_rail
    from traffic.steps import single as single
    from traffic.transports.host_settings import TransportSetup as TransportSetup
    from traffic.transports.transport import Limits as Limits
    from traffic.workloads.ocs_workloads import ocs_demand as ocs_demand
    from traffic.workloads.synthetic import (
        receiver_skew as receiver_skew,
    )
    from traffic.workloads.synthetic import (
        sender_skew as sender_skew,
    )
    from traffic.workloads.synthetic import (
        sparse as sparse,
    )
    from traffic.workloads.synthetic import (
        uniform as uniform,
    )

_NAMES = {
    "controller.circuits.devices": "ReconfigurationDelay device_named real_delay",
    "controller.circuits.foreseen": "Foreseen",
    "controller.circuits.rule": "Rule",
    "controller.schedulers.matching": "heaviest_permutation",
    "controller.schedulers.schedule": "Schedule Slot",
    "scenarios.api.experiments": "run",
    "testbed.report.timeline": "timeline_of",
    "testbed.run.dilation": "Dilation",
    "testbed.run.experiment": "Experiment",
    "testbed.run.ocs_plan": "Scheduled dilation_for over_ocses",
    "testbed.run.predict": "predict",
    "topologies.big_switch": "big_switch_fabric",
    "topologies.events": "NodeStarted Reconfigure SetTimer TimerFired",
    "topologies.fabric": "Fabric Link Port Switch equal_servers",
    "topologies.fat_tree": "fat_tree_fabric",
    "topologies.leaf_spine": "leaf_spine_fabric",
    "topologies.light": "duplex",
    "topologies.mfabric": "mfabric_fabric",
    "topologies.parallel_ocs": "parallel_ocs_fabric",
    "topologies.patch_panel": "patch_panel_fabric",
    "topologies.rail": "rail_fabric",
    "topologies.routes": "Routes",
    "traffic.collectives.all_to_all": "AllToAll",
    "traffic.collectives.point_to_point": "PointToPoint",
    "traffic.collectives.ring": "Ring",
    "traffic.demand": "Demand",
    "traffic.effects": "Down LinkState Lossy Slow",
    "traffic.faults": "Fault When",
    "traffic.job": "Collective Compute Job",
    "traffic.job_file": "read_job",
    "traffic.messages": "Chunks Messages",
    "traffic.ops": "each_alone",
    "traffic.readers.detect": "read_trace",
    "traffic.scheme_setup": "ONCE_LIT ROUTED WHILE_LIT",
    "traffic.spraying.policy": "Assignment LaneSet",
    "traffic.spraying.rails": "rails_of same_rail",
    "traffic.steps": "single",
    "traffic.transports.host_settings": "TransportSetup",
    "traffic.transports.transport": "Limits",
    "traffic.workloads.ocs_workloads": "ocs_demand",
    "traffic.workloads.synthetic": "receiver_skew sender_skew sparse uniform",
}
"""What each module gives; the imports above are the same, for editors and type checkers."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Return a name of lightrail's, loaded now; Python asks this once for each."""
    if name not in _MODULES:
        raise AttributeError(f"lightrail has no {name!r}; dir(lightrail) lists what it has")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_MODULES)
