"""The heads of packets as arrays, read from memory that the kernel shares with this process.

The kernel writes them there (``PACKET_RX_RING``, packet_mmap.rst of its documentation), and a thread reads
them some times a second: a run of some ten thousand packets a second is hardly disturbed. The memory is
charged to no limit of a socket's or a user's, so that it is as large for an ordinary user.
"""

import mmap
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

import numpy as np
from numpy.typing import NDArray

from testbed.machine.wall_clock import wall_ahead_s
from traffic.transports.packet_filter import Program, attach_filter

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 5, 6, 10
TPACKET_V2 = 1
TO_USER = 1
"""The bit of a frame's status that says whose turn it is."""
HEAD = 66
"""Where the kernel puts a packet's Ethernet header in a frame."""
FRAME_BYTES, FRAMES, BLOCK_BYTES = 128, 1 << 16, 1 << 16
FRAME = {"status": ("u4", 0), "bytes": ("u4", 4), "s": ("u4", 16), "ns": ("u4", 20), "interface": ("i4", 36),
         "kind": ("u1", 42)}  # fmt: skip
"""The fields of all frames, with type and place: of struct tpacket2_hdr, and of sockaddr_ll behind it."""
ETHERNET_BYTES = 14
LOOK = 64
"""Frames that are looked at first; all of them take some milliseconds."""
Frames = NDArray[np.void]


def frame_of(**fields: tuple[str, int]) -> np.dtype[np.void]:
    """Return the type of a frame with fields of the packet, each its type and its place in the packet."""
    places = FRAME | {name: (kind, HEAD + place) for name, (kind, place) in fields.items()}
    kinds, offsets = zip(*places.values(), strict=True)
    return np.dtype({"names": [*places], "formats": [*kinds], "offsets": [*offsets], "itemsize": FRAME_BYTES})


class PacketRing:
    """Hands the packets that a filter takes to a function, some times a second; a context manager.

    Parameters
    ----------
    program
        Which packets of this network namespace, and how much of each: a frame holds `FRAME_BYTES` less
        `HEAD`.
    frame
        The type of a frame, by `frame_of`.
    take
        Is given frames in the order in which the kernel saw them, in a thread; they are overwritten later.
    round_s
        How often frames are read [s].
    room
        How many frames there are.
    """

    def __init__(
        self,
        program: Program,
        frame: np.dtype[np.void],
        take: Callable[[Frames], object],
        round_s: float,
        room: int = FRAMES,
    ) -> None:
        self._program, self._frame, self._take, self._round_s = program, frame, take, round_s
        self._room = room
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self.seen = 0
        """How many packets the filter took, those that were missed among them; once it has stopped."""
        self.missed = 0
        """How many of them came faster than they were read; once it has stopped."""
        self.stepped_s = 0.0
        """The most by which the wall clock was set meanwhile, whose times frames have [s]."""
        self.cpu_s = 0.0
        """CPU time that reading took [s]; once it has stopped."""
        self.ahead_s = wall_ahead_s()
        """How far the times of frames are ahead of the monotonic clock, as it was made [s]."""

    def __enter__(self) -> Self:
        """Start to listen."""
        with ExitStack() as stack:
            every = socket.htons(ETH_P_ALL)
            self._socket = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, every))
            attach_filter(self._socket, self._program)
            self._socket.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
            size = self._room * FRAME_BYTES
            ring = struct.pack("IIII", BLOCK_BYTES, size // BLOCK_BYTES, FRAME_BYTES, self._room)
            self._socket.setsockopt(SOL_PACKET, PACKET_RX_RING, ring)
            self._memory = stack.enter_context(mmap.mmap(self._socket.fileno(), size))
            self._stack = stack.pop_all()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object = None, *_error: object) -> None:
        """Stop; what has come by now is still read. Raise what kept packets from being read."""
        self._stop.set()
        self._thread.join()
        self.seen, self.missed = struct.unpack(
            "II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        )
        self._stack.close()
        if self._failure and kind is None:
            raise self._failure

    def _listen(self) -> None:
        try:
            self._read()
        except Exception as error:
            error.add_note("".join(traceback.format_tb(error.__traceback__)))
            self._failure = error.with_traceback(None)  # or it would keep the shared memory open
        self.cpu_s = time.thread_time()

    def _read(self) -> None:
        frames = np.frombuffer(self._memory, self._frame)
        at, over = 0, False
        while not over:
            over = self._stop.wait(self._round_s)
            self.stepped_s = max(self.stepped_s, abs(wall_ahead_s() - self.ahead_s))
            while ready := _ready(frames["status"][at:]):
                self._take(frames[at : at + ready])
                frames["status"][at : at + ready] = 0  # the kernel's again
                at = (at + ready) % self._room


def _ready(status: NDArray[np.uint32]) -> int:
    """Return how many frames from the first on are this process's: few are looked at where few are."""
    count, look = 0, LOOK
    while count < len(status):
        mine = (status[count : count + look] & TO_USER).astype(bool)
        if not mine.all():
            return count + int(mine.argmin())
        count, look = count + len(mine), 2 * look
    return count
