"""The page that teaches a user's own transport: its code runs, as it is printed there."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lightrail as lr
from tests.docs.pages import Reader, file_of, lines_of, read_by
from tests.tools import CHECKOUT
from traffic.congestion.control import OVERTAKEN, TAKEN_BACK, LostHow

PAGE = "docs/howto/own_transport.md"
RULES = (CHECKOUT / "docs" / "reference" / "extension_points.md").read_text()
LINES = 25
SIZE, WINDOW, R_S = 1000, 10, 0.1
"""Of the path that is tried: a packet [bytes], its bandwidth-delay product [packets], its round trip [s]."""
VALUES = lr.Pipe, lr.Sent, lr.Acknowledged, lr.Lost, lr.Red
SEAMS = lr.CongestionControl, lr.PerPacket, lr.Granted, lr.ReceiverControl


@pytest.fixture
def control() -> lr.PerPacket:
    """Return the page's congestion control, made for a path."""
    made: dict[str, type[lr.PerPacket]] = {}
    exec(file_of(PAGE, "own_transport.py"), made)
    return made["Aimd"](lr.Pipe(WINDOW * SIZE / R_S, R_S, SIZE), np.random.default_rng(0))


def test_it_is_25_lines() -> None:
    assert lines_of(file_of(PAGE, "own_transport.py")) <= LINES


def test_its_command_names_it_beside_the_others_and_its_script_predicts_it(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    read_by(reader, PAGE)
    table = pd.read_csv(reader.results() / "summary.csv")
    assert table["transport"].tolist() == ["own_transport:Aimd"]


def test_a_window_without_marks_is_a_packet_more(control: lr.PerPacket) -> None:
    assert control.may_send(0.0) == WINDOW * SIZE
    sent(control, WINDOW)
    assert control.may_send(0.0) == 0
    acknowledged(control, WINDOW, at_s=R_S)
    assert control.window_bytes / SIZE == pytest.approx(WINDOW + 1, abs=0.1)


def test_marks_and_losses_halve_it_once_a_round_trip(control: lr.PerPacket) -> None:
    sent(control, 4 * WINDOW)
    acknowledged(control, 3, at_s=1.0, marked=True)
    assert control.window_bytes == WINDOW * SIZE / 2
    acknowledged(control, 1, at_s=1.0 + 2.1 * R_S, marked=True)  # the round trips of these were two R
    lost(control, at_s=1.0 + 2.2 * R_S, how=OVERTAKEN)
    assert control.window_bytes == WINDOW * SIZE / 4
    lost(control, at_s=2.0, how=TAKEN_BACK)
    assert control.window_bytes == WINDOW * SIZE / 4
    for at_s in range(3, 9):
        lost(control, at_s=at_s, how=OVERTAKEN)
    assert control.window_bytes == SIZE


@pytest.mark.parametrize("value", VALUES)
def test_its_rules_explain_each_field(value: type) -> None:
    assert [name for name in value.__annotations__ if f"`{name}`" not in RULES] == []


@pytest.mark.parametrize("seam", SEAMS)
def test_its_rules_explain_each_method(seam: type) -> None:
    methods = [name for name, part in vars(seam).items() if callable(part) and not name.startswith("_")]
    assert methods
    assert [name for name in methods if f"`{name}" not in RULES] == []


def sent(control: lr.PerPacket, packets: int) -> None:
    """Have packets sent at the start."""
    control.on_events([lr.Sent(SIZE, 0)] * packets, (), (), 0.0)


def acknowledged(control: lr.PerPacket, packets: int, at_s: float, *, marked: bool = False) -> None:
    """Have packets acknowledged; those that are marked took two base round trips."""
    control.on_events((), [lr.Acknowledged(SIZE, R_S * (1 + marked), marked, 0)] * packets, (), at_s)


def lost(control: lr.PerPacket, at_s: float, how: LostHow) -> None:
    """Have a packet lost."""
    control.on_events((), (), [lr.Lost(SIZE, 0, how)], at_s)
