"""What became of packets, by made-up counts: sound where all is accounted for, unsound where some vanish."""

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd
import pytest

from testbed.audit.audit import audited
from testbed.audit.finding import Circumstances
from testbed.model.predict import predict
from tests.audit.cases import small_runs
from topologies.fabric import Fabric
from traffic.effects import Lossy
from traffic.faults import Fault, When
from traffic.tables import PACKET_COUNTS

EXPERIMENT = dict(small_runs())["uniform, rails"]
RUN = predict(EXPERIMENT)
ALL = {"sent": 10_000, "arrived": 10_000, "anew": 0, "late": 0} | dict.fromkeys(list(PACKET_COUNTS)[4:], 0)
"""All packets arrived, and nothing was dropped."""


def found(
    counts: Mapping[str, int], known: Circumstances | None = None, fabric: Fabric = EXPERIMENT.fabric
) -> list[str]:
    """Return what an audit says of a run of which so many packets were counted otherwise than in `ALL`."""
    table = pd.DataFrame([ALL | dict(counts)]).astype(PACKET_COUNTS)
    tables = replace(RUN.tables, packets=table)
    audit = audited(tables, EXPERIMENT.job, fabric, known or Circumstances(live=True))
    assert all((each.table, each.row) == ("packets", 0) for each in audit.findings)
    return [each.sentence for each in audit.findings]


@pytest.mark.parametrize(
    "counts",
    [
        {},
        {"sent": 10_900, "anew": 900, "queue_drops": 900},
        {"sent": 10_900, "anew": 900, "queue_drops": 300, "socket_drops": 400, "switch_drops": 200},
        {"sent": 10_900, "anew": 900, "late": 900},
        {"sent": 10_900, "anew": 900, "late": 500, "queue_drops": 400},
        {"sent": 10_900},  # taken back on their way
        {"sent": 10_900, "late": 900},  # taken back, and arrived
        {"queue_drops": 900},  # of what else there is
        {"sent": 10_120, "anew": 120},  # on their way when the run ended
    ],
)
def test_what_is_accounted_for_is_sound(counts: dict[str, int]) -> None:
    assert found(counts) == []


def test_what_no_counter_has_vanished() -> None:
    counts = {"sent": 10_950, "arrived": 10_000, "anew": 900, "late": 200}
    drops = {"queue_drops": 100, "socket_drops": 20, "switch_drops": 3}
    assert found(counts | drops) == [
        "577 of 10950 packets vanished: 10000 arrived, 200 more were late, 50 were taken back; "
        "queues dropped 100, sockets 20, switches 3"
    ]


def test_more_than_were_sent_cannot_arrive_nor_be_lost() -> None:
    assert found({"late": 1}) == ["of 10000 packets 10000 arrived, and 1 more arrived late"]
    assert found({"anew": 1}) == ["of 10000 packets 10000 arrived, and 1 more counted as lost"]


LOSSY = Fault("lossy", (Lossy((sorted(EXPERIMENT.fabric.link_at)[0],), 0.3),), When("", 1.0), 0.1)
"""It comes after the end of the run, so that nothing else of the run is other with it."""


@pytest.mark.parametrize("unknown", ["queue_drops", "socket_drops", "switch_drops"])
def test_where_drops_are_unknown_nothing_is_said_to_vanish(unknown: str) -> None:
    vanished = {"sent": 10_900, "anew": 900}
    assert len(found(vanished)) == 1
    assert found(vanished | {unknown: -1}) == []


def test_links_that_lose_packets_or_fail_count_nothing() -> None:
    vanished = {"sent": 10_900, "anew": 900}
    assert found(vanished, fabric=EXPERIMENT.fabric.with_links(delay_s=0.0, loss=1e-3)) == []
    assert found(vanished, Circumstances(live=True, faults=(LOSSY,))) == []
    assert len(found({"late": 1}, Circumstances(live=True, faults=(LOSSY,)))) == 1
