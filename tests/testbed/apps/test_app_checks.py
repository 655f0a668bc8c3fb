"""Commands that cannot be run: refused for the right reason."""

import errno
import os
from pathlib import Path

import pytest

from testbed.apps.app_checks import check_command
from topologies.errors import ScenarioError


def test_a_command_that_is_kept_from_this_user_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with pytest.raises(ScenarioError, match=r"/kept does not exist; give the path"):
        check_command([f"{tmp_path}/kept"], {}, "/")
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuses)
        with pytest.raises(ScenarioError) as refused:
            check_command([f"{tmp_path}/kept"], {}, "/")
    assert "/kept cannot be reached: Permission denied; let this user enter" in str(refused.value)
