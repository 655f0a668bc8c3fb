"""The spraying policies by name; a user's own is named ``module:function`` or ``module:Class``.

A function is a proactive policy's `assign`; a class is made without arguments and has the methods
of `ProactivePolicy` or `ReactivePolicy`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature

import numpy as np

from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.own import check_arguments, own_object
from traffic.messages import Chunks, Messages
from traffic.spraying.ecmp import Ecmp
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.optimal import Optimal
from traffic.spraying.plb import Plb
from traffic.spraying.policy import Assignment, Policy, ProactivePolicy, ReactivePolicy
from traffic.spraying.rails import Rails
from traffic.spraying.reps import Reps

POLICIES: dict[str, Callable[[], Policy]] = {
    "ecmp": Ecmp,
    "plb": Plb,
    "reps": Reps,
    "minrtt": MinRtt,
    "rails": Rails,
    "optimal": Optimal,
}
"""Every policy that comes with lightrail."""

METHODS = {
    ProactivePolicy: (ProactivePolicy.assign,),
    ReactivePolicy: (ReactivePolicy.permit, ReactivePolicy.choose, ReactivePolicy.acknowledged),
}
"""What a policy of each kind is asked."""

PAGE = "docs/own_scheme.md"


def policy_named(name: str) -> Policy:
    """Return a policy, new for this caller: it remembers nothing of another's collective.

    Parameters
    ----------
    name
        A key of `POLICIES`, or ``module:function`` with a module on Python's path or in the current
        directory.

    Raises
    ------
    ScenarioError
        If no scheme has that name, or what has it is no policy.
    """
    if ":" in name:
        return _own(name)
    if name not in POLICIES:
        raise ScenarioError(
            f"there is no scheme named {name!r}",
            f"choose among {', '.join(sorted(POLICIES))}, or name your own as module:function",
        )
    return POLICIES[name]()


@dataclass(frozen=True, slots=True)
class AssignFunction:
    """A proactive policy that is one function."""

    name: str
    """How it was named: ``module:function``."""
    function: Callable[..., Assignment]
    """Takes what `ProactivePolicy.assign` takes."""

    def assign(
        self, *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
    ) -> Assignment:
        """Return what the function returns; ScenarioError if that is no assignment."""
        assignment = self.function(fabric=fabric, messages=messages, chunks=chunks, rng=rng)
        if not isinstance(assignment, Assignment):
            raise ScenarioError(
                f"the scheme {self.name!r} returned an object of type {type(assignment).__name__}",
                f"return an Assignment, see {PAGE}",
            )
        return assignment


def _own(name: str) -> Policy:
    own, policy = own_object("scheme", name), None
    if isinstance(own, type):
        policy = _made(name, own)
    elif callable(own):
        policy = AssignFunction(name, own)
    if not isinstance(policy, ProactivePolicy | ReactivePolicy):
        raise ScenarioError(
            f"{name!r} is not a valid spraying policy",
            "give a function with the arguments of ProactivePolicy.assign, or a class with its methods",
        )
    for method in METHODS[ProactivePolicy if isinstance(policy, ProactivePolicy) else ReactivePolicy]:
        arguments = [argument for argument in signature(method).parameters if argument != "self"]
        if isinstance(policy, AssignFunction):
            check_arguments("scheme", name, policy.function, arguments, PAGE)
        else:
            asked = getattr(policy, method.__name__)
            check_arguments("scheme", f"{name}.{method.__name__}", asked, arguments, PAGE)
    return policy


def _made(name: str, policy: type) -> object:
    try:
        return policy()
    except TypeError as error:
        raise ScenarioError(
            f"the scheme {name!r} cannot be made: {error}", "its class must need no argument"
        ) from error
