"""Messages and their chunks: a demand matrix as the work that queue pairs carry."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError
from topologies.fabric import Fabric
from traffic.demand import Demand

CHUNK_BYTES = 32 << 10
"""The paper's chunk (RailS, section V-A): 32 KiB at real scale."""
MOST_CHUNKS = 10_000_000
"""Most chunks of one all-to-all, some 300 GB of them: what policies and models hold in memory."""


@dataclass(frozen=True, eq=False)
class Messages:
    """What one GPU owes another, a message per pair; parallel arrays of one length."""

    source: NDArray[np.int64]
    """Source GPU of each message."""
    destination: NDArray[np.int64]
    """Destination GPU of each message."""
    bytes: NDArray[np.int64]
    """Size of each message [bytes], positive."""

    def __len__(self) -> int:
        """How many messages."""
        return len(self.bytes)

    def select(self, mask: NDArray[np.bool_]) -> "Messages":
        """Return the messages where ``mask`` is true."""
        return Messages(self.source[mask], self.destination[mask], self.bytes[mask])

    @property
    def read_only(self) -> "Messages":
        """The same messages, for a user's code to look at."""
        return Messages(*map(_read_only, (self.source, self.destination, self.bytes)))


@dataclass(frozen=True, eq=False)
class Chunks:
    """The atomic pieces of messages; a message's chunks stand together, in its order."""

    message: NDArray[np.int64]
    """Index of each chunk's message."""
    bytes: NDArray[np.int64]
    """Size of each chunk [bytes], positive."""

    def __len__(self) -> int:
        """How many chunks."""
        return len(self.bytes)

    @property
    def read_only(self) -> "Chunks":
        """The same chunks, for a user's code to look at."""
        return Chunks(_read_only(self.message), _read_only(self.bytes))


def messages_of(demand: Demand) -> Messages:
    """Return the messages of a demand, row by row; what a GPU owes itself is no message."""
    owed = demand.matrix.copy()
    np.fill_diagonal(owed, 0)
    source, destination = np.nonzero(owed)
    return Messages(source, destination, owed[source, destination])


def together(*several: Messages) -> Messages:
    """Return messages one after the other."""
    columns = zip(*((each.source, each.destination, each.bytes) for each in several), strict=True)
    return Messages(*map(np.concatenate, columns))


def crosses_network(messages: Messages, fabric: Fabric) -> NDArray[np.bool_]:
    """Return which messages leave their server; the others go over NVLink."""
    servers = fabric.server_of_gpu
    return np.asarray(servers[messages.source] != servers[messages.destination])


def chunks_of(messages: Messages, chunk_bytes: int = CHUNK_BYTES) -> Chunks:
    """Return the chunks of messages: as many whole ones as fit, and the rest; of nothing there is none.

    Raises
    ------
    DemandError
        If ``chunk_bytes`` is not positive, or there would be more than `MOST_CHUNKS`.
    """
    if chunk_bytes < 1:
        raise DemandError(f"a chunk of {chunk_bytes} bytes", "give it at least one byte")
    counts = -(-messages.bytes // chunk_bytes)
    if (total := counts.sum(dtype=float)) > MOST_CHUNKS:
        raise DemandError(
            f"{total:,.0f} chunks of {chunk_bytes:,} bytes at once",
            f"give a demand of {MOST_CHUNKS * chunk_bytes:,} bytes or less; is it in bytes?",
        )
    message = np.repeat(np.arange(len(messages)), counts)
    sizes = np.full(len(message), chunk_bytes, dtype=np.int64)
    last, some = np.cumsum(counts) - 1, counts > 0
    sizes[last[some]] -= (counts * chunk_bytes - messages.bytes)[some]
    return Chunks(message, sizes)


def _read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    view = array.view()
    view.flags.writeable = False
    return view
