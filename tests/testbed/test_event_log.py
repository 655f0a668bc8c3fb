"""The event log of a run: a line for each event and order, equal for equal runs, without effect on them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from testbed.core import event_log
from testbed.core.backend import SetCircuits
from testbed.core.event_log import EVENTS, ORDERS, EventLog
from testbed.core.reactions import REACTIONS
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.core.state import State
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from testbed.trust.event_diff import event_diff, log_of
from tests.audit.as_live import AsLive, Scale
from tests.audit.carried_out import Case as Drawn
from tests.audit.digests import came_of, digest, scale_of
from tests.audit.drawn_faults import packets, region, revised
from tests.audit.drawn_light import changing, forwarding, panel, programs
from tests.testbed import run_cases
from tests.testbed.run_cases import Case, When
from topologies.errors import LightrailError
from topologies.events import Hold, NodeStarted, Reconfigure, Show, TimedCircuits, View
from topologies.fabric import Nic, Port
from topologies.light import duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.demand import Demand
from traffic.faults import AS_IT_WAS, cut
from traffic.job import Collective, Compute, chain
from traffic.scheme import WholeMessages
from traffic.spraying.policy import QueuePair
from traffic.steps import single
from traffic.workloads.synthetic import uniform

TRACE = """\
# lightrail event log, format 1
# a test
# time [us] since the start, at real scale; indented: what the event above led to; in brackets: amounts
         # time  event                   of                                how  (amount)
          0.000  began                   job
          0.000  ready                   node gate
          0.000    started               node gate
       1000.000  computed                task gate on 0-3
       1000.000    ended                 node gate
       1000.000  ready                   node tokens of a
       1000.000    started               node tokens of a
       1000.000      ordered             ocs ocs0                          0>1 1>0
       1000.000        drain             ocs ocs0                          no lanes
       1000.000      held                node tokens of a                  until ocs0
       1000.000  drained                 ocs ocs0
       1000.000    switch                ocs ocs0                          0>1 1>0
      11000.000  shows                   ocs ocs0                          0>1 1>0
      11000.000    lead                  routes                            (2 NICs)
      11000.000    lit                   ocs ocs0
      11000.000    released              node tokens of a
      11000.000      start               op tokens of a/0 0>1              over NVLink  (9,000,000 bytes)
      11000.000      start               op tokens of a/1 0>2              over 0.0>1.0#0  (50,000,000 bytes)
      11020.000  ended                   op tokens of a/0 0>1
      13000.000  failed                  fault h0:0
      13000.000    set                   link h0:0                         down
      14000.000  known                   fault h0:0
      14000.000    taken back            op tokens of a/1 0>2              from 0.0>1.0#0  (25,000,000 bytes)
      14000.000    close                 lane 0.0>1.0#0
      14000.000    lead                  routes                            (all)
      14000.000    to place              op tokens of a/1 0>2              (25,000,000 bytes)
      14000.000      start               op tokens of a/1 0>2              over 0.1>1.1#0  (25,000,000 bytes)
      16000.000  ended                   op tokens of a/1 0>2
      16000.000    ended                 node tokens of a
"""


def circuit_first(view: View, a: int, b: int) -> QueuePair:
    """Return the circuit between two servers where it is lit and works, else their packet NICs."""
    nic = 0 if (a, b) in view.lit["ocs0"] and Port(f"h{a}", 0) not in view.failed else 1
    return QueuePair(Nic(a, nic), Nic(b, nic))


def small() -> Case:
    """Return a collective of two messages that waits for a circuit, which then fails."""
    owed = np.zeros((4, 4), dtype=np.int64)
    owed[0, 1], owed[0, 2] = 9_000_000, 50_000_000
    name = "tokens  of\ta"
    nodes = Compute("gate", (0, 1, 2, 3), 0.001), Collective(name, AllToAll(Demand("tokens", owed)))
    reconfigured = Reconfigure({"ocs0": duplex([(0, 1)])})
    return Case(
        parallel_ocs_fabric(2, 1, packet_switch=True, gpus=2),
        chain("small", 4, nodes),
        WholeMessages(circuit_first),
        When({NodeStarted(name): (reconfigured, Hold(name, ("ocs0",)))}),
        (cut("h0:0", (Port("h0", 0),), name, 0.012, 0.001),),
        AS_IT_WAS,
    )


def logged(case: Case, backend: FluidBackend | AsLive | None = None) -> tuple[str, str]:
    """Return the log of a case, and the digest of its tables."""
    log = EventLog("a test")
    simulation = Simulation(
        case.fabric,
        case.job,
        backend or FluidBackend(case.fabric, case.delay_s),
        case.scheme,
        circuits=case.circuits,
        faults=case.faults,
        revisions=case.revisions,
        log=log,
    )
    found = digest(simulation.run().tables)
    return log.text, found


def test_a_run_is_written_down_in_order_each_event_with_what_it_led_to() -> None:
    assert logged(small())[0] == TRACE


def test_a_fault_from_the_start_is_written_down_as_one_that_comes_later_is() -> None:
    text, _ = logged(replace(small(), faults=(cut("h0:0", (Port("h0", 0),)),)))
    lines = [" ".join(line.split()) for line in text.splitlines()[4:]]
    assert lines[:3] == ["0.000 began job", "0.000 failed fault h0:0", "0.000 set link h0:0 down"]
    assert "0.000 known fault h0:0" in lines


def test_a_program_is_written_down_with_its_slots_and_how_long_each_is_lit() -> None:
    slots = tuple(
        TimedCircuits(circuits, lit_s) for circuits, lit_s in ((((0, 1), (1, 0)), 1e-3), (((2, 3),), 2e-6))
    )
    (row,) = ORDERS[Show](State.__new__(State), Show((("ocs0", slots),)))
    assert row == ("show", "ocs ocs0", "0>1 1>0 | 2>3", "(for 1000.000 | 2.000 us)")
    (row,) = ORDERS[Show](State.__new__(State), Show((("ocs0", slots[:1] * 9),)))
    assert row.how.startswith("9 slots ")
    assert row.amount == f"(for {'1000.000 | ' * 8}... us)"


def test_circuits_of_a_panel_are_named_and_those_of_a_large_one_counted() -> None:
    for ports in (32, 64, 66):
        circuits = duplex([(port, port + 1) for port in range(0, ports, 2)])
        (row,) = ORDERS[SetCircuits](State.__new__(State), SetCircuits({"ocs0": circuits}))
        named = " ".join(f"{a}>{b}" for a, b in sorted(circuits))
        assert (row.how == named) is (ports <= 64)
    assert row.how.startswith("66 circuits ")


def test_each_event_has_words_or_is_quiet() -> None:
    assert set(EVENTS) == set(REACTIONS)


@pytest.mark.parametrize("case", [run_cases.moe, run_cases.ring])
def test_equal_runs_have_equal_logs_and_a_log_changes_nothing(case: Callable[[], Case]) -> None:
    text, tables = logged(case())
    again = case()
    assert text == logged(again)[0]
    assert tables == digest(again.run(FluidBackend(again.fabric, again.delay_s)).tables)


@pytest.mark.parametrize(
    "made",
    [
        partial(changing, 5),
        partial(forwarding, 7),
        partial(programs, 0, "ecmp"),
        partial(programs, 1, "reps"),
        partial(packets, 7),
        partial(revised, 3),
        partial(region, 0),
    ],
)
def test_drawn_runs_over_a_late_backend_can_be_written_down_and_compared(made: Callable[[], Drawn]) -> None:
    """All that happens and is ordered has words, and the log of a run can be read."""
    drawn = made()
    found = came_of(drawn)
    scale = scale_of(found.tables) if isinstance(found, Run) else Scale(10**6, 1)
    for backend in (None, AsLive(drawn.fluid(), scale)):
        log = EventLog()
        came_of(replace(drawn, log=log), backend)
        own = log_of("a test", log.text)
        assert event_diff(own, own).agrees
        assert len(own.entries) > 5
        for of, entries in own.entries.items():
            seen = [each.what for each in entries]
            over = seen.count("drained") + seen.count("drain expired")
            assert over <= sum(what.startswith("drain ") for what in seen) - seen.count("drain expired"), of


def test_operations_are_lost_once_and_not_after_they_have_ended() -> None:
    words = [line.split() for line in logged(run_cases.ring())[0].splitlines()]
    lost, ended = ([" ".join(line[2:]) for line in words if line[1] == what] for what in ("lost", "ended"))
    assert len(lost) == len(set(lost)) == 9
    assert not set(lost) & set(ended)


def test_what_a_lane_gives_back_of_an_operation_is_one_line_whatever_it_was_put_there_in() -> None:
    log = EventLog()
    came_of(replace(panel(2), log=log))
    words = [(line.rpartition("  (")[0], line.split("  (")[-1]) for line in log.text.splitlines()]
    back, to_place = (
        [(row, amount) for row, amount in words if f"  {what}  " in row]
        for what in ("taken back", "to place")
    )
    assert len(back) == len({row for row, _ in back}) > 10
    sizes = [sum(int(amount.split()[0].replace(",", "")) for _, amount in rows) for rows in (back, to_place)]
    assert sizes[0] == sizes[1]


def test_lanes_are_in_the_order_of_their_names() -> None:
    fabric, log = rail_fabric(4, 4), EventLog()
    predict(Experiment(fabric, single(uniform(fabric.gpus)), "rails"), log=log)
    lanes = [
        line.split("  over ")[1].split("  (")[0].split()
        for line in log.text.splitlines()
        if "  over " in line
    ]
    assert max(map(len, lanes)) > 2
    assert all(each == sorted(each) for each in lanes)


def test_a_backend_that_is_a_little_late_decides_the_same() -> None:
    case = run_cases.moe()
    late_by = AsLive(FluidBackend(case.fabric, case.delay_s), Scale(10**6, 1))
    fluid, live = log_of("fluid", logged(case)[0]), log_of("live", logged(case, late_by)[0])
    found = event_diff(fluid, live, share=0.01)
    assert found.agrees
    assert found.furthest is not None
    assert not event_diff(fluid, live).agrees, "it was not late"


def test_a_run_that_ends_in_an_error_leaves_what_happened_until_then() -> None:
    case, log = small(), EventLog()
    stuck = Simulation(
        case.fabric,
        case.job,
        FluidBackend(case.fabric, case.delay_s),
        WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 0))),
        circuits=case.circuits,
        faults=case.faults,
        log=log,
    )
    with pytest.raises(LightrailError):
        stuck.run()
    assert "known                   fault h0:0" in log.text
    assert " ".join(log.text.splitlines()[-1].split()).startswith("14000.000 start op tokens of a/1 0>2 over")


def test_a_long_log_is_kept_compressed_and_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = logged(run_cases.moe())[0]
    monkeypatch.setattr(event_log, "PACKED_LINES", 7)
    assert logged(run_cases.moe())[0] == whole


def test_a_log_of_nothing_is_empty() -> None:
    assert EventLog().packed == b""
