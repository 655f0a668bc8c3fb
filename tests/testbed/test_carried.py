"""Which circuit carried each packet, and which packets crossed an OCS where its log has none lit."""

from dataclasses import replace

import numpy as np
import pytest

from controller.circuits.status import LogEntry
from testbed.experiment.dilation import Dilation
from testbed.network.circuit_tap import CROSSING, Crossings
from testbed.trust import carried as module
from testbed.trust.carried import carried, carrying, logged, packets_in_the_dark
from topologies.light import Circuit


def entry(number: int, command_s: float, *circuits: Circuit) -> LogEntry:
    """Return a reconfiguration that is dark after 1 s and lit 2 s later."""
    return LogEntry(number, circuits, True, 0, 2.0, command_s, command_s + 1, command_s + 3.1, False)


LOG = [entry(7, 0.0, (0, 1), (1, 0)), entry(9, 10.0, (0, 1), (2, 3)), entry(10, 20.0, (2, 0))]
"""Lit at 3, 13 and 23, dark from 11 and 21; 0>1 is kept in the first change."""


def seen(*packets: tuple[float, int, int]) -> dict[str, Crossings]:
    return {"ocs0": np.array([(*packet, 100) for packet in packets], CROSSING)}


@pytest.mark.parametrize("block", [1, 3, 1 << 19])
def test_packets_are_of_the_circuit_that_was_lit(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    crossings = seen((4, 0, 1), (5, 1, 0), (10.5, 1, 0), (12, 0, 1), (14, 2, 3), (20.5, 0, 1), (24, 2, 0))
    table = carried(crossings, {"ocs0": LOG}, Dilation(rate=1.0, volume=2.0)).set_index(["number", "circuit"])
    assert table["packets"].to_dict() == {
        (0, "0>1"): 2, (0, "1>0"): 2, (1, "0>1"): 1, (1, "2>3"): 1, (2, "2>0"): 1,
    }  # fmt: skip
    assert table["bytes"].sum() == 700
    times = [table[name].to_dict()[0, "1>0"] for name in ("lit_s", "first_s", "last_s")]
    assert times == [1.55, 2.5, 5.25]
    again = table.reset_index()
    assert logged(again, "ocs0") == [{"0>1", "1>0"}, {"0>1", "2>3"}, {"2>0"}]
    assert carrying(again, "ocs0") == logged(again, "ocs0")
    assert packets_in_the_dark(again, "ocs0") == 0


@pytest.mark.parametrize(
    "packet",
    [(2.0, 0, 1), (4.0, 0, 2), (11.5, 1, 0), (12.0, 2, 3), (14.0, 1, 0), (21.5, 0, 1), (30.0, 2, 3)],
    ids=["before", "another", "gone dark", "not yet lit", "replaced", "kept once only", "long after"],
)
def test_what_crosses_in_the_dark_is_counted(packet: tuple[float, int, int]) -> None:
    table = carried(seen((4, 0, 1), packet), {"ocs0": LOG}, Dilation(rate=1.0, volume=1.0))
    assert packets_in_the_dark(table, "ocs0") == 1
    assert logged(table, "ocs0")[0] == {"0>1", "1>0"}
    assert carrying(table, "ocs0") == [{"0>1"}, set(), set()]


def test_what_was_never_lit_carries_nothing() -> None:
    dead = [replace(LOG[0], dark_s=None, lit_s=None, error="no connection")]
    table = carried(seen((4, 0, 1)), {"ocs0": dead}, Dilation(rate=1.0, volume=1.0))
    assert carrying(table, "ocs0") == [set()]
    assert packets_in_the_dark(table, "ocs0") == 1
