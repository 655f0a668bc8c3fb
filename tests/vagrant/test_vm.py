"""The command on a virtual machine: one sentence when it cannot work, and nothing left however it ends.

No machine boots here. A fake qemu plays its part: it runs the command of the drive that it is given, and
answers on the ports, as the agent in the machine does.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.machine.residue import until
from tests.tools import CHECKOUT, path_of

SCRIPTS = ("vm.sh", "_bare_machine.sh")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = ("pyproject.toml", "requirements.lock")
"""The files that say which Python packages a disk holds."""
"""What only vm.sh's debootstrap needs, and no test."""
END_S = 100.0
"""How long the end of a script may take [s], on a busy machine."""
QEMU = r"""#!/bin/bash
for word; do
    case $word in
    file=*/job.tar,*) drive=${word#file=} drive=${drive%%,*} ;;
    file,id=*,path=*) name=${word#file,id=} && declare "${name%%,*}=${word#*,path=}" ;;
    esac
done
touch "$TMPDIR/booted"
"""
AGENT = r"""
echo up >"$status"
mkdir "$TMPDIR/inside" && cd "$TMPDIR/inside" && tar -x -f "$drive"
(cd lightrail && bash ../run/job/command >"$out" 2>"$err")
code=$?
[[ ! -d lightrail/results ]] || tar -c -C lightrail/results . >"$results"
echo "$code" >"$status"
exec sleep 1000
"""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run vm.sh")
with_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Checkout:
    """A small committed checkout with vm.sh in it, and programs that stand before those of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.scratch, self._programs = folder / "checkout", folder / "tmp", folder / "bin"
        for each in (self.folder / "vagrant", self.scratch, self._programs):
            each.mkdir(parents=True)
        for script in SCRIPTS:
            text = (CHECKOUT / "vagrant" / script).read_text()
            (self.folder / "vagrant" / script).write_text(text.replace(KEYRING, "/dev/null"))
        for name in (*PACKAGES, "committed"):
            (self.folder / name).touch()
        self.git("init", "--quiet")
        self.git("add", ".")
        self.commit()
        self.program("debootstrap", "#!/bin/bash\nexit 1\n")

    def git(self, *words: str) -> str:
        """Run git in it."""
        return subprocess.run(
            ["git", *words], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout

    def commit(self) -> None:
        """Commit what is changed in it."""
        self.git("-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "--all", "--message=x")

    def program(self, name: str, text: str) -> None:
        """Have a program."""
        (self._programs / name).write_text(text)
        (self._programs / name).chmod(0o755)

    def disk(self) -> Path:
        """Return a disk that fits it, as vm.sh keeps them."""
        tree, disk = self.scratch.parent / "tree", self.scratch.parent / "disk"
        for name, text in {
            "etc/lightrail-disk": self.git(
                "rev-parse", "HEAD:vagrant", *(f"HEAD:{name}" for name in PACKAGES)
            ),
            "boot/vmlinux": "",
            "boot/initrd": "",
        }.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        subprocess.run([path_of("mkfs.ext4"), "-q", "-d", tree, disk, "2M"], check=True, capture_output=True)
        return disk

    def start(self, *words: str | Path, **environment: str) -> "subprocess.Popen[str]":
        """Start vm.sh."""
        path = {"PATH": f"{self._programs}:{os.environ['PATH']}:/usr/sbin:/sbin", "TMPDIR": str(self.scratch)}
        return subprocess.Popen(
            # As in a terminal: a shell that began with SIGINT ignored, as in the background, cannot heed it.
            ["env", "--default-signal=INT", "bash", self.folder / "vagrant" / "vm.sh", *words],
            cwd="/",
            env=os.environ | path | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, process: "subprocess.Popen[str]") -> tuple[str, str]:
        """Return what a vm.sh printed, on both streams, until it ended; one that does not end is killed."""
        with process:  # also closes the pipes
            try:
                return process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise

    def left(self) -> list[str]:
        """Return the files that vm.sh left, and the processes that know their folder."""
        files = [str(path) for path in self.scratch.iterdir()]
        processes = [
            path.name
            for path in Path("/proc").glob("[0-9]*")
            if str(self.scratch).encode() in environment_of(path)
        ]
        return files + processes


def environment_of(process: Path) -> bytes:
    """Return a process' environment; of one that has ended, none."""
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Return a small checkout."""
    return Checkout(tmp_path)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "needs a command; try: sudo bash vagrant/vm.sh -- python scenarios/rails_sparse.py"),
        (["-x", "true"], "unknown option -x; see the top of this file."),
        (["-c"], "-c needs a value; see the top of this file."),
        (["-s", "two", "true"], "-s needs a number of CPUs, not 'two'."),
        (["-m", "4G", "true"], "-m needs a number of MiB, not '4G'."),
    ],
)
def test_an_option_that_cannot_be_is_one_sentence(words: Sequence[str], sentence: str) -> None:
    script = CHECKOUT / "vagrant" / "vm.sh"
    ran = subprocess.run(["bash", script, *words], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"vm.sh: {sentence}\n")


@root_only
@with_git
def test_the_command_runs_on_what_is_committed_and_everything_comes_back(
    checkout: Checkout, tmp_path: Path
) -> None:
    checkout.program("qemu-system-x86_64", QEMU + AGENT)
    (checkout.folder / "not_committed").touch()
    command = 'ls; echo "$1 $LIGHTRAIL_X"; echo said >&2; mkdir -p results/a; echo 1 >results/a/b; exit 7'
    kept = ("-c", checkout.disk(), "-o", tmp_path / "out")
    process = checkout.start(*kept, "--", "bash", "-c", command, "bash", "a 'b", LIGHTRAIL_X='"$c"')
    output, errors = checkout.ended(process)
    assert (process.returncode, output) == (
        7,
        'committed\npyproject.toml\nrequirements.lock\nvagrant\na \'b "$c"\n',
    )
    assert "said" in errors.splitlines()
    assert (tmp_path / "out" / "a" / "b").read_text() == "1\n"
    assert until(lambda: checkout.left() == [], END_S), checkout.left()


@root_only
@with_git
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("exit 1", "the virtual machine did not come up; see the last lines of its console above."),
        (
            'echo up >"$status"',
            "the virtual machine ended before the command did; see the last lines of its console above.",
        ),
        (
            'echo unsound >"$status"',
            "numpy does not sort on the CPU that this qemu emulates; try another version of qemu.",
        ),
    ],
)
def test_a_machine_that_fails_is_one_sentence(checkout: Checkout, answer: str, sentence: str) -> None:
    checkout.program("qemu-system-x86_64", f"{QEMU}\n{answer}\n")
    process = checkout.start("-c", checkout.disk(), "--", "true")
    output, errors = checkout.ended(process)
    assert (process.returncode, output, errors.splitlines()[-1]) == (2, "", f"vm.sh: {sentence}")
    assert until(lambda: checkout.left() == [], END_S), checkout.left()


@root_only
@with_git
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
@pytest.mark.parametrize("moment", ["building", "booted"])
def test_nothing_is_left_whatever_ends_it(checkout: Checkout, moment: str, number: signal.Signals) -> None:
    checkout.program("qemu-system-x86_64", f"{QEMU}\nexec sleep 1000\n")
    checkout.program("debootstrap", f'#!/bin/bash\ntouch "$4/{moment}"\nsleep 1000 & wait\n')
    words: list[str | Path] = ["-c", checkout.disk()] if moment == "booted" else ["-M", "nowhere"]
    process = checkout.start(*words, "--", "true")
    assert until(lambda: any(checkout.scratch.rglob(moment)), END_S)
    process.send_signal(number)
    checkout.ended(process)
    assert process.returncode in (-number, 128 + number)
    assert until(lambda: checkout.left() == [], END_S), checkout.left()


@root_only
@with_git
@pytest.mark.parametrize(
    ("flags", "device", "accelerator"),
    [
        ("fpu vmx sse", True, "kvm -cpu host "),
        ("fpu svm sse", True, "kvm -cpu host "),
        ("fpu svm_lock sse", True, "tcg,thread=multi -cpu max,-avx,"),
        ("fpu vmx sse", False, "tcg,thread=multi -cpu max,-avx,"),
    ],
)
def test_kvm_serves_where_it_can_boot_a_stock_kernel(
    checkout: Checkout, tmp_path: Path, flags: str, device: bool, accelerator: str
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
    kvm = tmp_path / ("." if device else "missing") / "kvm"
    script = checkout.folder / "vagrant" / "vm.sh"
    patched = script.read_text().replace("/proc/cpuinfo", f"{tmp_path}/cpuinfo").replace("/dev/kvm", str(kvm))
    script.write_text(patched)
    checkout.commit()
    checkout.program("qemu-system-x86_64", f'#!/bin/bash\necho "$@" >"{tmp_path}/arguments"\n')
    checkout.ended(checkout.start("-c", checkout.disk(), "--", "true"))
    assert (tmp_path / "arguments").read_text().startswith(f"-accel {accelerator}")


@root_only
@with_git
@pytest.mark.parametrize("changed", PACKAGES)
def test_a_kept_disk_of_another_checkout_is_made_anew(checkout: Checkout, changed: str) -> None:
    disk = checkout.disk()
    (checkout.folder / changed).write_text("another")
    checkout.commit()
    checkout.program("qemu-system-x86_64", "")
    process = checkout.start("-c", disk, "-M", "nowhere", "--", "true")
    _, errors = checkout.ended(process)
    assert process.returncode == 2
    assert "is of another checkout; making it anew" in errors
    assert errors.endswith("vm.sh: debootstrap could not make a bare bookworm; see its last lines above.\n")
    assert disk.exists()
    assert until(lambda: checkout.left() == [], END_S), checkout.left()
