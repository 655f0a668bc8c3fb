"""Commands on the hosts of a booted network, from Python and from each other: names, streams, ends."""

import gc
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scenarios.api.network import ApplicationNetwork, network
from testbed.apps.host_processes import CommandError
from testbed.machine.residue import until
from tests.emulation.box import Box
from tests.tools import path_of
from topologies.errors import LightrailError, NetworkError, ScenarioError
from topologies.rail import rail_fabric

pytestmark = [pytest.mark.emulation, pytest.mark.early]

FABRIC = rail_fabric(4, 2)
END_S = 20.0
"""Within so long what has to end has ended, on a busy machine [s]."""
STANDARD_SIGNALS = (1 << 31) - 1
"""The bits of /proc/PID/status for them; the C library keeps two others for itself."""
NAMES = """\
hostname; cat /etc/hostname; getent hosts h3 h3-nic1 localhost | tr -s ' '
echo $LIGHTRAIL_HOST $LIGHTRAIL_HOSTS $LIGHTRAIL_NICS $LIGHTRAIL_SCALE; ls /sys/class/net
"""
NAMES_OF_H2 = """\
h2
h2
172.16.0.4 h3
10.1.1.0 h3-nic1
127.0.0.1 localhost
h2 h0,h1,h2,h3 nic0,nic1 1
host
lo
nic0
nic1
"""


NONSENSE = """
import socket
for message in (b"nonsense", b"[]", b'{"host": 3}', b'{"signal": 9}'):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect("/run/lightrail-hosts/hosts.sock")
        server.send(message)
        print(server.recv(1 << 16).decode())
"""


@pytest.fixture(scope="module")
def net(sandbox: Box | None) -> Iterator[ApplicationNetwork | None]:
    """Return a network whose hosts run applications; the session outside calls no test, and has none."""
    if sandbox:
        yield None
        return
    with network(FABRIC) as booted:
        yield booted


def shell(net: ApplicationNetwork, host: int, line: str, **options: str | bytes) -> str:
    """Return the output of a line of the shell on a host."""
    return net.host(host).run(["sh", "-c", line], check=True, timeout=END_S, **options).stdout  # type: ignore[arg-type]


def processes(net: ApplicationNetwork) -> list[str]:
    """Return the words of all processes of the sandbox."""
    return net.host(0).run(["ps", "-e", "-o", "args="], check=True).stdout.splitlines()


def running(net: ApplicationNetwork, words: str) -> int:
    """Return how many processes run whose words begin with an expression."""
    return sum(bool(re.match(words, process)) for process in processes(net))


def test_a_host_has_a_name_and_knows_all_others(net: ApplicationNetwork) -> None:
    assert shell(net, 2, NAMES) == NAMES_OF_H2


def test_hosts_reach_each_other_by_name(net: ApplicationNetwork) -> None:
    for name in ("h1", "h3", "h3-nic0", "localhost"):
        assert " 0% packet loss" in shell(net, 0, f"ping -c 1 -W 5 {name}")


def test_a_host_has_temporary_files_of_its_own_and_shares_all_others(
    net: ApplicationNetwork, tmp_path: Path
) -> None:
    shell(net, 0, f"touch $TMPDIR/mine /dev/shm/mine {tmp_path}/ours")
    assert shell(net, 0, "ls $TMPDIR /dev/shm").count("mine") == 2
    assert shell(net, 1, f"ls $TMPDIR /dev/shm {tmp_path}; pwd", cwd=str(tmp_path)).split()[-2:] == [
        "ours",
        str(tmp_path),
    ]
    assert "mine" not in shell(net, 1, "ls $TMPDIR /dev/shm")


def test_a_command_begins_as_if_a_user_had_typed_it(net: ApplicationNetwork) -> None:
    of_itself = (
        "ls /proc/self/fd; grep -E 'SigIgn|SigBlk' /proc/self/status; ulimit -Sn; ps -o pid=,pgid=,sid= $$"
    )
    *descriptors, ignored, blocked, files, ids = shell(net, 0, of_itself).splitlines()
    assert descriptors == ["0", "1", "2", "3"]
    assert not any(int(line.split()[1], 16) & STANDARD_SIGNALS for line in (ignored, blocked))
    assert files == "1024"
    assert len(set(ids.split())) == 1


@pytest.mark.parametrize(("line", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("nosuch", 127), ("true", 0)])
def test_an_exit_code_is_that_of_a_shell(net: ApplicationNetwork, line: str, code: int) -> None:
    assert net.host(0).run(["sh", "-c", line], timeout=END_S).returncode == code
    assert net.host(0).run(["lightrail-ssh", "h1", line], timeout=END_S).returncode == code


def test_what_cannot_be_run_is_a_sentence(net: ApplicationNetwork) -> None:
    host = net.host("h3-nic1")
    assert host.name == "h3"
    with pytest.raises(CommandError, match="h3 has no command 'nosuch'; install it") as error:
        host.run(["nosuch"])
    assert error.value.code == 127
    for refused, words in (
        (lambda: host.run("ls"), r"'ls' is not a list of words; give \['sh'|\[\"sh\""),
        (lambda: host.run([]), "there is no command to run on h3"),
        (lambda: host.run(["ls"], cwd="/nosuch"), "h3 has no directory /nosuch"),
        (lambda: host.run(["sleep", "60"], timeout=0.2), "sleep 60 on h3 did not end within 0.2 s"),
        (lambda: host.run(["sh", "-c", "echo no >&2; exit 4"], check=True), "exit code 4; no$"),
        (lambda: net.host(4), "fabric rail has no host 4; its hosts are h0 to h3"),
        (lambda: net.fail("nic:0:0@1s"), "fails now; leave out @"),
        (lambda: net.fail("nothing"), "^'nothing' is not a valid fault; name nic:SERVER:NIC"),
        (lambda: net.light("ocs0", "0>1"), "fabric rail has no OCS 'ocs0'"),
    ):
        with pytest.raises(ScenarioError, match=words):
            refused()
    assert host.run(["/etc/hosts"]).returncode == 126
    with host.start(["sleep", "60"]) as late, pytest.raises(TimeoutError, match=r"^sleep did not end within"):
        late.wait(0.1)
    assert repr(late) == "<sleep 60 on h3, ended>"
    assert repr(net) == "<network of fabric rail, 4 hosts>"


def test_an_unknown_host_is_a_sentence_and_255(net: ApplicationNetwork) -> None:
    done = net.host(0).run(["lightrail-ssh", "h9", "hostname"])
    assert done.returncode == 255
    assert done.stderr.startswith("lightrail-ssh: there is no host 'h9'; ")


def test_a_megabyte_passes_through_as_it_is(net: ApplicationNetwork, tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    (tmp_path / "data").write_bytes(data)
    shell(net, 0, f"cat > {tmp_path}/direct", input=data)
    shell(net, 0, f"cat {tmp_path}/data | lightrail-ssh -x user@h1 cat | cat > {tmp_path}/piped")
    assert (tmp_path / "direct").read_bytes() == (tmp_path / "piped").read_bytes() == data


def test_a_script_of_two_lines_runs_on_all_hosts(net: ApplicationNetwork) -> None:
    hosts = "$(echo $LIGHTRAIL_HOSTS | tr , ' ')"
    script = f"for host in {hosts}; do lightrail-ssh $host 'hostname; echo $0 $PWD' & done\nwait"
    assert sorted(shell(net, 0, script, cwd="/usr").split()) == sorted(
        ["h0", "h1", "h2", "h3"] + 4 * ["/bin/sh", "/usr"]
    )


def test_signals_reach_the_whole_group(net: ApplicationNetwork) -> None:
    process = net.host(0).start(["sh", "-c", "trap 'echo heard; exit 7' INT; echo up; sleep 60 & wait"])
    assert until(lambda: "up" in process.output, END_S)
    process.signal(signal.SIGINT)
    assert process.wait(END_S) == 7
    assert process.output == "up\nheard\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_command_ends_with_the_lightrail_ssh_that_started_it(
    net: ApplicationNetwork, number: signal.Signals
) -> None:
    with net.host(0).start(["lightrail-ssh", "h1", "sleep 61"]) as client:
        assert until(lambda: running(net, "sleep 61") == 1, END_S)
        client.signal(number)
        assert client.wait(END_S) == 128 + number
    assert until(lambda: running(net, "sleep 61") == 0, END_S)


def test_a_command_ends_with_whoever_asked_for_it(net: ApplicationNetwork) -> None:
    with net.host(0).start(["sh", "-c", "sleep 62 & sleep 62"]) as process:
        assert until(lambda: running(net, "sleep 62") == 2, END_S)
        with pytest.raises(TimeoutError):
            process.wait(0.01)
        assert process.is_running
    assert not process.is_running
    with pytest.raises(NetworkError, match="sh was killed when its block ended"):
        process.wait()
    assert until(lambda: running(net, "sleep 62") == 0, END_S)


def test_nobody_waits_for_what_a_command_leaves_running(net: ApplicationNetwork) -> None:
    assert shell(net, 0, "setsid sh -c 'echo left; exec sleep 63' & sleep 0.2; echo ended") == "left\nended\n"
    assert running(net, "sleep 63") == 1
    net.host(0).run(["pkill", "-f", "^sleep 63"])


def test_a_process_that_is_forgotten_goes_on(net: ApplicationNetwork, tmp_path: Path) -> None:
    net.host(1).start(["sh", "-c", f"sleep 0.3; echo done > {tmp_path}/late"])
    gc.collect()
    assert until((tmp_path / "late").exists, END_S)


def test_several_threads_run_commands_and_wait_for_the_same_one(net: ApplicationNetwork) -> None:
    def echoes(number: int) -> list[str]:
        return [shell(net, number % 4, f"echo {number} {each}") for each in range(20)]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(echoes, range(8))) == [
            [f"{number} {each}\n" for each in range(20)] for number in range(8)
        ]
        with net.host(0).start(["sh", "-c", "sleep 0.5; exit 3"]) as process:
            assert list(threads.map(process.wait, [END_S] * 8)) == [3] * 8
        with net.host(0).start(["sleep", "66"]) as process:
            waits = [threads.submit(process.wait) for _ in range(4)]
        assert all(isinstance(wait.exception(END_S), NetworkError) for wait in waits)


def test_of_two_that_write_at_once_none_is_lost(net: ApplicationNetwork) -> None:
    flags = shell(net, 0, "grep -h flags /proc/self/fdinfo/1 /proc/self/fdinfo/2").split()[1::2]
    assert [int(each, 8) & os.O_APPEND for each in flags] == [os.O_APPEND] * 2


def test_what_is_no_signal_is_a_sentence_and_sends_none(net: ApplicationNetwork) -> None:
    with net.host(0).start(["sleep", "0.5"]) as process:
        for number in (0, 99):
            with pytest.raises(ScenarioError, match=f"{number} is not a signal"):
                process.signal(number)
        assert process.wait(END_S) == 0


def test_a_command_at_a_terminal_has_one_of_its_own(net: ApplicationNetwork) -> None:
    words = ["lightrail-ssh", "-t", "h1", "hostname; ps -o tty= $$; read x; echo got $x; exit 5"]
    at_one = f"import pty, sys; sys.exit(pty.spawn({words}) >> 8)"
    with net.host(0).start(["python3", "-c", at_one], input="typed\n") as process:
        assert process.wait(END_S) == 5
        lines = process.output.split("\r\n")
    assert "h1" in lines
    assert "got typed" in lines
    assert any(line.startswith("pts/") for line in lines)


def test_its_server_survives_whatever_it_is_sent(net: ApplicationNetwork) -> None:
    for _ in range(30):
        net.host(0).start(["true"]).close()  # a client that hangs up as its process ends
    said = net.host(0).run(["python3", "-c", NONSENSE], check=True, timeout=END_S).stdout.splitlines()
    assert [line[:11] for line in said] == 4 * ['{"refused":']
    with pytest.raises(CommandError, match="h0 cannot run 'echo': embedded null byte"):
        net.host(0).run(["echo", "one\0two"])
    assert shell(net, 0, "echo fine") == "fine\n"


def test_a_nic_and_a_server_fail_and_work_again(net: ApplicationNetwork) -> None:
    net.fail("nic:3:0")
    assert " 0% packet loss" in shell(net, 0, "ping -c 1 -W 5 h3")
    with pytest.raises(LightrailError, match="nic:3:0 has failed already"):
        net.fail("nic:3:0")
    process = net.host(3).start(["sh", "-c", "trap '' TERM; sleep 64"])
    net.fail("server:3")
    assert process.wait(END_S) == 137
    assert net.host(0).run(["ping", "-c", "1", "-W", "1", "h3"]).returncode != 0
    net.mend()
    assert " 0% packet loss" in shell(net, 0, "ping -c 1 -W 5 h3")


@pytest.fixture
def mpirun() -> list[str]:
    """Return OpenMPI's command for a rank on each host."""
    path_of("mpirun")
    return ["mpirun", "--host", "h0,h1,h2,h3"]


def test_openmpi_starts_a_rank_on_each_host(net: ApplicationNetwork, mpirun: list[str]) -> None:
    done = net.host(0).run([*mpirun, "hostname"], timeout=END_S)
    assert sorted(done.stdout.split()) == ["h0", "h1", "h2", "h3"], done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("victim", ["^mpirun", "^orted", "^sleep 65", "python.* .*lightrail-ssh"])
def test_openmpi_leaves_nothing_whatever_of_it_is_killed(
    net: ApplicationNetwork, mpirun: list[str], victim: str
) -> None:
    all_of_it = r"mpirun|orted|sleep 65|\S*python\S* .*lightrail-ssh|/bin/sh -c .*orted"
    assert running(net, all_of_it) == 0
    job = net.host(0).start([*mpirun, "sleep", "65"])
    assert until(lambda: running(net, "sleep 65") == 4, END_S), job.errors
    killed = net.host(0).run(["pkill", "-9", "-o", "-f", victim])
    assert killed.returncode == 0, (job.errors, processes(net))
    assert job.wait(END_S) != 0
    assert until(lambda: running(net, all_of_it) == 0, END_S), processes(net)
