"""Changes lead from the old rules to the new ones, and no packet takes a third route meanwhile."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.app.openflow import Message, change_messages, flow_rule, ofp
from controller.packet.changes import RuleChanges, changes, renumbered
from controller.packet.flow_table import FlowTables
from controller.packet.routing import forwarding_rules
from controller.packet.rules import Bucket, FlowRule, Match, Output, RuleSet, SelectGroup, ToGroup
from tests.topologies.strategies import fabrics
from topologies.fabric import Fabric, Link
from topologies.rail import rail_fabric


def replayed(held: RuleSet, messages: Iterator[Message]) -> Iterator[RuleSet]:
    """Yield what a switch holds after each message; refuse what a switch would, and a group that changes."""
    groups = {group.number: group for group in held.groups}
    rules = {(rule.priority, rule.match): rule for rule in held.rules}
    for message in messages:
        if hasattr(message, "group_id"):
            number = message.group_id
            if message.command == ofp.OFPGC_DELETE:
                del groups[number]
            else:
                assert message.command == ofp.OFPGC_ADD, "a group was modified"
                assert number not in groups
                groups[number] = SelectGroup(number, tuple(map(bucket_of, message.buckets)))
        else:
            rule = flow_rule(message)
            if message.command == ofp.OFPFC_DELETE_STRICT:
                del rules[rule.priority, rule.match]
            else:
                rules[rule.priority, rule.match] = rule
        yield RuleSet(tuple(rules.values()), tuple(groups.values()))


def bucket_of(bucket: Message) -> Bucket:
    """Return a message's bucket."""
    return Bucket(bucket.actions[0].port - 1, bucket.weight)


def next_hops(held: RuleSet) -> dict[Match, frozenset[int]]:
    """Return the ports to which a switch forwards each destination."""
    ports = {group.number: frozenset(bucket.port for bucket in group.buckets) for group in held.groups}
    hops = {}
    for rule in held.rules:
        for action in rule.actions:
            if isinstance(action, Output):
                hops[rule.match] = frozenset({action.port})
            elif isinstance(action, ToGroup):
                hops[rule.match] = ports[action.group]
    return hops


def as_sets(rules: RuleSet) -> tuple[set[object], set[object]]:
    """Return rules without their order, which a switch does not keep."""
    return set(rules.rules), set(rules.groups)


def assert_old_or_new_route_after_every_message(
    fabric: Fabric, switch: str, held: RuleSet, wanted: RuleSet
) -> None:
    """Replay the messages that lead from the held rules to the wanted ones, and check after each."""
    old, new = next_hops(held), next_hops(wanted)
    last = held
    for now in replayed(held, change_messages(None, changes(held, wanted))):
        FlowTables(fabric, {switch: now})  # refuses rules without their group
        last, hops = now, next_hops(now)
        for match in old | new:
            assert hops.get(match) in (old.get(match), new.get(match))
    assert as_sets(last) == as_sets(wanted)


@given(fabric=fabrics, data=st.data())
@settings(deadline=None)
def test_each_destination_has_its_old_or_its_new_next_hops_after_every_message(
    fabric: Fabric, data: st.DataObject
) -> None:
    some_links = st.frozensets(st.sampled_from(fabric.links), max_size=4)
    held = {switch: RuleSet() for switch in forwarding_rules(fabric)}
    most = 0
    for failed in data.draw(st.lists(some_links, min_size=1, max_size=5)):
        for switch, new in forwarding_rules(fabric, failed).items():
            most = max(most, len(new.groups))
            wanted = renumbered(new, held[switch])
            assert next_hops(wanted) == next_hops(new)
            assert_old_or_new_route_after_every_message(fabric, switch, held[switch], wanted)
            assert renumbered(new, wanted) == wanted
            assert changes(wanted, wanted) == RuleChanges((), (), (), ())
            assert all(0 < group.number <= 2 * most for group in wanted.groups)
            held[switch] = wanted


@pytest.mark.parametrize("rounds", [1, 50])
def test_group_numbers_do_not_grow_with_the_number_of_failures(rounds: int) -> None:
    fabric = rail_fabric(4, 3, 4)
    uplinks = [link for link in fabric.links if link.b.node.startswith("spine")]
    held = forwarding_rules(fabric)["leaf0"]
    numbers = set()
    for link in uplinks * rounds:
        for failed in (frozenset({link}), frozenset[Link]()):
            held = renumbered(forwarding_rules(fabric, failed)["leaf0"], held)
            numbers |= {group.number for group in held.groups}
    assert max(numbers) <= 3


def test_a_group_that_is_still_used_keeps_its_number_and_others_get_free_ones() -> None:
    def group(number: int, *ports: int) -> SelectGroup:
        return SelectGroup(number, tuple(Bucket(port) for port in ports))

    def rule(priority: int, number: int) -> FlowRule:
        return FlowRule(priority, Match(), (ToGroup(number),))

    def rules(*numbers: int) -> Sequence[FlowRule]:
        return [rule(priority, number) for priority, number in enumerate(numbers)]

    held = RuleSet(tuple(rules(1, 3)), (group(1, 0, 1), group(3, 0, 2)))
    new = RuleSet(tuple(rules(1, 2, 3)), (group(1, 0, 2), group(2, 1, 2), group(3, 2, 3)))
    assert renumbered(new, held) == RuleSet(
        tuple(rules(3, 2, 4)), (group(3, 0, 2), group(2, 1, 2), group(4, 2, 3))
    )
