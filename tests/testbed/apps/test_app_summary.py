"""The lines that a user reads of an application that has ended."""

from testbed.study.app_study import summary
from tests.testbed.apps.records import all_to_all, record_of
from topologies.rail import rail_fabric

FABRIC = rail_fabric(3, 2)


def test_only_time_in_which_hosts_sent_has_a_counterpart_at_real_scale() -> None:
    record = record_of(FABRIC, all_to_all(3, [0.2], 0.5, 1_000_000), 2.0, rate_factor=1e-3)
    assert [*summary(record)] == [
        "it took 2 s; hosts sent for 25% of it, 500 ms, which are 0.5 ms at real scale; "
        "all exit codes are 0; faithful"
    ]
