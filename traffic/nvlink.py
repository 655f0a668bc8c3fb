"""NVLink: the links from and to each GPU inside a server, as fluids; modelled, never emulated."""

from collections.abc import Sequence

from topologies.fabric import Fabric
from traffic.fluid_network import FluidNetwork
from traffic.messages import Messages


class Nvlink:
    """Messages between GPUs of one server: they share each GPU's rate out and in, max-min fairly.

    Parameters
    ----------
    fabric
        Its servers' ``nvlink_bps`` is the rate of each GPU in each direction.
    """

    def __init__(self, fabric: Fabric) -> None:
        rate_bps = [fabric.servers[server].nvlink_bps for server in fabric.gpu_servers]
        self._network = FluidNetwork(rate_bps * 2)
        self._gpus = fabric.gpus
        self._flows: dict[tuple[int, int], int] = {}
        self._early: list[int] = []

    @property
    def next_s(self) -> float:
        """When the next message arrives if nothing changes [s]; infinite if none is on its way."""
        return self._network.now_s if self._early else self._network.next_s

    def post(self, messages: Messages, numbers: Sequence[int], now_s: float) -> None:
        """Send messages between GPUs of one server; `advance` calls each by its number."""
        self._early += self._past(now_s)
        pairs = list(zip(messages.source.tolist(), messages.destination.tolist(), strict=True))
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._flows]
        if new:
            links = [(source, self._gpus + destination) for source, destination in new]
            self._flows.update(zip(new, self._network.add_flows(links), strict=True))
        self._network.post([self._flows[pair] for pair in pairs], messages.bytes, numbers)

    def advance(self, now_s: float) -> list[int]:
        """Let time pass; return the messages that arrived."""
        early, self._early = self._early, []
        return early + self._past(now_s)

    def _past(self, now_s: float) -> list[int]:
        arrived: list[int] = []
        while tags := self._network.advance(now_s):
            arrived += [tag for _, tag in tags]
        return arrived
