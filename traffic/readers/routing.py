"""Routing traces, which expert each token chose, folded into demand matrices in bounded memory.

Rules that the formats leave open, and that every reader of them keeps:

- Where a token comes from: where the trace names no rank, rows are dealt in order. By default they
  are one batch, spread evenly: the first GPUs have one more where they do not divide. Where the
  caller says how many ``tokens`` a GPU has, a batch takes ``gpus * tokens`` rows; its first ``tokens``
  rows are GPU 0's, the next GPU 1's. The last batch may be short, and its last GPUs send less or
  nothing.
- Where an expert lives: expert e of E on GPU e * gpus // E, neighbours together.
- What is sent: a token goes once to *each* of its experts, as in Megatron's all-to-all
  dispatcher, also when two of them live on one GPU, and also to the GPU that it is on.
- The experts of a token differ. A row in which two are the same is refused. A layer that is zero in
  all slots of all tokens is dense: inference engines have slots for it too, and never write to them.
  It is left out. With one slot a token it cannot be told from expert 0, and the note says so.

Only the dispatch is given; the combine is its transpose. The note says what was taken.
"""

from collections.abc import Iterable, Iterator, Sequence
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
"""Most cells that the matrices of a job may have together: 512 MiB."""
MAX_ALL_TO_ALLS = 1 << 16
"""Most all-to-alls of a job."""


@dataclass(frozen=True, slots=True)
class TokenRows:
    """The tokens of a trace that names no rank."""

    count: int
    """How many there are."""
    blocks: Iterable[NDArray[np.integer]]
    """Their experts, some tokens at a time; each block of shape (rows, layers, top k)."""
    also: tuple[str, ...] = ()
    """For the note: parts of the file that are left out."""


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
    tokens: int | None = None
    """Tokens per GPU in an all-to-all, where the trace names no ranks; by default all in one, evenly."""

    def __post_init__(self) -> None:
        """Refuse what hosts nothing."""
        if not 1 <= self.gpus <= MAX_GPUS:
            raise TraceError(f"a routing trace on {self.gpus} GPUs", f"give 1 to {MAX_GPUS}")
        for value, what in (
            (self.experts, "experts"),
            (self.tokens, "tokens per GPU"),
            (self.bytes_per_token, "bytes per token"),
        ):
            if value is not None and not 1 <= value <= MAX_BYTES >> 20:
                raise TraceError(f"a routing trace of {value} {what}", f"give 1 to {MAX_BYTES >> 20}")

    def counts(
        self, where: str, source: NDArray[np.int64], chosen: NDArray[np.integer], first_row: int
    ) -> NDArray[np.int64]:
        """Return how many tokens each GPU sends to each GPU, shape (gpus, gpus).

        Parameters
        ----------
        where, first_row
            The file, and the number of the first token in it, for the error.
        source
            The GPU of each token, shape (tokens,).
        chosen
            The experts of each token, shape (tokens, top k).

        Raises
        ------
        TraceError
            If there is no such expert, or a token has one twice.
        """
        wrong = np.flatnonzero(((chosen < 0) | (chosen >= self.experts)).any(axis=1))
        if len(wrong):
            raise TraceError(
                f"{where}, row {first_row + wrong[0]}: found the experts {chosen[wrong[0]].tolist()}, "
                f"expected 0 to {self.experts - 1}"
            )
        check_differ(where, chosen, first_row)
        cells = source[:, None] * self.gpus + self.homes[chosen]
        return np.bincount(cells.ravel(), minlength=self.gpus**2).reshape(self.gpus, self.gpus)

    @property
    def homes(self) -> NDArray[np.int64]:
        """The GPU of each expert."""
        return np.arange(self.experts) * self.gpus // self.experts

    def firsts(self, rows: int) -> NDArray[np.int64]:
        """Return the first row of each GPU in a batch of a trace that has so many rows."""
        gpu = np.arange(self.gpus)
        if self.tokens is not None:
            return gpu * self.tokens
        each, over = divmod(rows, self.gpus)
        return gpu * each + np.minimum(gpu, over)

    def note(self, trace: str, all_to_alls: int, of: int, also: Sequence[str]) -> str:
        """Return the note of a trace, which is named with its format, and has ``of`` all-to-alls."""
        taken = f"{all_to_alls} of " * (all_to_alls < of) + f"{_many(of, 'all-to-all')}, dispatches alone"
        hosted = f"{_many(self.experts, 'expert')} on {_many(self.gpus, 'GPU')}"
        return "; ".join(
            [f"{trace}: {hosted}, {_many(self.bytes_per_token, 'byte')} per token", *also, taken]
        )

    def job(self, name: str, note: str, counts: Iterable[NDArray[np.int64]]) -> Job:
        """Return the all-to-alls with these counts of tokens, one after the other."""
        steps = [Step(Demand(name, count * self.bytes_per_token, note)) for count in counts]
        return job_of_steps(name, steps, note)


def check_room(path: Path, all_to_alls: int, cells: int) -> None:
    """Refuse more all-to-alls, or cells of their matrices, than memory is meant for with a TraceError."""
    if all_to_alls > MAX_ALL_TO_ALLS or cells > MAX_CELLS:
        raise TraceError(
            f"{path} holds over {all_to_alls - 1} all-to-alls, whose matrices have {cells} cells together",
            "ask for fewer all-to-alls (all_to_alls, --all-to-alls)",
        )


def check_differ(where: str, chosen: NDArray[np.integer], first_row: int) -> None:
    """Refuse a token that has an expert twice with a TraceError; ``chosen`` has a row per token."""
    slots = np.ascontiguousarray(chosen.T)  # 20 times faster than sorting rows of 6
    twice = np.zeros(len(chosen), dtype=bool)
    for slot in range(1, len(slots)):
        twice |= (slots[:slot] == slots[slot]).any(axis=0)
    if twice.any():
        row = int(twice.argmax())
        raise TraceError(
            f"{where}, row {first_row + row}: found the experts {chosen[row].tolist()}, expected "
            f"{len(slots)} that differ",
            "leave out tokens whose experts were not recorded",
        )


def dealt(
    path: Path,
    rows: TokenRows,
    hosting: Hosting,
    *,
    note: str,
    all_to_alls: int | None = None,
) -> Job:
    """Return the all-to-alls of rows that are dealt to GPUs in order.

    Parameters
    ----------
    path
        The trace, which names the job.
    rows
        Its tokens.
    hosting
        The GPUs, experts and tokens.
    note
        The format and the file.
    all_to_alls
        At most so many; by default all. Rows after them are read only as long as a layer may be dense.

    Returns
    -------
    Job
        For each batch an all-to-all per layer that is not dense, in order.

    Raises
    ------
    TraceError
        If there is no row, an expert does not exist, a token has one twice, all layers are dense, or
        there are too many all-to-alls.
    """
    if not rows.count:
        raise TraceError(f"{path} holds no token", "give a trace with at least one row")
    batch = hosting.gpus * hosting.tokens if hosting.tokens else rows.count
    matrices, zero, (layers, top_k) = _counted(path, rows, hosting, batch, all_to_alls)
    if not matrices:
        raise TraceError(
            f"{path} has zeros as the experts of all tokens in all layers",
            "record it with kernels that report the experts they choose",
        )
    batches = max(number for number, _ in matrices) + 1
    also = [_said_of_rows(min(rows.count, batches * batch), rows.count, hosting)]
    also += [*_said_of_zeros(zero, top_k), *rows.also]
    routed = layers - len(zero) * (top_k > 1)
    note = hosting.note(note, len(matrices), -(-rows.count // batch) * routed, also)
    return hosting.job(trace_name(path), note, matrices.values())


def _counted(
    path: Path, rows: TokenRows, hosting: Hosting, batch: int, all_to_alls: int | None
) -> tuple[dict[tuple[int, int], NDArray[np.int64]], list[int], tuple[int, int]]:
    """Return the tokens from GPU to GPU by batch and layer, the layers of zeros, how many layers, and top k.

    Layers of zeros are zero in all slots of all rows of the file, also after the all-to-alls that are taken.
    """
    firsts = hosting.firsts(rows.count)
    matrices: dict[tuple[int, int], NDArray[np.int64]] = {}
    zero: dict[int, int] = {}  # by layer, the first row of those that are zero
    chosen_in: set[int] = set()
    layers, top_k = 0, 0
    for row, block in _within_batches(rows.blocks, batch):
        _, layers, top_k = block.shape
        is_cut = all_to_alls is not None and row % batch == 0 and len(matrices) >= all_to_alls
        if is_cut and len(chosen_in) == layers:
            break
        source = firsts.searchsorted(np.arange(row, row + len(block)) % batch, side="right") - 1
        for layer in range(layers):
            chosen, where = block[:, layer], f"{path}, layer {layer}" if layers > 1 else f"{path}"
            if chosen.any():
                chosen_in.add(layer)
            else:
                zero.setdefault(layer, row)
            if layer in zero and layer in chosen_in:
                check_differ(where, np.zeros_like(chosen[:1]), zero[layer])
            key = row // batch, layer
            is_wanted = key in matrices or all_to_alls is None or len(matrices) < all_to_alls
            if is_wanted and (chosen.any() or top_k == 1):
                matrices[key] = matrices.get(key, 0) + hosting.counts(where, source, chosen, row)
                check_room(path, len(matrices), len(matrices) * hosting.gpus**2)
    return matrices, sorted(zero.keys() - chosen_in), (layers, top_k)


def _said_of_rows(taken: int, rows: int, hosting: Hosting) -> str:
    """Return how the rows of a trace that are taken were dealt, for its note."""
    tokens = f"{taken} of " * (taken < rows) + _many(rows, "token")
    if hosting.tokens is None:
        return f"{tokens} in one batch, spread evenly"
    last = taken % (hosting.gpus * hosting.tokens)
    return f"{tokens} in batches of {hosting.tokens} per GPU{f', {last} in the last' if last else ''}"


def _said_of_zeros(zero: Sequence[int], top_k: int) -> list[str]:
    """Return a note on layers that are zero in all slots, if there are some; with one slot they are taken."""
    if not zero:
        return []
    several, numbers = len(zero) > 1, ", ".join(map(str, zero))
    layers = f"layer{'s' * several} {numbers}"
    if top_k == 1:
        return [f"all tokens of {layers} go to expert 0, or {'they are' if several else 'it is'} dense"]
    return [f"{layers} {'are' if several else 'is'} dense: left out"]


def _many(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{count} {noun}{'s' * (count != 1)}"


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
