"""Effects: what a fault changes of links, GPUs and daemons while it stands.

An effect is a pure function of a state. What stands at one time is applied in the order in which it began, so
that effects on one link compose: two of half the rate leave a quarter of it. An effect never improves what it
changes. A user's own is a frozen dataclass with ``ports`` and ``on`` (docs/howto/own_fault.md).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar, cast, get_args, runtime_checkable

from topologies.errors import ScenarioError
from topologies.fabric import Port
from topologies.own import own_code
from topologies.own_value import class_name

Daemon = Literal["controller", "switches"]
"""The controller's process, or the one that forwards in all switches."""
LEAST_LEFT = 1e-4
"""What effects leave of a link's rate, and of its packets, at least: over a link that is a million times
slower than others predictions take minutes."""
PAGE = "docs/howto/own_fault.md"
_Key = TypeVar("_Key")
State = TypeVar("State", "LinkState", "GpuState", "DaemonState")
"""What a link, a GPU or a process does."""


@dataclass(frozen=True)
class LinkState:
    """What a link does, in both directions."""

    up: bool = True
    """Whether it carries anything."""
    rate: float = 1.0
    """The share of its own rate that it has, 0..1."""
    loss: float = 0.0
    """The probability that it loses a packet, beside its own loss, 0..1."""


@dataclass(frozen=True)
class GpuState:
    """Whether a GPU works."""

    up: bool = True


@dataclass(frozen=True)
class DaemonState:
    """Whether a process of the network runs."""

    up: bool = True


@runtime_checkable
class LinkEffect(Protocol):
    """Changes links."""

    @property
    def ports(self) -> tuple[Port, ...]:
        """One end of each link."""
        ...

    def on(self, state: LinkState) -> LinkState:
        """Return what becomes of each of them."""
        ...


@runtime_checkable
class GpuEffect(Protocol):
    """Changes GPUs, for good."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """Which GPUs."""
        ...

    def on(self, state: GpuState) -> GpuState:
        """Return what becomes of each of them."""
        ...


@runtime_checkable
class DaemonEffect(Protocol):
    """Changes a process of the network."""

    @property
    def daemon(self) -> Daemon:
        """Which process."""
        ...

    def on(self, state: DaemonState) -> DaemonState:
        """Return what becomes of it."""
        ...


Effect = LinkEffect | GpuEffect | DaemonEffect


@dataclass(frozen=True)
class Down:
    """Links carry nothing."""

    ports: tuple[Port, ...]

    def on(self, state: LinkState) -> LinkState:
        """Return a link that carries nothing."""
        return LinkState(False, state.rate, state.loss)


@dataclass(frozen=True)
class Slow:
    """Links have a share of the rate that they had.

    Raises
    ------
    ScenarioError
        If the share is below `LEAST_LEFT`, or not below 1.
    """

    ports: tuple[Port, ...]
    rate: float
    """The share."""

    def __post_init__(self) -> None:
        """Check the share."""
        if not LEAST_LEFT <= self.rate < 1:
            raise ScenarioError(
                f"a link is slowed to {self.rate:g} of its rate", f"give a share from {LEAST_LEFT:g}, below 1"
            )

    def on(self, state: LinkState) -> LinkState:
        """Return a slower link."""
        return LinkState(state.up, max(state.rate * self.rate, LEAST_LEFT), state.loss)


@dataclass(frozen=True)
class Lossy:
    """Links lose packets, beside those that they lost.

    Raises
    ------
    ScenarioError
        If the loss is not above 0, or leaves less than `LEAST_LEFT`.
    """

    ports: tuple[Port, ...]
    loss: float
    """The probability that a packet is lost."""

    def __post_init__(self) -> None:
        """Check the loss."""
        if not 0 < self.loss <= 1 - LEAST_LEFT:
            raise ScenarioError(
                f"a link is to lose packets with probability {self.loss:g}",
                f"give one above 0, to {1 - LEAST_LEFT:g}",
            )

    def on(self, state: LinkState) -> LinkState:
        """Return a link that delivers what both losses leave."""
        lost = state.loss + (1 - state.loss) * self.loss
        return LinkState(state.up, state.rate, min(lost, 1 - LEAST_LEFT))


@dataclass(frozen=True)
class Gone:
    """GPUs are gone."""

    gpus: tuple[int, ...]

    def on(self, _state: GpuState) -> GpuState:
        """Return a GPU that is gone."""
        return GpuState(up=False)


@dataclass(frozen=True)
class Killed:
    """A process is killed, and started again when that is over."""

    daemon: Daemon

    def on(self, _state: DaemonState) -> DaemonState:
        """Return a process that does not run."""
        return DaemonState(up=False)


BUILT_IN: Mapping[str, type[Effect]] = {
    "down": Down,
    "slow": Slow,
    "lossy": Lossy,
    "gone": Gone,
    "killed": Killed,
}
"""lightrail's own by name."""


def link_states(effects: Iterable[Effect], link_of: Callable[[Port], _Key]) -> dict[_Key, LinkState]:
    """Return the state of all links that effects change, which began in this order.

    Parameters
    ----------
    effects
        Others among them are passed over.
    link_of
        Returns the link at a port: an effect counts once where it names both ends.

    Examples
    --------
    >>> port = Port("h0", 1)
    >>> link_states([Slow((port,), 0.5), Slow((port,), 0.5)], lambda port: port)
    {Port(node='h0', number=1): LinkState(up=True, rate=0.25, loss=0.0)}
    """
    on_links = [effect for effect in effects if isinstance(effect, LinkEffect)]
    each = ((link, effect) for effect in on_links for link in dict.fromkeys(map(link_of, effect.ports)))
    return _folded(each, LinkState())


def gpu_states(effects: Iterable[Effect]) -> dict[int, GpuState]:
    """Return the state of all GPUs that effects change, which began in this order."""
    on_gpus = [effect for effect in effects if isinstance(effect, GpuEffect)]
    return _folded(((gpu, effect) for effect in on_gpus for gpu in effect.gpus), GpuState())


def daemon_states(effects: Iterable[Effect]) -> dict[Daemon, DaemonState]:
    """Return the state of all daemons that effects change, which began in this order."""
    on_daemons = [effect for effect in effects if isinstance(effect, DaemonEffect)]
    return _folded(((effect.daemon, effect) for effect in on_daemons), DaemonState())


def _folded(effects: Iterable[tuple[_Key, Effect]], healthy: State) -> dict[_Key, State]:
    """Return what becomes of everything that is changed, one effect after the other."""
    states: dict[_Key, State] = {}
    for key, effect in effects:
        states[key] = applied(effect, states.get(key, healthy))
    return states


def applied(effect: Effect, state: State) -> State:
    """Return what an effect makes of a state of what it changes.

    Raises
    ------
    LightrailError
        If its own code raises, or makes something of it that is not a state, or is better.
    """
    on = cast("Callable[[State], State]", effect.on)
    if not is_own(effect):
        return on(state)
    name = class_name(type(effect))
    with own_code("effect", name):
        after = on(replace(state))  # it may not change the one that others have
    if said := _wrong_state(after, state):
        raise ScenarioError(f"the effect {name!r} {said}", f"see {PAGE}")
    return after


def is_own(effect: Effect) -> bool:
    """Return whether an effect is of a user's own class."""
    return type(effect) not in BUILT_IN.values()


# What an effect must be

TRIED = (
    LinkState(),
    LinkState(rate=0.5),
    LinkState(loss=0.1),
    LinkState(rate=0.1, loss=0.5),
    LinkState(up=False),
)
"""The states of links that effects are tried on."""
CHANGES = ("ports", "gpus", "daemon")
"""What an effect is of: one of these."""


def check_effect(effect: Effect) -> None:
    """Refuse what is not an effect, and an effect that improves what it changes in one of some states.

    Raises
    ------
    LightrailError
        If it is one of these, or its own code raises.
    """
    name = class_name(type(effect))
    with own_code("effect", name):
        said = _wrong(effect)
    if said:
        raise ScenarioError(f"the effect {name!r} {said}", f"see {PAGE}")


def _wrong(effect: Effect) -> str:
    """Return what is wrong with an effect; nothing if nothing is."""
    if sum(hasattr(effect, change) for change in CHANGES) != 1 or not callable(getattr(effect, "on", None)):
        return f"does not have one of {', '.join(CHANGES)}, and on"
    try:
        hash(effect)
    except TypeError as error:
        return f"has no hash ({error}), as a frozen dataclass of tuples has"
    if isinstance(effect, LinkEffect):
        if not _is_tuple_of(effect.ports, Port):
            return "has ports that are not a tuple of Port"
        return _wrong_on(effect, TRIED)
    if isinstance(effect, GpuEffect):
        if not _is_tuple_of(effect.gpus, int):
            return "has gpus that are not a tuple of whole numbers"
        return _wrong_on(effect, (GpuState(), GpuState(up=False)))
    if effect.daemon not in get_args(Daemon):
        return f"is of the daemon {effect.daemon!r}, and not of {' or '.join(get_args(Daemon))}"
    return _wrong_on(effect, (DaemonState(), DaemonState(up=False)))


def _is_tuple_of(values: object, kind: type) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)


def _wrong_on(effect: Effect, states: Iterable[State]) -> str:
    """Return what is wrong with what an effect makes of states."""
    for state in states:
        if applied(effect, state) != applied(effect, state):
            return f"makes something else of {state} each time"
    return ""


def _wrong_state(after: object, before: LinkState | GpuState | DaemonState) -> str:
    """Return what is wrong with what an effect made of a state; nothing if nothing is."""
    if type(after) is not type(before) or not _is_state(after):
        return f"makes {after} of {before}, which is not a state"
    return f"makes {after} of {before}, which is better" if _is_better(after, before) else ""


def _is_state(state: LinkState | GpuState | DaemonState) -> bool:
    if not isinstance(state.up, bool):
        return False
    if not isinstance(state, LinkState):
        return True
    return LEAST_LEFT <= state.rate <= 1 and 0 <= state.loss <= 1 - LEAST_LEFT


def _is_better(after: LinkState | GpuState | DaemonState, before: object) -> bool:
    if isinstance(after, LinkState) and isinstance(before, LinkState):
        return after.up > before.up or after.rate > before.rate or after.loss < before.loss
    return bool(after.up > getattr(before, "up", True))
