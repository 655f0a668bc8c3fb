"""The spraying policies by name; a user's own is named ``module:function`` or ``module:Class``.

A function is a proactive policy's `assign`; a class is made without arguments and has the methods
of `ProactivePolicy` or `ReactivePolicy`.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature

import numpy as np

from topologies.errors import ScenarioError
from topologies.fabric import Fabric
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


def policy_named(name: str) -> Policy:
    """Return a policy, new for this caller: it remembers nothing of another's collective.

    Parameters
    ----------
    name
        A key of `POLICIES`, or ``module:function`` with a module that Python can import.

    Raises
    ------
    ScenarioError
        If nobody has that name, or what has it is no policy.
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
                "return an Assignment, see docs/own_scheme.md",
            )
        return assignment


def _own(name: str) -> Policy:
    module_name, _, attribute = name.partition(":")
    try:
        own = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ScenarioError(
            f"the scheme {name!r} cannot be imported: {error}",
            "name it as module:function, and put the module's folder on PYTHONPATH",
        ) from error
    try:
        policy = own() if isinstance(own, type) else AssignFunction(name, own)
    except TypeError as error:
        raise ScenarioError(
            f"the scheme {name!r} cannot be made: {error}", "its class must need no argument"
        ) from error
    if not callable(own) or not isinstance(policy, ProactivePolicy | ReactivePolicy):
        raise ScenarioError(
            f"{name!r} is no spraying policy",
            "give a function with the arguments of ProactivePolicy.assign, or a class with its methods",
        )
    for method in METHODS[ProactivePolicy if isinstance(policy, ProactivePolicy) else ReactivePolicy]:
        if isinstance(policy, AssignFunction):
            _check_arguments(name, own, method)
        else:
            _check_arguments(f"{name}.{method.__name__}", getattr(policy, method.__name__), method)
    return policy


def _check_arguments(name: str, function: Callable[..., object], method: Callable[..., object]) -> None:
    """Refuse a function that cannot be called as a policy's method is, by keyword."""
    arguments = [argument for argument in signature(method).parameters if argument != "self"]
    try:
        signature(function).bind(**dict.fromkeys(arguments))
    except (TypeError, ValueError) as error:  # a ValueError: it is written in C, and does not tell
        told = ", ".join(arguments)
        raise ScenarioError(
            f"the scheme {name!r} does not take the arguments {told}",
            f"write it as: def {name.rpartition(':')[2].rpartition('.')[2]}(*, {told}), "
            "see docs/own_scheme.md",
        ) from error
