"""Applications by scenarios/app.py: their output, results and exit codes, and that nothing stays of them."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from scapy.utils import RawPcapReader

from testbed.apps.app_record import AppRecord
from testbed.machine.residue import MARKER, left_behind, processes, things, until
from testbed.report.app_files import read_app
from tests.emulation.machine import Machine
from tests.second_run import FinalError
from tests.tools import CHECKOUT, hears_interrupts, need_sandbox, path_of

pytestmark = [pytest.mark.emulation, pytest.mark.early]

APP = str(CHECKOUT / "scenarios" / "app.py")
RAIL = ("rail", "--set", "servers=2", "--set", "rails=2", "--emulated-rate", "50")
SLEEPS = ("sh", "-c", 'echo "$LIGHTRAIL_HOST is up"; sleep 60')
ICMP_TYPE, ECHO_REQUEST = 34, b"\x08"
NOBODY = 65534
MOST_BYTES = 1 << 16
END_S, START_S = 240.0, 240.0
"""How long a run may take to end, and to start: another emulation may have to end before [s]."""


@dataclass
class Application:
    """A run of scenarios/app.py."""

    process: "subprocess.Popen[str]"
    mark: str
    out: Path

    def lines(self, count: int) -> list[str]:
        """Return its next lines, sorted: hosts write in any order."""
        assert self.process.stdout
        return sorted(self.process.stdout.readline().rstrip("\n") for _ in range(count))

    def end(self) -> tuple[int, list[str], str]:
        """Return its exit code, the rest of its lines, sorted, and its errors."""
        out, errors = self.process.communicate(timeout=END_S)
        return self.process.returncode, sorted(out.splitlines()), errors

    def of(self, words: str) -> int:
        """Return the number of the first of its processes whose command line has some words."""
        found: list[int] = []

        def look() -> bool:
            for number in (int(text.split()[0]) for text in processes(self.mark)):
                with suppress(OSError):  # it has just ended
                    line = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.extend([number] * line.startswith(words))
            return bool(found)

        assert until(look, START_S)
        return found[0]

    @property
    def record(self) -> AppRecord:
        """The record that it left."""
        return read_app(self.out)


@contextmanager
def applied(folder: Path, *words: str, shown: IO[bytes] | None = None) -> Iterator[Application]:
    """Run an application, which may say all to a terminal, and count what is left when the block ends."""
    need_sandbox()
    before, mark = things(), uuid.uuid4().hex
    scratch, out = folder / "scratch", folder / "results"
    scratch.mkdir()
    with subprocess.Popen(
        [sys.executable, APP, *RAIL, "--out", str(out), *words],
        cwd=folder,
        env=os.environ | {MARKER: mark, "TMPDIR": str(scratch)},
        stdin=subprocess.DEVNULL,
        stdout=shown or subprocess.PIPE,
        stderr=shown or subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hears_interrupts,
    ) as process:
        try:
            yield Application(process, mark, out)
        finally:
            process.kill()
    if left := [*left_behind(before, mark), *map(str, scratch.iterdir())]:
        raise FinalError(f"left on the host: {', '.join(left)}")


def test_each_host_runs_the_command_and_keeps_what_it_writes(tmp_path: Path) -> None:
    told = 'echo "$(hostname) $LIGHTRAIL_RANK of $LIGHTRAIL_SIZE" /sys/class/net/nic*; '
    told += 'getent hosts h1 h1-nic1 | tr -s " "; echo oops >&2; exit $((3 * LIGHTRAIL_RANK))'
    with applied(tmp_path, "--", "sh", "-c", told) as run:
        code, lines, errors = run.end()
        nics = "/sys/class/net/nic0 /sys/class/net/nic1"
        both = [(host, f"{host}: {host} {rank} of 2 {nics}") for rank, host in enumerate(("h0", "h1"))]
        assert {line for _, line in both} <= set(lines), errors
        for host, _ in both:
            assert {f"{host}: 172.16.0.2 h1", f"{host}: 10.1.0.128 h1-nic1"} <= set(lines)
            assert f"{host}: oops" in errors.splitlines()
            assert (run.out / "hosts" / f"{host}.out").read_text().startswith(f"{host} ")
        assert code == 3
        assert "h1 ended with exit code 3" in errors
        record = run.record
        assert [each.exit_code for each in record.processes] == [0, 3]
        assert (record.verdict.word, record.verdict.reasons) == ("model", ("no byte crossed the network",))


def echo_requests(file: Path) -> int:
    """Return how many requests of ping a capture has."""
    with RawPcapReader(str(file)) as read:
        return sum(packet[ICMP_TYPE:].startswith(ECHO_REQUEST) for packet, _ in read)


@pytest.mark.slow
def test_a_script_of_two_lines_starts_the_others_and_a_capture_has_their_packets(tmp_path: Path) -> None:
    script = tmp_path / "all.sh"
    script.write_text(
        "#!/bin/sh\nfor host in h0 h1; do lightrail-ssh $host 'hostname; ping -qc2 -i.2 h1'; done\n"
    )
    script.chmod(0o755)
    with applied(tmp_path, "--launch", "ssh", "--pcap", "h0:0,h0:1", "--", str(script)) as run:
        code, lines, errors = run.end()
        assert code == 0, errors
        assert {"h0: h0", "h0: h1"} <= set(lines)
        assert sum("2 packets transmitted, 2 received" in line for line in lines) == 2
        files = [run.out / "pcap" / f"h0-nic{number}.pcap" for number in (0, 1)]
        assert sum(map(echo_requests, files)) == 2
        assert run.record.tables.traffic["packets"].sum() >= 4


def test_openmpi_starts_a_rank_per_gpu(tmp_path: Path) -> None:
    path_of("mpirun")
    told = 'echo "$(hostname) $LIGHTRAIL_RANK $LIGHTRAIL_SIZE $LIGHTRAIL_LOCAL_RANK $LIGHTRAIL_NIC"'
    with applied(tmp_path, "--launch", "mpirun", "--", "sh", "-c", told) as run:
        code, lines, errors = run.end()
        assert code == 0, errors
        assert lines == [
            "h0.0: h0 0 4 0 nic0",
            "h0.1: h0 1 4 1 nic1",
            "h1.0: h1 2 4 0 nic0",
            "h1.1: h1 3 4 1 nic1",
        ]
        assert (run.out / "hosts" / "h1.1.out").read_text() == "h1 3 4 1 nic1\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    ids=lambda each: each.name,
)
def test_a_run_that_is_ended_keeps_what_it_did_and_is_void(tmp_path: Path, number: signal.Signals) -> None:
    with applied(tmp_path, "--", *SLEEPS) as run:
        assert run.lines(2) == ["h0: h0 is up", "h1: h1 is up"]
        run.process.send_signal(number)
        code, _, errors = run.end()
        assert code == 128 + number, errors
        record = run.record
        assert record.verdict.word == "void"
        assert record.stopped
        assert [each.exit_code for each in record.processes] == [128 + signal.SIGTERM] * 2
        assert (run.out / "hosts" / "h1.out").read_text() == "h1 is up\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "code"),
    [
        ("sleep 60", 128 + signal.SIGKILL),
        ("sh -c echo", 128 + signal.SIGKILL),
        ("ovs-vswitchd", 2),
    ],
)
def test_a_part_killed(tmp_path: Path, victim: str, code: int) -> None:
    with applied(tmp_path, "--on", "h1", "--", *SLEEPS) as run:
        assert run.lines(1) == ["h1: h1 is up"]
        os.kill(run.of(victim), signal.SIGKILL)
        assert run.end()[0] == code


@pytest.mark.slow
def test_the_runner_killed(tmp_path: Path) -> None:
    with applied(tmp_path, "--", *SLEEPS) as run:
        run.lines(2)
        run.process.kill()
        assert run.end()[0] == -signal.SIGKILL


@pytest.mark.slow
def test_a_run_whose_terminal_is_closed_keeps_what_it_did(tmp_path: Path) -> None:
    terminal, end = os.openpty()
    with open(end, "wb", 0) as shown, applied(tmp_path, "--", *SLEEPS, shown=shown) as run:
        with open(terminal, "rb", 0) as seen:
            shown.close()
            said = b""
            while b"h0 is up" not in said or b"h1 is up" not in said:
                said += seen.read(MOST_BYTES)
        run.process.send_signal(signal.SIGHUP)
        assert run.process.wait(END_S) == 128 + signal.SIGHUP
        assert run.record.stopped
        assert (run.out / "report.html").exists()


@pytest.mark.slow
def test_processes_that_cannot_begin_have_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has a directory that the applications' user cannot enter")
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(NOBODY))
    tmp_path.chmod(0o700)
    with applied(tmp_path, "--", "true") as run:
        code, _, errors = run.end()
        assert code == 125, errors
        assert f"h1: env: cannot change directory to '{tmp_path}'" in errors
        assert "h1 ended with exit code 125" in errors
        assert [each.exit_code for each in run.record.processes] == [125, 125]


@pytest.mark.slow
def test_an_application_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with applied(tmp_path, "--timeout", "0.5", "--on", "h0", "--", *SLEEPS) as run:
        code, _, errors = run.end()
        assert (code, run.record.verdict.word) == (124, "void"), errors


SENDS = """
import os, socket, time
with socket.create_server(("", 5000)) as listener:
    if os.environ["LIGHTRAIL_HOST"] == "h1":
        peer = listener.accept()[0]
        total = 0
        while data := peer.recv(1 << 20):
            total += len(data)
        print(total)
    else:
        while True:
            try:
                peer = socket.create_connection(("h1", 5000))
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        began = time.monotonic()
        while time.monotonic() < began + 3:
            peer.sendall(b"x" * 100_000)
"""


def in_python(code: str) -> tuple[str, ...]:
    """Return the command that runs some Python."""
    return (sys.executable, "-c", code)


@pytest.mark.slow
def test_a_connection_between_hosts_outlives_the_rail_that_it_crosses(tmp_path: Path) -> None:
    fails = ",".join(f"nic:0:{nic}@{1 + nic}s-{1.5 + nic:g}s" for nic in (0, 1))
    with applied(tmp_path, "--fail", f"{fails},nic:1:0@50s", "--", *in_python(SENDS)) as run:
        code, lines, errors = run.end()
        assert code == 0, errors
        assert int(lines[0].removeprefix("h1: ")) > 3_000_000
        events = [(event.what, event.text) for event in run.record.events]
        happened = [("failed", 0), ("mended", 0), ("failed", 1), ("mended", 1)]
        assert events == [
            *((what, fails.split(",")[number]) for what, number in happened),
            ("missed", "nic:1:0@50s"),
        ]


@pytest.mark.slow
def test_a_server_that_fails_loses_its_processes(tmp_path: Path) -> None:
    with applied(tmp_path, "--fail", "server:1@0.5s", "--", "sh", "-c", "sleep 2; echo alive") as run:
        code, lines, errors = run.end()
        assert (code, lines) == (128 + signal.SIGKILL, ["h0: alive"]), errors


@pytest.mark.slow
def test_the_generator_carries_the_same_bytes_over_the_nics_that_they_took(
    tmp_path: Path, machine: Machine
) -> None:
    with applied(tmp_path, "--against", "--", *in_python(SENDS)) as run:
        code, lines, errors = run.end()
        assert code == 0, errors
        beside = run.record.beside
        assert beside
        sent = int(lines[0].removeprefix("h1: "))
        assert beside.payload_bytes == pytest.approx(sent, rel=0.01)
        # One connection takes one NIC of two.
        assert machine.busy or beside.generator_s == pytest.approx(beside.application_s, rel=0.2)
        assert machine.busy or beside.generator_s == pytest.approx(beside.predicted_s, rel=0.2)


@pytest.mark.slow
def test_the_generator_carries_what_cannot_be_predicted(tmp_path: Path) -> None:
    fails = "nic:0:0@1s-1.2s,nic:0:1@1s-1.2s"
    with applied(tmp_path, "--against", "--fail", fails, "--", *in_python(SENDS)) as run:
        code, _, errors = run.end()
        assert code == 0, errors
        assert "the application is not predicted: " in errors  # h0 has no NIC meanwhile
        assert run.record.beside


@pytest.mark.slow
def test_a_socket_of_mptcp_uses_both_nics(tmp_path: Path) -> None:
    path_of("mptcpize")
    with applied(tmp_path, "--mptcp", "--", *in_python(SENDS)) as run:
        code, _, errors = run.end()
        assert code == 0, errors
        sent = run.record.tables.links.groupby("port")["bytes"].sum()
        assert 0.5 < sent["h0:0"] / sent["h0:1"] < 2
