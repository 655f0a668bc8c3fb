"""Tests of this folder that boot networks run in a sandbox, one for all of a worker's; see `box`.

`booted` and what else is made here does nothing until it is called: the session outside, which
sets tests up but does not call them, has it too.
"""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.machine.datapath import Datapath, default_datapath
from testbed.machine.residue import END_S, until
from testbed.machine.sandbox import RUN_DIRECTORY, inside_sandbox
from tests.calibrated import calibrated
from tests.emulation.box import IN_SANDBOX, Box, skip_reason
from tests.emulation.live import RATE_FACTOR, Live
from tests.emulation.machine import Machine
from tests.second_run import FinalError
from tests.tools import need_sandbox
from topologies.fabric import Fabric
from topologies.routing import Routing
from traffic.packets import DEFAULT_MTU
from traffic.transports.host_settings import HostSettings

Booted = Callable[..., Live]
FOLLOWING = pytest.StashKey[str]()
MODEST_BPS = 1e9
"""Payload times switch hops that machines forward easily [bit/s]."""


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Box | None]:
    """Have the tests that ask for it run in one sandbox."""
    if inside_sandbox():
        yield None
        return
    need_sandbox()
    files = {str(item.path): None for item in request.session.items if asks_for_sandbox(item)}
    with Box(list(files), request.config) as box:
        yield box


def asks_for_sandbox(item: pytest.Item) -> bool:
    """Return whether a test runs in a sandbox."""
    return IN_SANDBOX in getattr(item, "fixturenames", ())


@pytest.fixture(autouse=True)
def same_sandbox() -> Iterator[None]:
    """Have a test leave the sandbox that it shares with others as it was."""
    if not inside_sandbox():
        yield
        return
    before = _things()
    yield
    assert until(lambda: _things() == before, END_S), f"left in the sandbox: {_things() ^ before}"


def _things() -> set[str]:
    """Return the interfaces of this network namespace, and the run's directory if it is there."""
    directory = {str(RUN_DIRECTORY)} if RUN_DIRECTORY.exists() else set()
    return {name for _, name in socket.if_nameindex()} | directory


@pytest.fixture
def booted(sandbox: Box | None) -> Booted:
    """Boot a fabric: ``with booted(rail_fabric(2, 2)) as net: assert net.reaches(0, 3)``."""

    def boot(
        fabric: Fabric,
        rate_factor: float = RATE_FACTOR,
        mtu: int = DEFAULT_MTU,
        host: HostSettings | None = None,
        hosts: bool = False,
        datapath: Datapath | None = None,
        routing: Routing | None = None,
    ) -> Live:
        return Live(fabric, rate_factor, mtu, host, hosts=hosts, datapath=datapath, routing=routing)

    return boot


@pytest.fixture
def modest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a scenario take this machine for one of a third of its speed: it may run beside other tests."""
    for name, value in calibrated(tmp_path / "cache", MODEST_BPS, default_datapath()).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Observe this machine from now on."""
    with Machine(request.node.user_properties) as machine:
        yield machine


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Keep which test follows: inside, what both share is not made twice."""
    item.stash[FOLLOWING] = nextitem.nodeid if nextitem and asks_for_sandbox(nextitem) else ""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Instead of calling a test that asks for a sandbox, tell what came of it in there."""
    box = pyfuncitem.funcargs.get(IN_SANDBOX)
    if not isinstance(box, Box):
        return None
    # A call that failed comes last: a set-up or tear-down that failed too must not get a second run.
    for report in sorted(
        box.outcome(pyfuncitem.nodeid, pyfuncitem.stash[FOLLOWING]), key=lambda report: report.when == "call"
    ):
        pyfuncitem.user_properties.extend((name, value) for name, value in report.user_properties)
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
