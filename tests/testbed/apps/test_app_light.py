"""Light while an application ran, from the logs of OCSes."""

from dataclasses import replace

from controller.circuits.status import LogEntry
from testbed.apps.app_light import light_table

BEGAN_S = 100.0


def entry(number: int, circuits: tuple[tuple[int, int], ...], dark_s: float, lit_s: float) -> LogEntry:
    return LogEntry(number, circuits, False, len(circuits), 0.01, dark_s - 0.01, dark_s, lit_s)


def test_each_stretch_of_light_lasts_until_the_next_reconfiguration_makes_it_dark() -> None:
    log = (entry(1, ((0, 1),), 100.5, 101.0), entry(2, ((1, 0),), 102.0, 102.5))
    rows = light_table({"ocs0": log}, BEGAN_S, 5.0).values.tolist()
    assert rows == [
        ["ocs0", "", 0.5, 1.0],
        ["ocs0", "0>1", 1.0, 2.0],
        ["ocs0", "", 2.0, 2.5],
        ["ocs0", "1>0", 2.5, 5.0],
    ]


def test_an_ocs_that_was_never_lit_again_stays_dark() -> None:
    log = (entry(1, ((0, 1),), 99.0, 99.5), replace(entry(2, ((1, 0),), 102.0, 0.0), lit_s=None))
    rows = light_table({"ocs0": log}, BEGAN_S, 5.0).values.tolist()
    assert rows == [["ocs0", "0>1", 0.0, 2.0], ["ocs0", "", 2.0, 5.0]]


def test_an_ocs_of_which_a_part_stays_lit_is_not_dark() -> None:
    log = (entry(1, ((0, 1),), 99.0, 99.5), replace(entry(2, ((0, 1), (2, 0)), 102.0, 102.5), partial=True))
    rows = light_table({"ocs0": log}, BEGAN_S, 5.0).values.tolist()
    assert rows == [["ocs0", "0>1", 0.0, 2.0], ["ocs0", "0>1 2>0", 2.5, 5.0]]


def test_an_ocs_that_nobody_ordered_has_no_rows() -> None:
    assert light_table({"ocs0": ()}, BEGAN_S, 5.0).empty
