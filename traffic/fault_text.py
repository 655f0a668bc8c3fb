"""Faults as people write them: what fails, when, when it is back, and what of it works on.

``nic:3:1@40%-70%`` is NIC 1 of server 3, from 40 % to 70 % of the time that was predicted without faults;
``link:leaf0-spine1@2ms`` all links between two nodes, from 2 ms on. ``link:leaf0:3@40%=0.5`` has the link at
a port go on at half its rate, and ``=loss:0.01`` lose 1 % of its packets.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic, Port
from topologies.strict_json import shown
from traffic.effects import Daemon, Down, Effect, Gone, Killed, LinkEffect, Lossy, Slow
from traffic.faults import Fault, When

DETECT_S = 1e-3
"""How long until a fault is known, unless something else is asked for [real s]: three lost hellos of BFD that
are 0.3 ms apart."""
KINDS = (
    "nic:SERVER:NIC, link:NODE-NODE, link:NODE:PORT, port:NODE:PORT, server:SERVER, gpu:GPU, controller or "
    "switches"
)
OF_LINKS = ("nic", "link", "port", "server")
"""What may go on at a share of its rate, or lose packets."""
UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
HINT = (
    f"write WHAT@TIME or WHAT@TIME-TIME; what: {KINDS}; times like 40% of the prediction, 2ms or 0.5s; for "
    "links that go on, =SHARE of their rate or =loss:PROBABILITY after it"
)
MOST_TEXT = 100
"""Characters of a fault: it names one part and two times, and tables call it so."""
_TEXT = re.compile(
    r"(?P<kind>[a-z]+)(?::(?P<where>[^@]+))?@(?P<begin>(?:e-|[^-=])+)(?:-(?P<end>[^=]+))?(?:=(?P<impaired>.+))?"
)
_TIME = re.compile(r"(?P<number>\d+(?:\.\d*)?(?:e-?\d+)?)(?P<unit>%|s|ms|us)")
_IMPAIRED = re.compile(r"(?P<loss>loss:)?(?P<number>\d+(?:\.\d*)?(?:e-?\d+)?)")
MakesEffect = Callable[[tuple[Port, ...]], LinkEffect]
Since = Callable[[float], float]
"""Returns a time since the start of a job that is predicted to take so long [s]."""


@dataclass(frozen=True)
class _Words:
    """What the text of a fault says."""

    kind: str
    where: str
    begin: Since
    end: Since | None
    effect: MakesEffect
    """What befalls the links."""


@dataclass(frozen=True)
class WrittenFault:
    """A fault as it was written; it becomes one once fabric and prediction are known.

    Raises
    ------
    ScenarioError
        If the text is none.
    """

    text: str

    def __post_init__(self) -> None:
        """Read the text once."""
        _ = self._words

    @property
    def _words(self) -> _Words:
        found = _TEXT.fullmatch(self.text.strip()) if len(self.text) <= MOST_TEXT else None
        if not found or found["kind"] not in _MAKERS:
            raise _refused(self.text)
        end = None if found["end"] is None else _time(self.text, found["end"])
        effect = Down if found["impaired"] is None else _impairing(self.text, found["impaired"])
        if effect is not Down and found["kind"] not in OF_LINKS:
            raise ScenarioError(
                f"{shown(self.text)}: only links can be slowed, or lose packets",
                f"name {', '.join(OF_LINKS)}",
            )
        return _Words(found["kind"], found["where"] or "", _time(self.text, found["begin"]), end, effect)

    @property
    def loses(self) -> bool:
        """Whether links lose packets by it."""
        return isinstance(self._words.effect(()), Lossy)

    def over(self, fabric: Fabric, predicted_s: float, detect_s: float = DETECT_S) -> Fault:
        """Return the fault.

        Parameters
        ----------
        fabric
            What it is a part of.
        predicted_s
            How long the job takes without it [s].
        detect_s
            How long until it is known [s].

        Raises
        ------
        ScenarioError
            If the fabric has no such part, or it would be back before it fails.
        """
        words = self._words
        after_s = words.begin(predicted_s)
        lasts_s = None if words.end is None else words.end(predicted_s) - after_s
        if lasts_s is not None and lasts_s <= 0:
            raise ScenarioError(f"{self.text!r} is back before it fails", HINT)
        site = self.site_of(fabric)
        takes_gpus = lasts_s is None and words.effect is Down
        effects: list[Effect] = [words.effect(site.ports)] if site.ports else []
        effects += [Gone(site.gpus)] if site.gpus and takes_gpus else []
        effects += [Killed(site.daemon)] if site.daemon else []
        return Fault(self.text, tuple(effects), When("", after_s, lasts_s), detect_s)

    def site_of(self, fabric: Fabric) -> "FaultSite":
        """Return what fails of a fabric; ScenarioError if it has no such part."""
        site = _MAKERS[self._words.kind](fabric, self._words.where)
        if isinstance(site, str):
            raise ScenarioError(f"{self.text!r} on fabric {fabric.name!r}: {site}", HINT)
        return site


def at_once(text: str) -> str:
    """Return the text of a fault that comes at the start, of a text without a time.

    Examples
    --------
    >>> at_once("nic:3:1=0.5")
    'nic:3:1@0s=0.5'
    """
    what, impairs, impaired = text.partition("=")
    return f"{what}@0s{impairs}{impaired}"


def _time(text: str, time: str) -> Since:
    found = _TIME.fullmatch(time.strip())
    if not found:
        raise _refused(text)
    number, unit = float(found["number"]), found["unit"]
    return lambda predicted_s: number * 0.01 * predicted_s if unit == "%" else number * UNITS_S[unit]


def _impairing(text: str, impaired: str) -> MakesEffect:
    """Return what makes the effect on links that go on, as it is written after ``=``."""
    found = _IMPAIRED.fullmatch(impaired.strip())
    if not found:
        raise _refused(text)
    number = float(found["number"])
    effect: MakesEffect = partial(Lossy, loss=number) if found["loss"] else partial(Slow, rate=number)
    try:
        effect(())
    except ScenarioError as error:
        raise ScenarioError(f"{shown(text)}: {error.sentence}", error.hint) from error
    return effect


def _refused(text: str) -> ScenarioError:
    return ScenarioError(f"{shown(text)} is not a valid fault", HINT)


@dataclass(frozen=True)
class FaultSite:
    """Ports, GPUs or a daemon of a fabric that fail together."""

    ports: tuple[Port, ...] = ()
    gpus: tuple[int, ...] = ()
    """The GPUs that go with it, if it stays away."""
    daemon: Daemon | None = None


def _nic(fabric: Fabric, where: str) -> FaultSite | str:
    if not (numbers := _numbers(where, 2)):
        return f"{where!r} is not SERVER:NIC"
    if absent := _absent("server", numbers[0], len(fabric.servers)):
        return absent
    if absent := _absent("NIC", numbers[1], fabric.servers[numbers[0]].nics):
        return f"{absent} on server {numbers[0]}"
    return FaultSite((fabric.nic_port(Nic(*numbers)),))


def _link(fabric: Fabric, where: str) -> FaultSite | str:
    ports = tuple(
        link.a
        for link in fabric.links
        if where in (f"{link.a.node}-{link.b.node}", f"{link.b.node}-{link.a.node}")
    )
    if ports:
        return FaultSite(ports)
    return _port(fabric, where) if ":" in where else f"no link joins {where!r}"


def _port(fabric: Fabric, where: str) -> FaultSite | str:
    node, _, number = where.rpartition(":")
    port = Port(node, int(number)) if number.isdecimal() else None
    return FaultSite((port,)) if port and port in fabric.link_at else f"{where!r} is not a port with a link"


def _server(fabric: Fabric, where: str) -> FaultSite | str:
    if not (numbers := _numbers(where, 1)):
        return f"{where!r} is not the number of a server"
    if absent := _absent("server", numbers[0], len(fabric.servers)):
        return absent
    ports = tuple(fabric.used_ports(fabric.servers[numbers[0]].name))
    return FaultSite(ports, tuple(range(*fabric.gpu_offsets[numbers[0] : numbers[0] + 2])))


def _gpu(fabric: Fabric, where: str) -> FaultSite | str:
    if not (numbers := _numbers(where, 1)):
        return f"{where!r} is not the number of a GPU"
    return _absent("GPU", numbers[0], fabric.gpus) or FaultSite(gpus=tuple(numbers))


def _daemon(daemon: Daemon, _fabric: Fabric, where: str) -> FaultSite | str:
    return f"there is one {daemon}, and no {where!r}" if where else FaultSite(daemon=daemon)


def _absent(what: str, number: int, count: int) -> str:
    """Return that there is no such number, counted from 0; empty if there is."""
    return "" if number < count else f"{what} {number} of {count}: there is none"


def _numbers(where: str, count: int) -> list[int]:
    """Return the numbers of a place; none if they are not so many."""
    words = where.split(":")
    return [int(word) for word in words] if len(words) == count and all(map(str.isdecimal, words)) else []


_MAKERS: dict[str, Callable[[Fabric, str], FaultSite | str]] = {
    "nic": _nic,
    "link": _link,
    "port": _port,
    "server": _server,
    "gpu": _gpu,
    "controller": partial(_daemon, "controller"),
    "switches": partial(_daemon, "switches"),
}
"""What finds in a fabric what is written after a kind, or says that it is not there."""
