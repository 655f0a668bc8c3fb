"""Routing traces, which expert each token chose, folded into demand matrices in bounded memory.

Rules that the formats leave open, and that every reader of them keeps:

- Where a token comes from: where the trace names no rank, rows are dealt in order. An
  all-to-all takes ``gpus * tokens`` rows; its first ``tokens`` rows are GPU 0's, the next GPU 1's.
  The last all-to-all may be short, and its last GPUs send less or nothing.
- Where an expert lives: expert e of E on GPU e * gpus // E, neighbours together.
- What is sent: a token goes once to *each* of its experts, as in Megatron's all-to-all
  dispatcher, also when two of them live on one GPU, and also to the GPU that it is on.

Only the dispatch is given; the combine is its transpose.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topologies.errors import TraceError
from traffic.demand import Demand
from traffic.job import Job
from traffic.readers.text import MAX_BYTES, MAX_GPUS, trace_name
from traffic.steps import Step, job_of_steps

MAX_CELLS = 1 << 26
"""Most cells that the matrices of a collective may have together: 512 MiB."""
MAX_ALL_TO_ALLS = 1 << 16
"""Most all-to-alls of a collective."""


@dataclass(frozen=True, slots=True)
class Hosting:
    """Which GPUs the routed experts live on, and how large a token is.

    Raises
    ------
    TraceError
        If a number is not positive, or there are more than ``MAX_GPUS`` GPUs.
    """

    gpus: int
    """How many GPUs."""
    experts: int
    """How many routed experts, over all GPUs."""
    bytes_per_token: int
    """The model's hidden size x 2 [bytes]."""
    tokens: int = 4096
    """Tokens per GPU in an all-to-all; not used where the trace names ranks and steps."""

    def __post_init__(self) -> None:
        """Refuse what hosts nothing."""
        if not 1 <= self.gpus <= MAX_GPUS:
            raise TraceError(f"a routing trace on {self.gpus} GPUs", f"give 1 to {MAX_GPUS}")
        for value, what in (
            (self.experts, "experts"),
            (self.tokens, "tokens per GPU"),
            (self.bytes_per_token, "bytes per token"),
        ):
            if not 1 <= value <= MAX_BYTES >> 20:
                raise TraceError(f"a routing trace of {value} {what}", "give at least one")

    def counts(
        self, path: Path, source: NDArray[np.int64], chosen: NDArray[np.integer], first_row: int
    ) -> NDArray[np.int64]:
        """Return how many tokens each GPU sends to each GPU, shape (gpus, gpus).

        Parameters
        ----------
        path, first_row
            Of the trace and of the first token in it, for the error.
        source
            The GPU of each token, shape (tokens,).
        chosen
            The experts of each token, shape (tokens, top k).

        Raises
        ------
        TraceError
            If there is no such expert.
        """
        wrong = np.flatnonzero(((chosen < 0) | (chosen >= self.experts)).any(axis=1))
        if len(wrong):
            raise TraceError(
                f"{path}, row {first_row + wrong[0]}: found the experts {chosen[wrong[0]].tolist()}, "
                f"expected 0 to {self.experts - 1}"
            )
        home = np.arange(self.experts) * self.gpus // self.experts
        cells = source[:, None] * self.gpus + home[chosen]
        return np.bincount(cells.ravel(), minlength=self.gpus**2).reshape(self.gpus, self.gpus)

    def job(self, name: str, note: str, counts: Iterable[NDArray[np.int64]]) -> Job:
        """Return the all-to-alls with these counts of tokens."""
        note = f"{note}: {self.experts} experts on {self.gpus} GPUs, {self.bytes_per_token} bytes per token"
        steps = [Step(Demand(name, count * self.bytes_per_token, note)) for count in counts]
        return job_of_steps(name, steps, note)

    def check_room(self, path: Path, all_to_alls: int) -> None:
        """Refuse more all-to-alls than memory is meant for with a TraceError."""
        if all_to_alls > MAX_ALL_TO_ALLS or all_to_alls * self.gpus**2 > MAX_CELLS:
            raise TraceError(
                f"{path} holds over {all_to_alls - 1} all-to-alls between {self.gpus} GPUs",
                "ask for fewer all-to-alls, or for more tokens in each",
            )


def dealt(
    path: Path,
    blocks: Iterable[NDArray[np.integer]],
    hosting: Hosting,
    *,
    note: str,
    all_to_alls: int | None = None,
) -> Job:
    """Return the all-to-alls of rows that are dealt to GPUs in order.

    Parameters
    ----------
    path
        The trace, which names the collective.
    blocks
        The rows, a few at a time; each block of shape (rows, layers, top k).
    hosting
        The GPUs, experts and tokens.
    note
        The format and the file.
    all_to_alls
        At most so many; by default all. Rows after them are not read.

    Returns
    -------
    Job
        For each batch of ``gpus * tokens`` rows an all-to-all per layer, in order.

    Raises
    ------
    TraceError
        If there is no row, an expert does not exist, or there are too many all-to-alls.
    """
    batch = hosting.gpus * hosting.tokens
    matrices: list[NDArray[np.int64]] = []
    for row, block in _within_batches(blocks, batch):
        number, layers = row // batch, block.shape[1]
        if all_to_alls is not None and number * layers >= all_to_alls:
            break
        while len(matrices) < (number + 1) * layers:
            matrices.append(np.zeros((hosting.gpus, hosting.gpus), dtype=np.int64))
            hosting.check_room(path, len(matrices))
        source = np.arange(row, row + len(block)) % batch // hosting.tokens
        for layer in range(layers):
            matrices[number * layers + layer] += hosting.counts(path, source, block[:, layer], row)
    if not matrices:
        raise TraceError(f"{path} holds no token", "give a trace with at least one row")
    return hosting.job(trace_name(path), note, matrices[:all_to_alls])


def _within_batches(
    blocks: Iterable[NDArray[np.integer]], batch: int
) -> Iterator[tuple[int, NDArray[np.integer]]]:
    """Yield the number of the first row, and rows that all belong to one batch."""
    row = 0
    for block in blocks:
        done = 0
        while done < len(block):
            piece = block[done : done + batch - row % batch]
            yield row, piece
            row += len(piece)
            done += len(piece)
