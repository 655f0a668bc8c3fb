"""A run to be killed: boots a network in its sandbox, and answers each line with whether all is reached."""

import select
import sys
from itertools import permutations

from testbed.experiment.dilation import Dilation
from testbed.live.backend import LiveBackend
from tests.emulation.live import RATE_FACTOR, Live
from topologies.rail import rail_fabric

CHECK_S = 0.05


def main() -> None:
    """Boot, stand as a run does between two transfers, say so, and answer until killed."""
    with Live(rail_fabric(4, 2, 2), RATE_FACTOR) as net, LiveBackend(net.network, Dilation(RATE_FACTOR, 1.0)):
        print("up", flush=True)
        while True:
            net.network.check_alive()
            if select.select([sys.stdin], [], [], CHECK_S)[0] and sys.stdin.readline():
                print(all(net.reaches(*pair) for pair in permutations(range(0, 8, 2), 2)), flush=True)
