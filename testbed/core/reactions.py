"""The table of reactions: what follows from each event, in order, by file.

No file of reactions imports another: what crosses from one to another is an event.
"""

from collections.abc import Callable, Mapping
from typing import Any

from testbed.core import circuits, computing, events, failures, sending
from testbed.core.backend import Arrived, Drained, LightChanged, NowProvisioned
from testbed.core.state import State
from testbed.core.steps import Steps
from topologies import events as heard

Reaction = Callable[[State, Any], Steps]
REACTIONS: Mapping[type, tuple[Reaction, ...]] = {
    events.JobBegan: (circuits.job_began, failures.job_began, sending.job_began),
    events.NodeReady: (sending.start,),
    events.TaskReady: (computing.task_ready,),
    events.TaskBegan: (sending.task_began,),
    events.Computed: (computing.computed,),
    events.PiecesDone: (sending.pieces_done,),
    events.BytesLeft: (sending.placed_again,),
    Arrived: (sending.arrived,),
    events.SentAgain: (sending.sent_again,),
    # Light
    events.Ordered: (circuits.ordered,),
    events.LanesOpened: (circuits.stand_too,),
    events.RoutesLedAnew: (circuits.all_stand_too,),
    Drained: (circuits.drained,),
    events.DrainExpired: (circuits.drain_expired,),
    LightChanged: (circuits.light_changed,),
    NowProvisioned: (circuits.provisioned,),
    events.RoutesChanged: (sending.book_paths,),
    events.LanesCut: (sending.cut,),
    events.LanesGoOn: (sending.goes_on_over_light,),
    events.HoldExpired: (circuits.hold_expired,),
    events.Released: (sending.released,),
    events.RestOrdered: (sending.send_rest,),
    # Faults
    events.FaultBegan: (failures.fault_began,),
    events.FaultKnown: (failures.fault_known,),
    events.FaultEnded: (failures.fault_ended,),
    events.FaultForgotten: (failures.fault_forgotten,),
    events.ControllerChanged: (circuits.controller_changed,),
    events.GpusGone: (computing.gpus_gone,),
    # A rule for circuits hears of these
    heard.NodeStarted: (circuits.decide, failures.node_started),
    **dict.fromkeys(
        (
            heard.NodeDone,
            heard.Lit,
            heard.Refused,
            heard.Provisioned,
            heard.FaultDetected,
            heard.FaultOver,
            heard.TimerFired,
            heard.ProgramsEnded,
        ),
        (circuits.decide,),
    ),
}
