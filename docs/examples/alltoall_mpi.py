r"""MPI's all-to-all and AllReduce over sizes: every block and every sum is checked, and each is timed.

    sudo python scenarios/app.py rail --set servers=4 --set rails=2 --launch mpirun -- \
        python3 docs/examples/alltoall_mpi.py

Needs Debian's openmpi-bin and python3-mpi4py. The seconds are those of the emulation.
"""

import argparse
import random
import sys
from array import array
from collections.abc import Callable
from statistics import median

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()
PERIOD = 1009
"""Numbers to sum repeat after so many: a prime, so that no chunk of the library's begins like another."""


def main() -> None:
    """Print a line for each operation and size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="1024,65536,1048576", help="bytes of a block, and of an AllReduce")
    parser.add_argument("--repeat", type=int, default=5, help="how often each is timed")
    parser.add_argument("--operations", default="alltoall,allreduce", help="which of them")
    chosen = parser.parse_args()
    if RANK == 0:
        print(f"{SIZE} ranks\noperation      bytes      min_s   median_s  Mbit/s of a rank", flush=True)
    for name in chosen.operations.split(","):
        operation, share = OPERATIONS[name]
        for size in map(int, chosen.sizes.split(",")):
            show(name, size, share * size, [operation(size) for _ in range(chosen.repeat)])
    if RANK == 0:
        print("all blocks and sums are right", flush=True)


def all_to_all(size: int) -> float:
    """Return how long an all-to-all with blocks of so many bytes took [s]."""
    blocks = b"".join(block(RANK, receiver, size) for receiver in range(SIZE))
    arrived = bytearray(SIZE * size)
    took_s = timed(lambda: WORLD.Alltoall([blocks, MPI.BYTE], [arrived, MPI.BYTE]))
    for sender in range(SIZE):
        if arrived[sender * size : (sender + 1) * size] != block(sender, RANK, size):
            give_up(f"rank {RANK} has a wrong block of {size} bytes from rank {sender}")
    return took_s


def all_reduce(size: int) -> float:
    """Return how long the sum of so many bytes of every rank took [s]."""
    mine = numbers(RANK + 1, size)
    sums = array("d", bytes(8 * len(mine)))
    took_s = timed(lambda: WORLD.Allreduce(mine, sums, MPI.SUM))
    if sums != numbers(SIZE * (SIZE + 1) // 2, size):
        give_up(f"rank {RANK} has wrong sums of {size} bytes")
    return took_s


def block(sender: int, receiver: int, size: int) -> bytes:
    """Return the block from one rank to another: bytes that no other pair has."""
    return random.Random(sender * SIZE + receiver).randbytes(size)


def numbers(factor: int, size: int) -> "array[float]":
    """Return so many bytes of whole numbers, times a factor: their sums are exact."""
    count = max(1, size // 8)
    return (array("d", [factor * each for each in range(PERIOD)]) * (count // PERIOD + 1))[:count]


def timed(operation: Callable[[], None]) -> float:
    """Return the time from a common start until the last rank has finished [s]."""
    WORLD.Barrier()
    start = MPI.Wtime()
    operation()
    return WORLD.allreduce(MPI.Wtime() - start, MPI.MAX)


def show(operation: str, size: int, sent: float, times_s: list[float]) -> None:
    """Print a line of the table: `sent` are the bytes that the least of traffic makes a rank send."""
    if RANK == 0:
        rate = 8e-6 * sent / median(times_s)
        print(
            f"{operation:9} {size:10} {min(times_s):10.4f} {median(times_s):10.4f} {rate:10.1f}", flush=True
        )


def give_up(why: str) -> None:
    """End all ranks."""
    print(why, file=sys.stderr, flush=True)
    WORLD.Abort(1)


OPERATIONS = {"alltoall": (all_to_all, SIZE - 1), "allreduce": (all_reduce, 2 * (SIZE - 1) / SIZE)}
"""Operations to time, and how many times its size a rank sends at least."""

if __name__ == "__main__":
    main()
