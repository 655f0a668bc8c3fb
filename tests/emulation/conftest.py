"""Tests of this folder that boot networks run in a sandbox, one for each file; see `box`.

`booted` and what else is made here does nothing until it is called: the session outside, which
sets tests up but does not call them, has it too.
"""

from collections.abc import Callable, Iterator

import pytest

from testbed.machine.sandbox import inside_sandbox
from tests.emulation.box import Box, skip_reason
from tests.emulation.live import RATE_FACTOR, Live
from tests.second_run import FinalError
from tests.tools import need_sandbox
from topologies.fabric import Fabric
from traffic.packets import DEFAULT_MTU

Booted = Callable[..., Live]


@pytest.fixture(scope="module")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Box | None]:
    """Have the tests of this file that ask for it run in one sandbox."""
    if inside_sandbox():
        yield None
        return
    need_sandbox()
    nodes = [
        item.nodeid
        for item in request.session.items
        if item.path == request.path and "sandbox" in getattr(item, "fixturenames", ())
    ]
    with Box(nodes, request.config) as box:
        yield box


@pytest.fixture
def booted(sandbox: Box | None) -> Booted:
    """Boot a fabric: ``with booted(rail_fabric(2, 2)) as net: assert net.reaches(0, 3)``."""

    def boot(fabric: Fabric, rate_factor: float = RATE_FACTOR, mtu: int = DEFAULT_MTU) -> Live:
        return Live(fabric, rate_factor, mtu)

    return boot


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Instead of calling a test that asks for a sandbox, tell what came of it in there."""
    box = pyfuncitem.funcargs.get("sandbox")
    if not isinstance(box, Box):
        return None
    # A call that failed comes last: a set-up or tear-down that failed too must not get a second run.
    for report in sorted(box.outcome(pyfuncitem.nodeid), key=lambda report: report.when == "call"):
        if report.skipped:
            pytest.skip(skip_reason(report))
        if report.failed:
            for name, content in report.sections:  # "Captured stdout call"
                pyfuncitem.add_report_section("call", name.split()[1], content)
            said = f"in the sandbox, at {report.when}:\n{report.longreprtext}"
            if report.when != "call":
                raise FinalError(said)
            pytest.fail(said, pytrace=False)
    return True
