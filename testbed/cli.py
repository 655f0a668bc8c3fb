"""Mininet's CLI on a live fabric, with two commands more: ``replay WORKLOAD`` and ``rates``."""

import numpy as np
from mininet.cli import CLI
from rich.console import Console
from rich.table import Table

from testbed.calibrate import volume_factor
from testbed.dilation import Dilation
from testbed.emulate import emulate
from testbed.experiment import Experiment
from testbed.link_sample import link_errors
from testbed.network import Network
from testbed.outcome import bound_s, communication_s
from testbed.predict import predict
from topologies.errors import LightrailError
from traffic.collective import Collective


class FabricCLI(CLI):  # type: ignore[misc]
    """Mininet's CLI over a network.

    Parameters
    ----------
    network
        A booted network.
    collectives
        What ``replay`` knows, by name.
    """

    prompt = "lightrail> "

    def __init__(self, network: Network, collectives: dict[str, Collective]) -> None:
        self._network = network
        self._collectives = collectives
        self._console = Console()
        super().__init__(network.mininet)

    def do_replay(self, line: str) -> None:
        """Carry a workload over the fabric: replay WORKLOAD [SCHEME [SEED]], e.g. replay sparse 0.4 rails."""
        try:
            experiment = self._experiment(line)
            records = emulate(experiment, self._network).records
            predicted = predict(experiment)
        except LightrailError as error:
            self._console.print(str(error), style="red", highlight=False)
            return
        times = {"CCT": records, "predicted": predicted}
        words = [f"{name} {communication_s(table) * 1e3:.4g} ms" for name, table in times.items()]
        bound = f"lower bound {bound_s(experiment) * 1e3:.4g} ms"
        self._console.print(
            f"{experiment.collective.name}, {experiment.policy}: {', '.join([*words, bound])}"
        )

    def do_rates(self, _line: str) -> None:
        """Measure a sample of links against their nominal rate: rates."""
        table = Table("NIC", "nominal Mbit/s", "measured Mbit/s", "off by")
        for nic, error in link_errors(self._network, np.random.default_rng()).items():
            nominal = self._network.fabric.nic_rate_bps(nic) * self._network.rate_factor / 1e6
            name = str(self._network.fabric.nic_port(nic))
            table.add_row(name, f"{nominal:.1f}", f"{nominal * (1 + error):.1f}", f"{error:+.1%}")
        self._console.print(table)

    def _experiment(self, line: str) -> Experiment:
        name, words = _workload(line, self._collectives)
        seed = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
        fabric, collective, rate = self._network.fabric, self._collectives[name], self._network.rate_factor
        scheme = words[0] if words else "rails"
        full = Experiment(fabric, collective, scheme, Dilation(rate, 1.0), seed)
        return Experiment(
            fabric, collective, scheme, Dilation(rate, volume_factor(rate, [bound_s(full)])), seed
        )


def _workload(line: str, collectives: dict[str, Collective]) -> tuple[str, list[str]]:
    """Return the workload that a line begins with, and the words behind it."""
    for name in sorted(collectives, key=len, reverse=True):
        if f"{line.strip()} ".startswith(f"{name} "):
            return name, line.strip()[len(name) :].split()
    raise LightrailError(f"there is no workload {line.strip()!r}", f"choose among: {', '.join(collectives)}")
