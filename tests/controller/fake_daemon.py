"""The control socket of an ``ovs-vswitchd`` that is played: it empties a flow cache that it does not have."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

Answers = Callable[[str], object]
"""What the daemon answers to a command: the whole JSON-RPC answer, its ``id`` left out."""


def obliging(command: str) -> object:
    """Return what a daemon of one userspace datapath answers when all is well."""
    return {"result": "netdev@ovs-netdev" if command == "dpctl/dump-dps" else "", "error": None}


class FakeDaemon:
    """Answers as ``answers`` says, once it is let.

    Parameters
    ----------
    answers
        What it answers; may be replaced at any time.
    """

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.let = Event()
        self.let.set()
        self.asked: list[str] = []

    def serve(self, listener: socket.socket) -> None:
        """Serve one connection after the other, until the listener is closed."""
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        decoder, text = json.JSONDecoder(), ""
        while part := connection.recv(4096):
            text += part.decode()
            while text:
                request, end = decoder.raw_decode(text)
                text = text[end:]
                self.asked.append(request["method"])
                self.let.wait()
                answer = self.answers(request["method"])
                if isinstance(answer, dict):
                    answer = {**answer, "id": request["id"]}
                connection.sendall(json.dumps(answer).encode())


@contextmanager
def fake_daemon(directory: Path, answers: Answers = obliging) -> Iterator[FakeDaemon]:
    """Play a switch daemon whose control socket is in a directory, the controller's ``OVS_RUNDIR``."""
    daemon = FakeDaemon(answers)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(directory / "ovs-vswitchd.1.ctl"))
        listener.listen()
        Thread(target=daemon.serve, args=(listener,), daemon=True).start()
        yield daemon
        listener.shutdown(socket.SHUT_RDWR)
