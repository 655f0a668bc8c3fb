"""Mininet's CLI on a live fabric, with two commands more: ``replay WORKLOAD`` and ``rates``."""

from collections.abc import Callable

import numpy as np
from mininet.cli import CLI
from rich.console import Console
from rich.table import Table

from testbed.calibrate import volume_factor
from testbed.dilation import Dilation
from testbed.experiment import Experiment
from testbed.link_sample import link_errors, worst_link_error
from testbed.network import Network
from testbed.outcome import Outcome, bound_s
from testbed.readback import port_settings, unmet
from testbed.trial import tried
from topologies.errors import LightrailError, ScenarioError
from traffic.collective import Collective
from traffic.metrics import communication_s
from traffic.spraying.registry import policy_named

USAGE = "type replay WORKLOAD [SCHEME [SEED]], like replay uniform rails 1"


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
        self._console = Console(highlight=False)
        super().__init__(network.mininet)

    def do_replay(self, line: str) -> None:
        """Carry a workload over the fabric: replay WORKLOAD [SCHEME [SEED]], e.g. replay sparse 0.4 rails."""
        self._told(lambda: self._replay(line))

    def do_rates(self, _line: str) -> None:
        """Measure a sample of links against their nominal rate: rates."""
        self._told(self._print_rates)

    def _told(self, command: Callable[[], object]) -> None:
        """Do something, or say why not: an error shall not end the CLI."""
        try:
            command()
        except LightrailError as error:
            # As it is: what was typed may hold brackets, which are not rich's.
            self._console.print(str(error), style="red", markup=False, soft_wrap=True)

    def _replay(self, line: str) -> None:
        """Try and judge a workload as a run would, on the network as it is now."""
        experiment = self._experiment(line)
        broken = unmet(self._network, port_settings(self._network))
        worst = worst_link_error(self._network, experiment.seed)
        self._console.print(
            _told_of(tried(experiment, self._network, worst, broken)), markup=False, soft_wrap=True
        )

    def _print_rates(self) -> None:
        table = Table("NIC", "nominal Mbit/s", "measured Mbit/s", "off by")
        for nic, error in link_errors(self._network, np.random.default_rng()).items():
            nominal = self._network.fabric.nic_rate_bps(nic) * self._network.rate_factor / 1e6
            name = str(self._network.fabric.nic_port(nic))
            table.add_row(name, f"{nominal:.1f}", f"{nominal * (1 + error):.1f}", f"{error:+.1%}")
        self._console.print(table)

    def _experiment(self, line: str) -> Experiment:
        """Return what a line asks for, at a scale that its workload can be measured at."""
        name, words = _workload(line, self._collectives)
        if len(words) > 2:
            raise ScenarioError(f"nobody knows what {' '.join(words[2:])!r} means", USAGE)
        scheme, seed = [*words, *("rails", "0")[len(words) :]]
        policy_named(scheme)
        if not seed.isdecimal():
            raise ScenarioError(f"the seed {seed!r} is no whole number", USAGE)
        fabric, collective, rate = self._network.fabric, self._collectives[name], self._network.rate_factor
        full = Experiment(fabric, collective, scheme, Dilation(rate, 1.0), int(seed))
        volume = volume_factor(rate, [bound_s(full)], len(collective.steps))
        return Experiment(fabric, collective, scheme, Dilation(rate, volume), int(seed))


def _told_of(outcome: Outcome) -> str:
    """Return an outcome in a line, and under it why its verdict is not faithful."""
    experiment, judged = outcome.experiment, outcome.verdict
    times = {
        "CCT": communication_s(outcome.best),
        "predicted": communication_s(outcome.predicted),
        "lower bound": bound_s(experiment),
    }
    words = ", ".join(f"{name} {seconds * 1e3:.4g} ms" for name, seconds in times.items())
    lines = [f"{experiment.collective.name}, {experiment.policy}: {words} ({judged.word})"]
    lines += [f"  {judged.word}: {why}" for why in (*judged.reasons, judged.advice) if why]
    return "\n".join(lines)


def _workload(line: str, collectives: dict[str, Collective]) -> tuple[str, list[str]]:
    """Return the workload that a line begins with, and the words behind it."""
    for name in sorted(collectives, key=len, reverse=True):
        if f"{line.strip()} ".startswith(f"{name} "):
            return name, line.strip()[len(name) :].split()
    known = f"choose among: {', '.join(collectives)}"
    asked = f"there is no workload {line.strip()!r}" if line.strip() else "no workload is named"
    raise ScenarioError(asked, known)
