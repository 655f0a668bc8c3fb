"""The install script: quiet the second time, one sentence when it cannot work."""

import os
import re
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

PROFILE = """\
abi <abi/4.0>,
include <tunables/global>

profile lightrail-unshare /usr/bin/unshare flags=(unconfined) {
  userns,
}
"""
PYTHON = """\
#!/bin/bash
case "$*" in
-VV) echo "Python 3.11 of a test" ;;
"-m venv"*) mkdir -p "${@: -1}/bin" lightrail.egg-info && cp "$0" "${@: -1}/bin/python" ;;
"-m pip"*) echo "${*:6}" >>"$LOG" ;;
*/compile_engine.py) [[ ! -e ${LOG%/log}/no-compiler ]] ;;
esac
"""

SETUPTOOLS = "--require-hashes --requirement setuptools"
LOCKED = "--require-hashes --no-build-isolation --use-pep517 --requirement requirements.lock"
CHECKOUT_ALONE = "--no-deps --no-build-isolation --editable ."
INSTALL = [SETUPTOOLS, LOCKED, CHECKOUT_ALONE]
"""The calls of pip by default."""


class Machine:
    """A checkout, and what provision.sh finds and changes of the machine around it, all in one folder.

    Its Python makes no environment, and notes what pip is to install.
    """

    def __init__(self, folder: Path) -> None:
        self.log, self.profile, self.restricted = (folder / name for name in ("log", "profile", "restricted"))
        self.lock, self.at_boot = folder / "locks" / "lock", folder / "tmpfiles.d" / "lightrail.conf"
        self._script = folder / "vagrant" / "provision.sh"
        self._script.parent.mkdir()
        text = SCRIPT.read_text()
        for real, fake in (
            ("/usr/bin/python3", folder / "python"),
            ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", self.restricted),
            ("/etc/apparmor.d/lightrail-unshare", self.profile),
            ("/run/lightrail", self.lock.parent),
            ("/etc/tmpfiles.d/lightrail.conf", self.at_boot),
        ):
            assert f"={real}" in text
            text = text.replace(f"={real}", f"={fake}")
        self._script.write_text(text)
        for name in (
            "pyproject.toml",
            "requirements.lock",
            "requirements-cluster.lock",
            "requirements-jax.lock",
        ):
            (folder / name).touch()
        self.program("python", PYTHON)

    def program(self, name: str, text: str) -> None:
        """Have a program."""
        path = self._script.parents[1] / name
        path.write_text(text)
        path.chmod(0o755)

    def provision(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run provision.sh."""
        folder = self._script.parents[1]
        return subprocess.run(
            ["bash", str(self._script), *words],
            env={"PATH": f"{folder}:{os.environ['PATH']}", "LOG": str(self.log)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )

    @property
    def installed(self) -> list[str]:
        """What pip was to install, in order; where the setuptools of the lock are read from is their name."""
        return re.sub(r"/dev/fd/\d+", "setuptools", self.log.read_text()).splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine that has all Debian packages."""
    return Machine(tmp_path)


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
    for name in ("pyproject.toml", "requirements.lock", "requirements-cluster.lock", "requirements-jax.lock"):
        (tmp_path / name).write_text("nothing that pip could install")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    (tmp_path / ".venv").symlink_to("other")
    ran = run("bash", tmp_path / "vagrant" / "provision.sh")
    assert ran.returncode == 2
    said = "pip could not install what requirements.lock names; see its message above"
    assert ran.stderr.endswith(f"{said} (--latest goes without the lock).\n")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["kept"]


@installed
@pytest.mark.parametrize("boots", [False, True])
def test_all_users_can_read_the_lock_that_is_made_now_and_at_each_boot(machine: Machine, boots: bool) -> None:
    if boots:
        machine.at_boot.parent.mkdir()
    for _ in range(2):
        assert machine.provision().returncode == 0
        assert [path.stat().st_mode & 0o777 for path in (machine.lock.parent, machine.lock)] == [0o755, 0o644]
    lines = machine.at_boot.read_text().splitlines() if boots else []
    folder, file = f"d {machine.lock.parent} 0755 root root", f"f {machine.lock} 0644 root root"
    assert lines == [folder, file] * boots


@installed
def test_ray_is_installed_where_it_is_asked_for_and_stays(machine: Machine) -> None:
    for words in ((), (), ("--cluster",), (), ("--cluster",)):
        ran = machine.provision(*words)
        assert (ran.returncode, ran.stderr) == (0, "")
    cluster = [SETUPTOOLS, f"{LOCKED} --requirement requirements-cluster.lock", CHECKOUT_ALONE]
    assert machine.installed == [*INSTALL, *cluster]


@installed
def test_jax_is_installed_where_it_is_asked_for_and_stays_beside_ray(machine: Machine) -> None:
    for words in (("--jax",), (), ("--cluster",), ("--jax",)):
        ran = machine.provision(*words)
        assert (ran.returncode, ran.stderr) == (0, "")
    jax, ray = (f"--requirement requirements-{extra}.lock" for extra in ("jax", "cluster"))
    alone, both = f"{LOCKED} {jax}", f"{LOCKED} {ray} {jax}"
    assert machine.installed == [SETUPTOOLS, alone, CHECKOUT_ALONE, SETUPTOOLS, both, CHECKOUT_ALONE]


@installed
def test_the_newest_packages_are_installed_where_they_are_asked_for_alone(machine: Machine) -> None:
    for words in (("--latest",), ("--latest", "--cluster"), ("--cluster", "--latest"), ("--cluster",)):
        ran = machine.provision(*words)
        assert (ran.returncode, ran.stderr) == (0, "")
    *latest, setuptools, _, _ = machine.installed
    assert latest == ["--editable .[dev,docs]", "--editable .[dev,docs,cluster]"]
    assert setuptools == SETUPTOOLS


@installed
def test_a_lock_that_changed_is_installed_again(machine: Machine) -> None:
    machine.provision()
    machine.program("requirements.lock", "another pin\n")
    machine.provision()
    assert machine.installed == 2 * INSTALL


@installed
def test_an_engine_that_cannot_be_compiled_is_one_sentence_each_time(machine: Machine) -> None:
    machine.program("no-compiler", "")
    for _ in range(2):
        ran = machine.provision()
        assert (ran.returncode, ran.stderr) == (0, "provision.sh: the engine stays interpreted.\n")


@installed
def test_where_there_is_no_sudo_it_says_once_that_commands_go_without(machine: Machine) -> None:
    said = "There is no sudo here: as root, leave it out of the commands in README.md and docs/.\n"
    lacks = shutil.which("sudo") is None
    assert machine.provision().stdout.endswith(said) is lacks
    assert machine.provision().stdout == ""
    machine.program("sudo", "#!/bin/bash\n")
    assert said not in machine.provision("--cluster").stdout


@installed
def test_an_unknown_option_is_one_sentence(machine: Machine) -> None:
    ran = machine.provision("--clusters")
    assert ran.returncode == 2
    assert ran.stderr == "provision.sh: unknown option --clusters; see the top of this file.\n"


@installed
@pytest.mark.parametrize("restricted", [None, "0\n", "1\n"])
def test_unshare_gets_a_profile_where_apparmor_restricts_namespaces(
    machine: Machine, restricted: str | None
) -> None:
    machine.program("apparmor_parser", '#!/bin/bash\necho "$1" >>"$LOG"\n')
    if restricted is not None:
        machine.restricted.write_text(restricted)
    machine.provision()
    assert machine.provision().stdout == ""  # the second run says nothing
    loaded = machine.profile.read_text() if machine.profile.exists() else None
    assert loaded == (PROFILE if restricted == "1\n" else None)
    assert machine.installed == ["--replace"] * (loaded is not None) + INSTALL


@installed
def test_a_profile_that_apparmor_refuses_is_not_left(machine: Machine) -> None:
    machine.program("apparmor_parser", "#!/bin/bash\nexit 1\n")
    machine.restricted.write_text("1\n")
    ran = machine.provision()
    sentence = "provision.sh: AppArmor does not take the profile; see its message above.\n"
    assert (ran.returncode, ran.stderr, machine.profile.exists()) == (2, sentence, False)


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
