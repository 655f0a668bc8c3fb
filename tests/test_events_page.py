"""The page about event logs: its experiment has the log that it shows, and its logs part as it says."""

from pathlib import Path

from tests.docs.pages import Reader, read_by

PAGE = "docs/explain/events.md"


def test_its_code_runs(tmp_path: Path) -> None:
    read_by(Reader(tmp_path), PAGE)
    assert len(list((tmp_path / "moe" / "points").glob("*.predicted.events"))) == 1
