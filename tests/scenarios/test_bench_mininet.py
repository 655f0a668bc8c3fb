"""What the benchmarks keep off the screen, and what they do not."""

import io
from collections.abc import Iterator

import pytest
from mininet.log import lg

from scenarios._bench.mininet import without_quantum_warnings

WARNING = "Warning: sch_htb: quantum of class 50001 is big. Consider r2q change.\r\n"
ERROR = "Error: Exclusivity flag on, cannot modify.\r\n"


@pytest.fixture
def screen() -> Iterator[io.StringIO]:
    """Return what Mininet writes on."""
    [handler] = lg.handlers
    written = io.StringIO()
    before = handler.setStream(written)
    yield written
    handler.setStream(before)


@pytest.mark.parametrize("output", [WARNING, 2 * WARNING])
def test_mininets_quantum_warnings_stay_off_the_screen(screen: io.StringIO, output: str) -> None:
    with without_quantum_warnings():
        lg.error(f"*** Error: {output}")
    assert screen.getvalue() == ""


@pytest.mark.parametrize("output", [ERROR, WARNING + ERROR, ERROR + WARNING])
def test_mininets_errors_stay_visible(screen: io.StringIO, output: str) -> None:
    with without_quantum_warnings():
        lg.error(f"*** Error: {output}")
    assert screen.getvalue() == f"*** Error: {output}"


def test_quantum_warnings_are_visible_again_afterwards(screen: io.StringIO) -> None:
    with without_quantum_warnings():
        pass
    lg.error(f"*** Error: {WARNING}")
    assert screen.getvalue() == f"*** Error: {WARNING}"
