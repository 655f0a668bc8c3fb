"""The command that draws a fabric: a builder with parameters, a function, or a file."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.api.draw import draw
from testbed.machine.signals import ENDING
from testbed.study.command import main
from topologies.rail import rail_fabric


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """Have this process hear signals as before: a command that has ended ignores them."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def drawn(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> int:
    """Return the exit code of the command in a folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["lightrail draw", *words])
    with pytest.raises(SystemExit) as ended:
        main(draw)
    return int(ended.value.code or 0)


def test_a_builder_with_parameters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["rail", "--set", "servers=3", "--set", "rails=2", "--set", "rate_gbps=400"]
    assert drawn(monkeypatch, tmp_path, *words) == 0
    said = "rail.png: 3 servers x 2 GPUs, 2 NICs of 400 Gbit/s; 2 leaves, 3 spines\n"
    assert capsys.readouterr().out == said
    assert (tmp_path / "rail.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_and_a_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(rail_fabric(2, 2).to_json())
    assert drawn(monkeypatch, tmp_path, "mine.json", "--out", "file.svg") == 0
    builder = "topologies.rail:rail_fabric"
    words = [builder, "--set", "servers=2", "--set", "rails=2", "--out", "function.svg"]
    assert drawn(monkeypatch, tmp_path, *words) == 0
    assert (tmp_path / "file.svg").read_text() == (tmp_path / "function.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rial"], "unknown builder 'rial', did you mean rail?"),
        (["rail", "--set", "servers=8"], "FABRIC: rails is missing; add --set rails=VALUE"),
        (["rail", "--set", "server=8"], "--set server: unknown key; did you mean servers?"),
        (["rail", "--set", "servers=2,3", "--set", "rails=2"], "2 fabrics at once"),
        (["rail", "--set", "servers"], "it has no key or no value"),
        (["none.json"], "cannot be read"),
        (["big_switch", "--set", "servers=2", "--out", "a.jpg"], "no drawing is made as 'a.jpg'"),
    ],
)
def test_a_mistake_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    assert drawn(monkeypatch, tmp_path, *words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line
    assert list(tmp_path.iterdir()) == []
