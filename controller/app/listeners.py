"""The controller's two listening sockets; nothing else, so that they are open before all imports are done."""

import os
import socket
from pathlib import Path

from topologies.errors import NetworkError

BACKLOG = 1024
"""All switches of a fabric connect at one instant; one that is turned away waits for seconds."""


def private_listener(path: Path) -> socket.socket:
    """Return a unix socket to which only this user's processes can connect; an abandoned one is replaced.

    Raises
    ------
    NetworkError
        If another process listens there, or the path cannot be made.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_abandoned(path):
            path.unlink()
        bind_privately(listener, path)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise NetworkError(f"listen on {path}: {error.strerror or error}") from error
    return listener


def bind_privately(unbound: socket.socket, path: Path) -> None:
    """Bind a unix socket to a path that is this user's alone from the first moment on, whatever the umask."""
    os.fchmod(unbound.fileno(), 0o600)  # the path takes this mode over
    unbound.bind(str(path))


def _is_abandoned(path: Path) -> bool:
    if not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False
