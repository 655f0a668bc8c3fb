"""The procedure of losing: operations from or to GPUs that are gone are given up."""

from collections.abc import Iterable

from testbed.core.state import State
from topologies.errors import ScenarioError


def lose(state: State, numbers: Iterable[int]) -> list[str]:
    """Give up operations from or to GPUs that are gone; return the node of each.

    Raises
    ------
    ScenarioError
        If others wait for them that could still be sent, as in a ring, or nodes for their collective.
    """
    ops, gone = state.ops, state.failures.gone
    if not gone:
        return []
    wholes = {number: ops.root(number) for number in numbers}
    ends = {  # those for messages of many GPUs, or together, go on
        number: {ops.source[whole], ops.destination[whole]}
        for number, whole in wholes.items()
        if ops.row[whole] >= 0
    }
    lost = [number for number in ends if number not in ops.lost and ends[number] & gone]
    ops.lost.update(lost)
    for number in lost:
        name = state.node_of(number).name
        if state.graph.is_awaited(name) or not ops.lost.issuperset(ops.then.get(number, ())):
            raise ScenarioError(
                f"{name!r} cannot go on without GPU {min(ends[number] & gone)}, which is gone",
                "let a revision put another collective in its place, or let a NIC or a link fail",
            )
    return [state.node_of(number).name for number in lost if ops.part_of[number] < 0]
