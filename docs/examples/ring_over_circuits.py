r"""An AllReduce whose ring moves: the program lights a ring, sums over it, lights the next, and sums again.

    sudo python scenarios/app.py parallel_ocs --set servers=5 --set ocses=2 -- \
        python3 docs/examples/ring_over_circuits.py

A circuit goes one way. So ocs0 lights server i to server i + stride, which carries the data, and ocs1 lights
the way back, for TCP's acknowledgements. Host 0 orders the light, the others wait until they see it. Sums are
checked on every host.
"""

import argparse
import math
import socket
import sys
import time
from array import array
from contextlib import suppress
from threading import Thread

import lightrail_host

PORT = 7000
QUIET_S = 0.3
"""Longer than TCP delays an acknowledgement: after it nothing is on its way."""
PATIENCE_S = 10.0
"""How long a server waits for another."""
HOSTS = lightrail_host.hosts()
HERE, SIZE = HOSTS.index(lightrail_host.host()), len(HOSTS)


def main() -> None:
    """Sum over one ring after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strides", default="1,2", help="how far each ring jumps from server to server")
    parser.add_argument(
        "--numbers", type=int, default=50_000, help="numbers of 8 bytes that each server adds"
    )
    chosen = parser.parse_args()
    strides = [int(each) for each in chosen.strides.split(",")]
    if any(math.gcd(stride, SIZE) != 1 for stride in strides):
        sys.exit(f"a stride that divides {SIZE} servers makes several rings; give others by --strides")
    with socket.create_server(("", PORT)) as door:
        door.settimeout(PATIENCE_S)
        try:
            for stride in strides:
                reduce_over(stride, door, chosen.numbers)
        except TimeoutError:
            sys.exit(f"{HOSTS[HERE]}: nothing has come for {PATIENCE_S:g} s")


def reduce_over(stride: int, door: socket.socket, count: int) -> None:
    """Light the ring of a stride, sum over it, and leave it empty of packets."""
    light(stride)
    forward = connected(HOSTS[(HERE + stride) % SIZE])
    backward, _ = door.accept()
    backward.settimeout(PATIENCE_S)
    with forward, backward:
        start = time.monotonic()
        sums = all_reduce(array("q", range(HERE, HERE + count)), stride, forward, backward)
        took_s = time.monotonic() - start
        expected = array("q", [SIZE * each + SIZE * (SIZE - 1) // 2 for each in range(count)])
        if sums != expected:
            sys.exit(f"{HOSTS[HERE]}: the sums over the ring of stride {stride} are wrong")
        print(f"stride {stride}: {count} sums are right, {took_s:.3f} s", flush=True)
        leave(forward, backward)


def light(stride: int) -> None:
    """Return once the ring is lit, and the way back: host 0 orders it."""
    ring = [(each, (each + stride) % SIZE) for each in range(SIZE)]
    back = [(receiver, sender) for sender, receiver in ring]
    for ocs, circuits in (("ocs0", ring), ("ocs1", back)):
        if HERE == 0:
            lightrail_host.light(ocs, circuits)
        else:
            lightrail_host.wait_lit(ocs, circuits, PATIENCE_S)


def connected(peer: str) -> socket.socket:
    """Return a connection to a host, which may not listen yet."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((peer, PORT), timeout=PATIENCE_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def all_reduce(
    mine: "array[int]", stride: int, forward: socket.socket, backward: socket.socket
) -> "array[int]":
    """Return the sums over all hosts: a chunk goes to the next of the ring in each step.

    In the first size - 1 steps a chunk is added to; then whole sums go round.
    """
    place = HERE * pow(stride, -1, SIZE) % SIZE  # of this host on the ring
    edges = [len(mine) * each // SIZE for each in range(SIZE + 1)]
    for step in range(2 * (SIZE - 1)):
        leaving, arriving = (place - step) % SIZE, (place - step - 1) % SIZE
        start, end = edges[arriving], edges[arriving + 1]
        chunk = exchanged(mine[edges[leaving] : edges[leaving + 1]], end - start, forward, backward)
        if step < SIZE - 1:
            chunk = array("q", map(int.__add__, mine[start:end], chunk))
        mine[start:end] = chunk
    return mine


def exchanged(
    chunk: "array[int]", count: int, forward: socket.socket, backward: socket.socket
) -> "array[int]":
    """Return so many numbers of the host before this one, while a chunk goes to the next.

    Both at once: a chunk that all send and none reads may be larger than TCP's buffers.
    """
    sending = Thread(target=send, args=(forward, chunk.tobytes()), daemon=True)
    sending.start()
    data = bytearray()
    while len(data) < 8 * count:
        part = backward.recv(8 * count - len(data))
        if not part:
            sys.exit(f"{HOSTS[HERE]}: the host before this one has hung up")
        data += part
    sending.join()
    return array("q", bytes(data))


def send(forward: socket.socket, data: bytes) -> None:
    """Send a chunk; where that fails, nothing comes round either, and that is noticed."""
    with suppress(OSError):
        forward.sendall(data)


def leave(forward: socket.socket, backward: socket.socket) -> None:
    """Return once this connection's last packet has arrived, so that none meets a dark circuit.

    A byte goes round twice: after the first round all hosts have their sums, after the second all know.
    """
    for _ in range(2):
        if HERE == 0:
            forward.sendall(b"!")
        backward.recv(1)
        if HERE != 0:
            forward.sendall(b"!")
    forward.shutdown(socket.SHUT_WR)
    backward.recv(1)  # the end of what the one before sends
    backward.shutdown(socket.SHUT_WR)
    forward.recv(1)
    time.sleep(QUIET_S)


if __name__ == "__main__":
    main()
