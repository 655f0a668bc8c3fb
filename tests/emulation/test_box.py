"""What a test outside is given of its run in a sandbox, and which failures are final."""

from types import SimpleNamespace
from typing import Literal, cast

import pytest

from tests.emulation.box import Box
from tests.emulation.conftest import FOLLOWING, pytest_pyfunc_call
from tests.second_run import FinalError
from tests.tools import need_sandbox

NO_FILE = "tests/emulation/test_of_no_file.py"
NODE = f"{NO_FILE}::test"
Phase = Literal["setup", "call", "teardown"]


def shown(monkeypatch: pytest.MonkeyPatch, *failed: Phase) -> None:
    """Show a test's reports, as if it had failed in some phases in a sandbox."""
    phases: tuple[Phase, ...] = ("setup", "call", "teardown")
    reports = [
        pytest.TestReport(NODE, ("", 0, ""), {}, "failed" if phase in failed else "passed", phase, phase)
        for phase in phases
    ]
    monkeypatch.setattr(Box, "outcome", lambda _box, _node, _following: reports)
    item = SimpleNamespace(
        user_properties=[],
        funcargs={"sandbox": Box.__new__(Box)},
        nodeid=NODE,
        stash={FOLLOWING: ""},
        add_report_section=lambda *_: None,
    )
    pytest_pyfunc_call(cast(pytest.Function, item))


def test_a_call_that_failed_in_the_sandbox_is_not_final(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.fail.Exception, match="in the sandbox, at call") as caught:
        shown(monkeypatch, "call")
    assert not isinstance(caught.value, FinalError)


@pytest.mark.parametrize("phase", ["setup", "teardown"])
def test_another_phase_that_failed_in_the_sandbox_is_final(
    monkeypatch: pytest.MonkeyPatch, phase: Phase
) -> None:
    with pytest.raises(FinalError, match=f"in the sandbox, at {phase}"):
        shown(monkeypatch, "call", phase)


@pytest.mark.emulation
def test_a_session_that_ends_in_the_sandbox_is_final(request: pytest.FixtureRequest) -> None:
    need_sandbox()
    final = False
    with pytest.raises(AssertionError, match="exit code 4"), Box([NO_FILE], request.config) as box:
        final = is_final(box)
    assert final


def is_final(box: Box) -> bool:
    """Return whether asking for the test's outcome is a final error."""
    try:
        box.outcome(NODE)
    except FinalError:
        return True
    return False
