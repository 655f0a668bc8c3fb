"""OCS devices as options of scenarios: their names, and whether they are large and slow enough."""

from controller.circuits.devices import DEVICES, LEAST_DELAY_S, Device, ReconfigurationDelay
from testbed.run.ocs_plan import LONGEST_S
from topologies.errors import ScenarioError

NAMES = ", ".join(DEVICES)
"""As an option's help lists them."""
ROOM = 0.9
"""Share of the line that would just do which is advised: a bound is not quite proportional to its line."""


def check_ports(device: Device, servers: int) -> None:
    """Refuse more servers than the device has ports: each is on a port of every OCS."""
    if device.ports is not None and servers > device.ports:
        raise ScenarioError(
            f"{servers} servers on OCSes of {device.ports} ports, the most that {device.name} has",
            f"take {device.ports} servers or fewer, or another --device",
        )


def check_delay(delay: ReconfigurationDelay, bound_s: float, busiest_s: float) -> None:
    """Refuse a delay too short to be emulated although the emulation took as long as it may.

    Said here: an experiment would advise a volume dilation, which is no option of a scenario.

    Parameters
    ----------
    delay
        How long OCSes are dark [real seconds].
    bound_s
        The lower bound of the demand, delays included [real seconds]; 0 if nothing is sent.
    busiest_s
        How long the busiest NIC would send alone [real seconds].
    """
    longest_s = LONGEST_S * delay.mean_s
    if longest_s >= LEAST_DELAY_S * bound_s:
        return
    share = longest_s / (LEAST_DELAY_S * bound_s)
    delay_ms, line_ms = (seconds * 1e3 for seconds in (delay.mean_s, busiest_s))
    raise ScenarioError(
        f"a delay of {delay_ms:g} ms would be {share * LEAST_DELAY_S * 1e3:.2g} ms in the emulation, "
        f"which honours {LEAST_DELAY_S * 1e3:g} ms and more",
        f"give a --device or a --delay-ms of {delay_ms / (ROOM * share):.2g} ms or more, or a demand whose "
        f"busiest NIC sends for {line_ms * ROOM * share:.2g} ms or less (--line-ms)",
    )
