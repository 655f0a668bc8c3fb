"""Which packets the kernel hands to a socket: classic BPF (see bpf(4) of BSD, linux/filter.h)."""

import contextlib
import ctypes
import socket
import struct
from collections.abc import Sequence

SO_ATTACH_FILTER = 26
Program = Sequence[tuple[int, int, int, int]]
"""Instructions: code, how many to skip if a condition holds and if not, operand."""


def attach_filter(receiver: socket.socket, program: Program) -> None:
    """Have the kernel hand a socket only the packets that a program takes.

    What came between its making and this is dropped: resets of connections before looked like new ones.
    """
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    receiver.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(code))
    )
    with contextlib.suppress(BlockingIOError):
        while True:
            receiver.recv(1, socket.MSG_DONTWAIT)
