"""Devices: how long optical circuit switches stay dark when they are reconfigured, each with its source.

Sources, by their keys in the table: *mFabric* Table 1 and Appendix C, figures 21 and 23 (measured on
its prototype); *TopoOpt* Table 1; *InfiniteHBD* section 5.1. Where two differ both are kept.
"""

import math
from dataclasses import dataclass

import numpy as np

from topologies.errors import DemandError, ScenarioError

LONGEST_S = 1e9
"""The longest time that an OCS takes, as of a job's file: some 30 years [s]."""
LEAST_DELAY_S = 0.002
"""The shortest delay that the emulation takes: below it the time that switches take to change rules,
2 to 3 ms in the median with 8 or 16 ports and 4 with 64, would be most of what is measured."""
Z = 2.3263478740408408
"""The 99th percentile of the standard normal distribution."""
MOST_P99 = math.exp(Z * Z / 2)
"""The largest p99 of a log-normal distribution over its mean, 14.97: the ratio is exp(Z sigma - sigma^2 / 2),
which is largest where sigma is Z."""


@dataclass(frozen=True)
class Device:
    """A kind of OCS; times are real seconds."""

    name: str
    what: str
    """What it is."""
    ports: int | None
    """How many ports the largest has, None if its source does not say."""
    delay_s: float
    """How long ports that change stay dark [s]; the mean where it was measured, the middle of a range."""
    source: str
    """Where it is published."""
    delay_p99_s: float | None = None
    """99th percentile of the delay [s], where it was measured."""
    nic_s: float = 0.0
    """How long a NIC needs after that until it carries packets again [s], on average."""
    nic_p99_s: float | None = None
    """99th percentile of that [s]."""


_DEVICES = (
    Device("patch-panel", "robotic patch panel (Telescent)", 1008, 180.0, "mFabric, Table 1: minutes"),
    Device("polatis", "piezo (Polatis)", 576, 17.5e-3, "mFabric, Table 1: 10-25 ms"),
    Device("polatis-1", "Polatis, turnaround of 1 pair", 384, 41.44e-3, "mFabric, Appendix C", 60e-3),
    Device("polatis-4", "Polatis, turnaround of 4 pairs", 384, 42.44e-3, "mFabric, Appendix C", 62e-3),
    Device("polatis-16", "Polatis, turnaround of 16 pairs", 384, 46.75e-3, "mFabric, Appendix C", 68e-3),
    Device(
        "polatis-nic", "Polatis, 16 pairs, with NICs of today behind it", 384, 46.75e-3,
        "mFabric, Appendix C", 68e-3, 5.67, 6.33,
    ),
    Device("mems-3d", "3D MEMS (Calient)", 320, 12.5e-3, "mFabric, Table 1: 10-15 ms; TopoOpt: 10 ms"),
    Device("mems-2d", "2D MEMS", 300, 11.5e-6, "TopoOpt, Table 1"),
    Device("rotornet", "RotorNet (InFocus)", 128, 10e-6, "mFabric, Table 1; TopoOpt, Table 1: 64 ports"),
    Device("silicon", "silicon photonics (Lightmatter)", 32, 7e-6, "mFabric, Table 1"),
    Device("silicon-256", "silicon photonics", 256, 900e-9, "TopoOpt, Table 1"),
    Device("ocstrx", "OCS in the transceiver (OCSTrx)", 3, 70e-6, "InfiniteHBD, section 5.1: 60-80 us"),
    Device("plzt", "PLZT (EpiPhotonics)", 16, 10e-9, "mFabric, Table 1"),
    Device("laser", "tunable laser", 128, 3.8e-9, "TopoOpt, Table 1"),
)  # fmt: skip
DEVICES = {device.name: device for device in _DEVICES}
"""The table, by name."""


@dataclass(frozen=True)
class ReconfigurationDelay:
    """How long an OCS stays dark when it is reconfigured, in real seconds or in the emulation's.

    Raises
    ------
    DemandError
        If a time is negative, not finite or longer than `LONGEST_S`, or if no log-normal distribution has
        both its mean and its p99.
    """

    device: str = "ideal"
    """What it stands for."""
    delay_s: float = 0.0
    """The device's delay: dark until then [s]."""
    delay_p99_s: float | None = None
    """Its 99th percentile, if it varies [s]."""
    nic_s: float = 0.0
    """How long NICs need after that [s]."""
    nic_p99_s: float | None = None
    """Its 99th percentile, if it varies [s]."""
    flip_s: float = 0.0
    """How long a flip takes, from the circuits that are shown to those that were provisioned: fixed, and
    without the NICs' time [s]."""

    def __post_init__(self) -> None:
        """Refuse what no device needs."""
        times = (self.delay_s, self.delay_p99_s), (self.nic_s, self.nic_p99_s), (self.flip_s, None)
        for mean_s, p99_s in times:
            _check(mean_s, p99_s)

    @property
    def mean_s(self) -> float:
        """How long one reconfiguration keeps ports dark on average, until NICs carry packets again [s]."""
        return self.delay_s + self.nic_s

    def volume_for(self, rate: float, delay_s: float) -> float:
        """Return the volume dilation at which it is so long in an emulation at a rate dilation; 0 without."""
        return delay_s * rate / self.mean_s if self.mean_s else 0.0

    @property
    def varies(self) -> bool:
        """Whether it is drawn anew for each reconfiguration."""
        return self.delay_p99_s is not None or self.nic_p99_s is not None

    def scaled(self, time: float) -> "ReconfigurationDelay":
        """Return it with all that takes so many times as long."""
        late = [None if p99_s is None else p99_s * time for p99_s in (self.delay_p99_s, self.nic_p99_s)]
        return ReconfigurationDelay(
            self.device, self.delay_s * time, late[0], self.nic_s * time, late[1], self.flip_s * time
        )

    def draw_s(self, rng: np.random.Generator) -> float:
        """Return how long one reconfiguration keeps ports dark [s].

        What varies is log-normal, with the mean and the 99th percentile that were measured.
        """
        return _drawn(self.delay_s, self.delay_p99_s, rng) + _drawn(self.nic_s, self.nic_p99_s, rng)


def device_named(name: str) -> Device:
    """Return a device of the table; ScenarioError if it has no such name."""
    if name not in DEVICES:
        raise ScenarioError(f"unknown device {name!r}", f"take one of {', '.join(DEVICES)}")
    return DEVICES[name]


def real_delay(device: Device, *, varying: bool = False) -> ReconfigurationDelay:
    """Return how long a device is dark in reality.

    Parameters
    ----------
    device
        What is emulated.
    varying
        Whether delays vary as was measured; else each is the mean.

    Raises
    ------
    ScenarioError
        If delays are to vary, and no 99th percentile of them is known.
    """
    if varying and device.delay_p99_s is None:
        measured = ", ".join(name for name, known in DEVICES.items() if known.delay_p99_s is not None)
        raise ScenarioError(
            f"no 99th percentile of the delay of {device.name} is known",
            f"leave it at its mean, or take one of {measured}",
        )
    late = (device.delay_p99_s, device.nic_p99_s) if varying else (None, None)
    return ReconfigurationDelay(device.name, device.delay_s, late[0], device.nic_s, late[1])


def delay_of(device: Device, time: float) -> ReconfigurationDelay:
    """Return how long a device is dark where all takes so many times as long, each time its mean.

    Raises
    ------
    ScenarioError
        If the delay would be shorter than the emulation can honour; it says which time would do.
    """
    delay_s = device.delay_s * time
    if delay_s < LEAST_DELAY_S:
        raise ScenarioError(
            f"with --time {time:g} the delay of {device.name} would be {delay_s:.2g} s, and the emulation "
            f"honours {LEAST_DELAY_S:g} s and more",
            f"give --time {math.ceil(LEAST_DELAY_S / device.delay_s)} or more",
        )
    return real_delay(device).scaled(time)


def _check(mean_s: float, p99_s: float | None) -> None:
    if not 0 <= mean_s <= LONGEST_S:
        raise DemandError(f"a delay of {mean_s:g} s", f"give 0 to {LONGEST_S:g} s")
    if p99_s is not None and not (0 < mean_s <= p99_s <= min(mean_s * MOST_P99, LONGEST_S)):
        raise DemandError(
            f"a delay of {mean_s:g} s with a p99 of {p99_s:g} s",
            f"give a p99 of 1 to {math.floor(100 * MOST_P99) / 100:g} times the mean, as log-normal "
            f"distributions have, and up to {LONGEST_S:g} s",
        )


def _drawn(mean: float, p99: float | None, rng: np.random.Generator) -> float:
    """Return a log-normal draw: with Z = 2.326, p99 = exp(mu + Z sigma) and mean = exp(mu + sigma^2 / 2)."""
    if p99 is None or p99 <= mean:
        return mean
    sigma = Z - math.sqrt(max(Z * Z - 2 * math.log(p99 / mean), 0.0))  # rounding, at `MOST_P99`
    return float(rng.lognormal(math.log(mean) - sigma * sigma / 2, sigma))
