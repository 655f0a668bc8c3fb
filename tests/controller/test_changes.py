"""Changes lead from the old rules to the new ones."""

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.changes import Changes, changes
from controller.routing import forwarding_rules
from controller.rules import RuleSet
from tests.topologies.strategies import fabrics
from topologies.fabric import Fabric


def applied(held: RuleSet, told: Changes) -> RuleSet:
    """Return what a switch holds after changes, in the order in which they are sent."""
    groups = {group.number: group for group in held.groups}
    rules = {(rule.priority, rule.match): rule for rule in held.rules}
    assert not {group.number for group in told.new_groups} & groups.keys()
    assert {group.number for group in told.changed_groups} <= groups.keys()
    groups |= {group.number: group for group in (*told.new_groups, *told.changed_groups)}
    rules |= {(rule.priority, rule.match): rule for rule in told.new_rules}
    for rule in told.gone_rules:
        del rules[rule.priority, rule.match]
    for group in told.gone_groups:
        del groups[group.number]
    return RuleSet(tuple(rules.values()), tuple(groups.values()))


def as_sets(rules: RuleSet) -> tuple[set[object], set[object]]:
    """Return rules without their order, which a switch does not keep."""
    return set(rules.rules), set(rules.groups)


@given(fabric=fabrics, data=st.data())
@settings(deadline=None)
def test_changes_lead_from_any_failure_to_any_other(fabric: Fabric, data: st.DataObject) -> None:
    some_links = st.frozensets(st.sampled_from(fabric.links), max_size=4)
    old, new = (forwarding_rules(fabric, data.draw(some_links)) for _ in range(2))
    for switch in old:
        assert as_sets(applied(old[switch], changes(old[switch], new[switch]))) == as_sets(new[switch])
        assert changes(new[switch], new[switch]) == Changes((), (), (), (), ())
        assert as_sets(applied(RuleSet(), changes(RuleSet(), new[switch]))) == as_sets(new[switch])
