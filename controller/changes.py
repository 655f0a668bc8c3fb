"""What must be sent so that a switch that holds one set of rules holds another."""

from dataclasses import dataclass

from controller.rules import Group, Rule, RuleSet


@dataclass(frozen=True, slots=True)
class Changes:
    """A difference between two sets of rules, in the order in which it is applied."""

    new_groups: tuple[Group, ...]
    changed_groups: tuple[Group, ...]
    new_rules: tuple[Rule, ...]
    """Rules that were not there, or had other actions: adding such a one replaces the old one."""
    gone_rules: tuple[Rule, ...]
    gone_groups: tuple[Group, ...]


def changes(old: RuleSet, new: RuleSet) -> Changes:
    """Return what leads from one set of rules to another."""
    old_groups = {group.number: group for group in old.groups}
    old_rules = {(rule.priority, rule.match): rule for rule in old.rules}
    numbers = {group.number for group in new.groups}
    matches = {(rule.priority, rule.match) for rule in new.rules}
    return Changes(
        new_groups=tuple(group for group in new.groups if group.number not in old_groups),
        changed_groups=tuple(group for group in new.groups if old_groups.get(group.number, group) != group),
        new_rules=tuple(rule for rule in new.rules if old_rules.get((rule.priority, rule.match)) != rule),
        gone_rules=tuple(rule for rule in old.rules if (rule.priority, rule.match) not in matches),
        gone_groups=tuple(group for group in old.groups if group.number not in numbers),
    )
