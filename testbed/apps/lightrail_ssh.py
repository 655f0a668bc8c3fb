"""``lightrail-ssh [user@]HOST [COMMAND ...]``: what ssh is between machines, between the hosts of a network.

It is for OpenMPI (``plm_rsh_agent``), for rendezvous and for scripts: the words of the command are joined and
carried out by ``/bin/sh -c``; without a command there is a shell. The command has this one's standard
streams, directory and environment, and this one its exit code. SIGINT, SIGTERM and SIGHUP are passed on. At a
terminal a shell has a terminal of its own, and so has a command with ``-t``.

It is copied to where hosts find it and run by Python's library alone, so that it starts in 20 ms. What it
sends to the hosts' server is described there (`testbed.apps.host_server`).
"""

import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios
import tty
from collections.abc import Mapping
from contextlib import suppress

SOCKET = "/run/lightrail-hosts/hosts.sock"
WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"
"""ssh's options of one letter that a value follows (ssh(1))."""
OF_HOST = ("LIGHTRAIL_HOST", "LIGHTRAIL_NICS", "HOSTNAME", "TMPDIR", "OLDPWD", "PWD", "SHLVL", "_")
"""Variables that differ from host to host."""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MOST_BYTES = 1 << 16
"""Of an answer."""
LAST_STREAM = 2
"""Number of the standard error."""
MISUSE = 255
"""ssh's exit code for its own failures."""


class RefusedError(Exception):
    """A request that was refused: a sentence, a hint and an exit code."""

    def __init__(self, sentence: str, hint: str, code: int) -> None:
        super().__init__(f"{sentence}; {hint}" if hint else sentence)
        self.sentence, self.hint, self.code = sentence, hint, code


def main(words: list[str]) -> int:
    """Carry out a command on a host, and return its exit code."""
    host, command, wants_terminal = parsed(words)
    if not host:
        return complain("usage: lightrail-ssh [user@]HOST [COMMAND ...]", MISUSE)
    open_standard_streams()
    request: dict[str, object] = {
        "host": host.rpartition("@")[2],
        "argv": ["/bin/sh", "-c", " ".join(command)] if command else [os.environ.get("SHELL") or "/bin/sh"],
        "env": {name: value for name, value in os.environ.items() if name not in OF_HOST},
        "cwd": directory(),
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(SOCKET)
            if os.isatty(0) and (wants_terminal or not command):
                return at_terminal(connection, request)
            return carried_out(connection, request)
        except RefusedError as refused:
            return complain(str(refused), refused.code)
        except OSError as error:
            return complain(f"the network of this host has ended ({error.strerror})", MISUSE)


def parsed(words: list[str]) -> tuple[str, list[str], bool]:
    """Return the host and the command of ssh's command line, and whether ``-t`` is there, its one option."""
    left, wants_terminal = list(words), False
    while left and left[0].startswith("-"):
        option = left.pop(0)
        wants_terminal |= option in ("-t", "-tt")
        if option == "--":
            break
        if option[1:2] in WITH_VALUE and len(option) == 2:
            left[:1] = []
    return (left[0] if left else ""), left[1:], wants_terminal


def carried_out(connection: socket.socket, request: Mapping[str, object]) -> int:
    """Have a command carried out with this process' standard streams; return its exit code."""
    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _frame: tell(connection, {"signal": number}))
    ask(connection, request, (0, 1, 2))
    answered(connection)
    return int(str(answered(connection)["ended"]))


def at_terminal(connection: socket.socket, request: Mapping[str, object]) -> int:
    """Have a command carried out at a terminal of its own, joined to this one; return its exit code."""
    ours, its = os.openpty()
    fit(ours)
    signal.signal(signal.SIGWINCH, lambda _number, _frame: fit(ours))
    ask(connection, {**request, "terminal": True}, (its, its, its))
    os.close(its)
    answered(connection)
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead stays
        join(ours, connection)
        return int(str(answered(connection)["ended"]))
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def fit(terminal: int) -> None:
    """Give a terminal the size of this one."""
    size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


def join(terminal: int, connection: socket.socket) -> None:
    """Pass on what is typed here and what is written there, until the command has ended and all is here."""
    sources: list[int | socket.socket] = [0, terminal, connection]
    while terminal in sources or connection in sources:
        ready = select.select(sources, [], [])[0]
        if connection in ready and terminal not in ready:
            return
        for source, to in ((0, terminal), (terminal, 1)):
            if source in ready:
                try:
                    data = os.read(source, MOST_BYTES)
                except OSError:  # nobody has the other end any more
                    data = b""
                if data:
                    os.write(to, data)
                else:
                    sources.remove(source)


def ask(connection: socket.socket, request: Mapping[str, object], descriptors: tuple[int, ...] = ()) -> None:
    """Ask the hosts' server; what is asked lies in a memfd, since a message has a limit."""
    with open(os.memfd_create("request"), "wb", buffering=0) as body:
        body.write(json.dumps(request).encode())
        socket.send_fds(connection, [b"{}"], [body.fileno(), *descriptors])


def answered(connection: socket.socket) -> dict[str, object]:
    """Return the server's next answer; RefusedError if it refuses, or has ended."""
    message = connection.recv(MOST_BYTES)
    if not message:
        raise RefusedError("the network of this host has ended", "", MISUSE)
    answer: dict[str, object] = json.loads(message)
    if "refused" in answer:
        raise RefusedError(str(answer["refused"]), str(answer["hint"]), int(str(answer["code"])))
    return answer


def tell(connection: socket.socket, message: dict[str, object]) -> None:
    """Send a message about the process; none is needed once it has ended."""
    with suppress(OSError):
        connection.send(json.dumps(message).encode())


def open_standard_streams() -> None:
    """Open what is closed of the standard streams, as nothing: others would get their numbers."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= LAST_STREAM:
        os.set_inheritable(opened, True)
    os.close(opened)


def directory() -> str:
    """Return this directory, or the first one if this has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return "/"


def complain(sentence: str, code: int) -> int:
    """Write a sentence to the standard error, and return an exit code."""
    os.write(2, f"lightrail-ssh: {sentence}\n".encode(errors="replace"))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
