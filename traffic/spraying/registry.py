"""The spraying policies by name; a user's own is named ``module:function`` or ``module:Class``.

A function is a proactive policy's `assign`; a class is made without arguments and has the methods
of `ProactivePolicy` or `ReactivePolicy`, and a name, by which tables call it. Behind a name of ours a
colon and a number say how many entropies it has: ``ecmp:4``. Without a number, schemes that choose as they
go have few where each entropy is a TCP connection, and all that a NIC has over datagrams, where it costs
nothing; MinRTT has one.
"""

import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import cast

import numpy as np

from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.own import OwnCode, check_arguments, own_code, own_object
from traffic.messages import Chunks, Messages
from traffic.spraying.checks import PAGE, checked_assignment, checked_lanes
from traffic.spraying.ecmp import Ecmp
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.optimal import Optimal
from traffic.spraying.plb import Plb
from traffic.spraying.policy import (
    ENTROPIES,
    Assignment,
    CountsChunks,
    HearsLosses,
    Lanes,
    Message,
    NamesInert,
    Policy,
    ProactivePolicy,
    ReactivePolicy,
)
from traffic.spraying.pxn import Pxn
from traffic.spraying.rails import Rails
from traffic.spraying.reps import Reps
from traffic.spraying.spray import Spray

POLICIES: dict[str, Callable[[int | None, int | None], Policy]] = {
    "ecmp": lambda count, _: Ecmp(count or 1),
    "plb": lambda count, most: Plb(paths=count or most or 4, entropies=most),
    "reps": lambda count, most: Reps(
        per_nic=count or most or 2, in_flight=None if most else 16, entropies=most
    ),
    "minrtt": lambda count, most: MinRtt(count or 1, entropies=most),
    "spray": lambda count, most: Spray(count or most or 8, entropies=most),
    "pxn": lambda count, _: Pxn(count or 1),
    "rails": lambda count, _: Rails(count or 1),
    "optimal": lambda _count, _: Optimal(),
}
"""Every policy of lightrail: made of how many entropies are asked for, if any, of a connection or from each
NIC to a destination's, and of how many a NIC has over datagrams; None over TCP."""
CHOOSING = ("plb", "reps", "minrtt", "spray")
"""Those that choose as they go."""
NUMBERED = ("ecmp", "pxn", "rails", *CHOOSING)
"""Those of which a name may say how many entropies."""

METHODS = {
    ProactivePolicy: (ProactivePolicy.assign,),
    ReactivePolicy: (
        ReactivePolicy.open,
        ReactivePolicy.admit,
        ReactivePolicy.choose,
        ReactivePolicy.acknowledged,
        ReactivePolicy.withdraw,
    ),
}
"""What a policy of each kind is asked."""


def policy_named(name: str, entropies: int | None = None) -> Policy:
    """Return a policy, new for this caller: it remembers nothing of another's run.

    Parameters
    ----------
    name
        A key of `POLICIES`; one of `NUMBERED` with a number, as ``ecmp:4``; or ``module:function``
        with a module on Python's path or in the current directory.
    entropies
        How many entropies a NIC has if lanes are of datagrams; None if each is a TCP connection. A user's own
        policy does not depend on it.

    Raises
    ------
    ScenarioError
        If no scheme has that name, or what has it is not a policy, or there are no such entropies.
    """
    if is_own(name):
        return _own(name)
    if ":" in name:
        return _with_entropies(name, entropies)
    if name not in POLICIES:
        raise ScenarioError(
            f"there is no scheme named {name!r}",
            f"choose among {', '.join(sorted(POLICIES))}, or name your own as module:function",
        )
    return POLICIES[name](None, entropies)


def is_own(name: str) -> bool:
    """Return whether a name is of a user's own scheme.

    Examples
    --------
    >>> is_own("own_scheme:in_turn"), is_own("ecmp:4"), is_own("rails")
    (True, False, False)
    """
    scheme, colon, _ = name.partition(":")
    return bool(colon) and scheme not in POLICIES


def _with_entropies(name: str, entropies: int | None) -> Policy:
    """Return a policy with as many entropies as its name says, which tables call by that name."""
    scheme, _, count = name.partition(":")
    if scheme not in NUMBERED:
        raise ScenarioError(
            f"the scheme {scheme!r} takes nothing behind a colon, and {name!r} has {count!r}",
            f"leave it out; {', '.join(NUMBERED)} take a number of entropies",
        )
    most = entropies if entropies and scheme in CHOOSING else ENTROPIES
    if not re.fullmatch("[1-9][0-9]{0,3}", count) or int(count) > most:
        raise ScenarioError(
            f"the scheme {name!r} asks for {count!r} entropies",
            f"give a whole number from 1 to {most}, as in {scheme}:4",
        )
    policy = POLICIES[scheme](int(count), entropies)
    policy.name = name
    return policy


class OwnProactive:
    """A user's own proactive policy, whose assignments are looked at before they are used.

    Parameters
    ----------
    named
        How it was named: ``module:function``.
    name
        What tables call it.
    own, assign
        The function, twice, or the class's object and its method. What does not say that it is steady
        (`ProactivePolicy`) may keep something from one collective to the next.
    """

    def __init__(self, named: str, name: str, own: object, assign: Callable[..., object]) -> None:
        self.name, self.steady = name, bool(getattr(own, "steady", False))
        self.keeps_connections = bool(getattr(own, "keeps_connections", False))
        self._named, self._assign = named, assign

    def assign(
        self, *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
    ) -> Assignment:
        """Return what it returns; ScenarioError if that is not an assignment of these chunks."""
        with own_code("scheme", self._named):
            found = self._assign(fabric=fabric, messages=messages.read_only, chunks=chunks.read_only, rng=rng)
        return checked_assignment(self._named, found, len(chunks))


class OwnReactive:
    """A user's own reactive policy, whose choices are looked at before they are used.

    Parameters
    ----------
    named, name
        As of `OwnProactive`.
    own
        The policy.
    """

    def __init__(self, named: str, name: str, own: ReactivePolicy) -> None:
        self.name, self.settles = name, bool(getattr(own, "settles", False))
        self.steady = bool(getattr(own, "steady", False))
        self.per_packet = bool(getattr(own, "per_packet", False))
        self.oblivious = bool(getattr(own, "oblivious", False))
        self._named, self._own = named, own
        self._checked: set[Lanes] = set()
        asked = OwnCode("scheme", named).wrapped
        self.open, self.withdraw = asked(own.open), asked(own.withdraw)
        # What it chooses may be of any type: `traffic.spraying.checks.choice` looks at it.
        self.choose, self.acknowledged = asked(own.choose), asked(own.acknowledged)

    @property
    def counts(self) -> Mapping[str, tuple[int, int]]:
        """What it counted, if it counts."""
        with own_code("scheme", self._named):
            return self._own.counts if isinstance(self._own, CountsChunks) else {}

    @property
    def inert(self) -> Mapping[str, tuple[int, int]]:
        """What of it could not act, if it says so."""
        with own_code("scheme", self._named):
            return self._own.inert if isinstance(self._own, NamesInert) else {}

    def admit(self, *, message: Message) -> Lanes:
        """Return what it returns; ScenarioError if that does not say what the message may use."""
        with own_code("scheme", self._named):
            found = self._own.admit(message=message)
        return checked_lanes(self._named, found, message.number, self._checked)


class OwnHearing(OwnReactive):
    """A user's own reactive policy that hears of losses."""

    def lost(self, *, message: int, lane: int, now: float) -> None:
        """Let it handle that a packet was lost."""
        with own_code("scheme", self._named):
            cast(HearsLosses, self._own).lost(message=message, lane=lane, now=now)


def _own(name: str) -> Policy:
    """Return a user's own policy, once it is clear that it can be asked what a policy is asked."""
    own = own_object("scheme", name)
    if isinstance(own, type):
        return _of_class(name, own)
    if not callable(own):
        raise _not_a_policy(name)
    check_arguments("scheme", name, own, _asked(ProactivePolicy.assign), PAGE)
    return OwnProactive(name, name, own, own)


def _of_class(named: str, own: type) -> Policy:
    # Looked at before it is called: a file that names it may come from anybody.
    if not any(all(hasattr(own, each.__name__) for each in methods) for methods in METHODS.values()):
        raise _not_a_policy(named, own)
    with own_code("scheme", named):  # also what is asked of it, which may be a property
        policy = own()
        if not isinstance(policy, ProactivePolicy | ReactivePolicy):
            raise _not_a_policy(named, policy)
    methods = METHODS[ProactivePolicy if isinstance(policy, ProactivePolicy) else ReactivePolicy]
    for method in (*methods, *([HearsLosses.lost] if isinstance(policy, HearsLosses) else [])):
        asked = getattr(policy, method.__name__)
        check_arguments("scheme", f"{named}.{method.__name__}", asked, _asked(method), PAGE)
    # A class that is derived from one of ours has its name, which would stand for two schemes.
    name = policy.name if _is_name(policy.name) and policy.name.partition(":")[0] not in POLICIES else named
    if isinstance(policy, ProactivePolicy):
        return OwnProactive(named, name, policy, policy.assign)
    if isinstance(policy, HearsLosses):
        return OwnHearing(named, name, policy)
    return OwnReactive(named, name, policy)


def _is_name(name: object) -> bool:
    """Return whether tables can have a name."""
    return isinstance(name, str) and name.isprintable() and bool(name.strip())


def _asked(method: Callable[..., object]) -> list[str]:
    """Return the arguments with which a policy's method is called."""
    return [argument for argument in signature(method).parameters if argument != "self"]


def _not_a_policy(name: str, policy: object = None) -> ScenarioError:
    """Return the error of what is no policy; of one that chooses it says which methods it lacks."""
    asked = [method.__name__ for method in METHODS[ReactivePolicy]] if hasattr(policy, "choose") else []
    lacks = [method for method in (*asked, "name") if not hasattr(policy, method)] if asked else []
    return ScenarioError(
        f"{name!r} is not a spraying policy" + (f": it has no {', '.join(lacks)}" if lacks else ""),
        "give a function with the arguments of ProactivePolicy.assign, or a class with its methods",
    )
