"""Open files that a fabric takes are compared with the limit before it boots."""

import pytest

from testbed.network.open_files import check_open_files, engine_files, switch_files
from topologies.errors import MachineError
from topologies.rail import rail_fabric

FABRIC = rail_fabric(4, 4)


def test_as_many_as_the_busiest_process_opens_are_enough_and_one_less_is_a_sentence() -> None:
    needed = max(switch_files(FABRIC, "netdev"), engine_files(FABRIC, 0, "netdev"))
    check_open_files(FABRIC, needed, "netdev")
    with pytest.raises(MachineError) as caught:
        check_open_files(FABRIC, needed - 1, "netdev")
    assert str(caught.value) == (
        f"fabric {FABRIC.name} takes {needed:,} open files, and this user may have {needed - 1:,}; "
        "raise the limit (ulimit -Hn), or take a smaller fabric"
    )


def test_two_servers_fit_in_the_limit_that_systems_have_for_a_process() -> None:
    assert switch_files(rail_fabric(2, 4), "netdev") < 512
    assert engine_files(rail_fabric(2, 4), 2 * 48, "netdev") < 512
