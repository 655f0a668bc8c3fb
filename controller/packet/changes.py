"""What must be sent so that a switch that holds one set of rules holds another.

No group ever changes its buckets while rules point to it: traffic to one destination would take
another's next hops until its rule has moved. Groups with the same buckets keep their number, others
get a number that the switch does not use (`renumbered`); groups are added, rules move, and what no
rule points to any more is deleted. So at each moment a destination has its old next hops or its new.
"""

from dataclasses import dataclass, replace
from itertools import count

from controller.packet.rules import FlowRule, RuleSet, SelectGroup, ToGroup


@dataclass(frozen=True, slots=True)
class RuleChanges:
    """A difference between two sets of rules, in the order in which it is applied."""

    new_groups: tuple[SelectGroup, ...]
    new_rules: tuple[FlowRule, ...]
    """Rules that were not there, or had other actions: adding such a one replaces the old one."""
    gone_rules: tuple[FlowRule, ...]
    gone_groups: tuple[SelectGroup, ...]


def renumbered(new: RuleSet, held: RuleSet) -> RuleSet:
    """Return rules whose groups have the numbers under which a switch can take them.

    Parameters
    ----------
    new
        The wanted rules.
    held
        What it holds. A new group gets the lowest number that none of these has, so no number exceeds the
        count of groups in two sets.
    """
    numbers = {group.buckets: group.number for group in held.groups}
    used = {group.number for group in held.groups}
    free = (number for number in count(1) if number not in used)
    number_of = {
        group.number: numbers[group.buckets] if group.buckets in numbers else next(free)
        for group in new.groups
    }
    return RuleSet(
        tuple(_with_groups(rule, number_of) for rule in new.rules),
        tuple(replace(group, number=number_of[group.number]) for group in new.groups),
    )


def changes(old: RuleSet, new: RuleSet) -> RuleChanges:
    """Return what leads from one set of rules to another, whose groups `renumbered` has numbered."""
    old_groups = {group.number for group in old.groups}
    old_rules = {(rule.priority, rule.match): rule for rule in old.rules}
    numbers = {group.number for group in new.groups}
    matches = {(rule.priority, rule.match) for rule in new.rules}
    return RuleChanges(
        new_groups=tuple(group for group in new.groups if group.number not in old_groups),
        new_rules=tuple(rule for rule in new.rules if old_rules.get((rule.priority, rule.match)) != rule),
        gone_rules=tuple(rule for rule in old.rules if (rule.priority, rule.match) not in matches),
        gone_groups=tuple(group for group in old.groups if group.number not in numbers),
    )


def _with_groups(rule: FlowRule, number_of: dict[int, int]) -> FlowRule:
    actions = (
        ToGroup(number_of[action.group]) if isinstance(action, ToGroup) else action for action in rule.actions
    )
    return replace(rule, actions=tuple(actions))
