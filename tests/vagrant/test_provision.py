"""The install script: quiet the second time, one sentence when it cannot work."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tools import CHECKOUT, path_of

SCRIPT = CHECKOUT / "vagrant" / "provision.sh"
installed = pytest.mark.skipif(
    os.geteuid() != 0 or not (CHECKOUT / ".venv" / ".provisioned").exists(),
    reason="only root can run provision.sh, and where it has run it installs no Debian packages",
)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command with its output kept."""
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)


def test_nobody_but_root_can_install() -> None:
    as_nobody = []
    if os.geteuid() == 0:
        as_nobody = [path_of("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups"]
    # Read here and piped: nobody may be unable to read the checkout.
    ran = subprocess.run(
        [*as_nobody, "/bin/bash"],
        input=SCRIPT.read_text(),
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )
    assert ran.returncode == 2
    assert ran.stderr == "provision.sh: must run as root; try: sudo bash vagrant/provision.sh\n"


@installed
def test_a_second_run_changes_nothing_and_says_nothing() -> None:
    stamp = CHECKOUT / ".venv" / ".provisioned"
    before = stamp.stat().st_mtime_ns
    ran = run("bash", SCRIPT)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert stamp.stat().st_mtime_ns == before


@installed
def test_a_venv_that_is_anothers_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "vagrant").mkdir()
    shutil.copy(SCRIPT, tmp_path / "vagrant")
    (tmp_path / "pyproject.toml").write_text("nothing that pip could install")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    (tmp_path / ".venv").symlink_to("other")
    ran = run("bash", tmp_path / "vagrant" / "provision.sh")
    assert ran.returncode == 2
    assert ran.stderr.endswith(
        "pip could not install the packages that pyproject.toml names; see its message above.\n"
    )
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["kept"]


@pytest.mark.early
@pytest.mark.skipif(
    shutil.which("vagrant") is None, reason="vagrant is not installed; provision.sh does not need it"
)
def test_vagrant_accepts_the_vagrantfile() -> None:
    ran = subprocess.run(
        ["vagrant", "validate", "--ignore-provider"],
        cwd=CHECKOUT / "vagrant",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
