"""A rule for circuits, bound to an experiment's fabric and job: what it and its orders must be."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import cast, get_args

from controller.circuits.circuits import Circuits, check_permitted
from controller.circuits.devices import LEAST_DELAY_S, ReconfigurationDelay
from controller.circuits.rule import Carries, Decides, Rule
from testbed.experiment.circuits_registry import CIRCUITS, CircuitsRule, OwnCircuits
from testbed.experiment.dilation import UNSCALED, Dilation
from topologies.errors import DemandError, ScenarioError
from topologies.events import (
    AtDeadline,
    Event,
    Flip,
    Hold,
    Order,
    Provision,
    Reconfigure,
    Show,
    View,
)
from topologies.fabric import Fabric
from topologies.own import own_code
from topologies.own_value import class_name
from traffic.faults import Moves
from traffic.job import Job
from traffic.scheme_setup import ONCE_LIT, ROUTED, WHILE_LIT, SchemeSetup


def bound(
    circuits: CircuitsRule | OwnCircuits,
    fabric: Fabric,
    job: Job,
    scale: Dilation,
    seed: int,
    moves: Mapping[str, Moves],
) -> Rule:
    """Return a rule for a fabric and a job.

    Raises
    ------
    LightrailError
        If it does not fit them, it is a user's own and is not valid or its code raises, or an emulation at
        this scale cannot honour its delays.
    """
    if CIRCUITS.is_own(circuits):
        rule = _own_rule(cast(OwnCircuits, circuits), fabric, job, scale, seed)
    else:
        rule = cast(CircuitsRule, circuits).bind(fabric, job, scale, seed, moves)
    if scale != UNSCALED and not rule.stays:
        for delay in dict.fromkeys(rule.delays.values()):
            _check_delay(delay, scale)
    return rule


def scheme_alone(rule: Rule, fabric: Fabric) -> str | SchemeSetup | None:
    """Return the scheme of messages that a rule's circuits carry alone; None if they do not."""
    if rule.carries == "by scheme":
        return None
    if rule.carries == "while lit":
        return WHILE_LIT
    return ROUTED if fabric.servers_forward else ONCE_LIT


def _check_delay(delay: ReconfigurationDelay, scale: Dilation) -> None:
    """Refuse a delay that an emulation does not honour; none at all is an ideal device's."""
    emulated_s = scale.emulated_s(delay.mean_s)
    if 0 < emulated_s < LEAST_DELAY_S:
        volume = 1.01 * delay.volume_for(scale.rate, LEAST_DELAY_S)
        raise ScenarioError(
            f"a delay of {delay.mean_s:g} s would be {emulated_s:.2g} s in the emulation, which honours "
            f"{LEAST_DELAY_S:g} s and more",
            f"a volume dilation of V = {volume:.3g} at this rate would do: raise --volume, or lower "
            "--emulated-rate",
        )


# A user's own


def _own_rule(circuits: OwnCircuits, fabric: Fabric, job: Job, scale: Dilation, seed: int) -> Rule:
    """Return a user's own rule, each of whose decisions is checked."""
    name = class_name(type(circuits))
    if not any(switch.kind == "ocs" for switch in fabric.switches):
        raise ScenarioError(
            f"the rule {name!r} lights circuits, and the fabric {fabric.name!r} has no OCS",
            f"name one that has, as by --fabric of job.py, or leave the rule out, see {CIRCUITS.page}",
        )
    with own_code(CIRCUITS.name, name):
        rule = cast(object, circuits.bind(fabric=fabric, job=job, scale=scale, seed=seed))
    if not isinstance(rule, Rule):
        raise _not_valid(name, f"bind returned an object of type {type(rule).__name__}, and not a Rule")
    if rule.carries not in get_args(Carries):
        raise _not_valid(name, f"carries is one of {', '.join(get_args(Carries))}, not {rule.carries!r}")
    if not callable(getattr(rule.decides, "decide", None)):
        raise _not_valid(name, "what decides has no method decide(state, view, event)")
    _check_ocses(name, rule, fabric)
    return replace(rule, decides=_Checked(name, rule.decides, frozenset(rule.delays)))


def _check_ocses(name: str, rule: Rule, fabric: Fabric) -> None:
    """Refuse OCSes that are not there or have no delay, and first circuits that they cannot have."""
    ocses = {switch.name: switch for switch in fabric.switches if switch.kind == "ocs"}
    _check_delays(name, rule, fabric, ocses)
    if not isinstance(rule.first, Mapping):
        raise _not_valid(name, "first is not a mapping from the names of OCSes to circuits")
    for ocs, circuits in rule.first.items():
        if ocs not in rule.delays:
            raise _not_valid(name, f"{ocs!r} shows circuits from the start, and has no delay")
        _check_circuits(name, circuits)
        try:
            check_permitted(ocses[ocs], Circuits(ocses[ocs].ports, circuits))
        except DemandError as error:
            raise _not_valid(name, f"from the start of {ocs}, {error.sentence}") from error


def _check_delays(name: str, rule: Rule, fabric: Fabric, ocses: Collection[str]) -> None:
    if not isinstance(rule.delays, Mapping):
        raise _not_valid(name, "delays is not a mapping from the names of OCSes to a ReconfigurationDelay")
    if not rule.delays:
        raise _not_valid(name, f"has a delay for no OCS; {fabric.name!r} has {', '.join(ocses)}")
    for ocs, delay in rule.delays.items():
        if ocs not in ocses:
            known = ", ".join(ocses)
            raise _not_valid(
                name, f"has a delay for {ocs!r}, which is not an OCS of {fabric.name!r}: {known}"
            )
        if not isinstance(delay, ReconfigurationDelay):
            raise _not_valid(name, f"the delay of {ocs} is not a ReconfigurationDelay")


def _check_circuits(name: str, circuits: object) -> None:
    """Refuse what is not a tuple of pairs of ports."""
    is_pairs = isinstance(circuits, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and all(type(port) is int for port in pair)
        for pair in circuits
    )
    if not is_pairs:
        raise _not_valid(name, f"circuits are a tuple of pairs of ports, ((0, 1), (1, 0)), not {circuits!r}")


class _Checked:
    """A user's own rule: what it decides from it cannot change, and what it decides is checked."""

    def __init__(self, name: str, decides: Decides, ocses: frozenset[str]) -> None:
        self._name, self._decides, self._ocses = name, decides, ocses

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the state after an event, and what is to be done; ScenarioError if it is not valid."""
        seen = replace(
            view,
            lit=MappingProxyType(view.lit),
            ordered=MappingProxyType(view.ordered),
            rates=MappingProxyType(view.rates),
        )
        with own_code(CIRCUITS.name, self._name):
            decided = cast(object, self._decides.decide(state, seen, event))
        if not (isinstance(decided, tuple) and len(decided) == 2):
            raise _not_valid(self._name, f"decide returned {decided!r}, and not (state, orders)")
        after, orders = decided
        if not isinstance(orders, list | tuple):
            raise _not_valid(self._name, f"orders are a list or a tuple, not of type {type(orders).__name__}")
        for order in orders:
            self._check(order)
        return after, orders

    def _check(self, order: object) -> None:
        if not isinstance(order, get_args(Order)):
            raise _not_valid(self._name, f"{order!r} is not an order (topologies/events.py)")
        for ocs, shown in _shown(cast(Order, order)):
            if ocs not in self._ocses:
                known = ", ".join(sorted(self._ocses))
                raise _not_valid(self._name, f"ordered something of {ocs!r}; it has delays for {known}")
            for circuits in shown:
                _check_circuits(self._name, circuits)
        for field in ("after_s", "deadline_s"):
            time_s = getattr(order, field, None)
            if time_s is not None and not (isinstance(time_s, int | float) and 0 <= time_s < math.inf):
                raise _not_valid(self._name, f"ordered {field} = {time_s!r}, which is not a time")
        if (at := getattr(order, "at_deadline", "cut")) not in get_args(AtDeadline):
            raise _not_valid(self._name, f"at_deadline is cut or refuse, not {at!r}")
        for lit_s in _lit_s(cast(Order, order)):
            if not (isinstance(lit_s, int | float) and 0 < lit_s < math.inf):
                raise _not_valid(self._name, f"ordered lit_s = {lit_s!r}, which is not a positive time")


def _shown(order: Order) -> list[tuple[str, Sequence[object]]]:
    """Return the OCSes that an order is of, and what circuits each is to show, one after the other."""
    if isinstance(order, Reconfigure):
        return [(ocs, [circuits]) for ocs, circuits in order.circuits.items()]
    if isinstance(order, Provision):
        return [(order.ocs, [order.circuits])]
    if isinstance(order, Flip | Hold):
        return [(ocs, []) for ocs in order.ocses]
    programs = order.programs if isinstance(order, Show) else ()
    return [(ocs, [slot.circuits for slot in slots]) for ocs, slots in programs]


def _lit_s(order: Order) -> list[object]:
    """Return for how long each slot of an order's programs is lit."""
    return [slot.lit_s for _, slots in order.programs for slot in slots] if isinstance(order, Show) else []


def _not_valid(name: str, said: str) -> ScenarioError:
    return ScenarioError(f"the rule for circuits {name!r}: {said}", f"see {CIRCUITS.page}")
