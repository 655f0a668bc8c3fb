"""What of a job waits for what, while it runs and while it is revised."""

from collections import defaultdict
from collections.abc import Sequence

from traffic.job import Job, Node


class JobGraph:
    """The nodes of a job, and which of them wait for how many others."""

    def __init__(self, job: Job) -> None:
        self.nodes: dict[str, Node] = {}
        self._order: dict[str, int] = {}
        self._waits: dict[str, int] = {}
        self._then: dict[str, list[str]] = defaultdict(list)
        self.open = 0
        """How many nodes have not ended."""
        for node in job.nodes:
            self._add(node)

    def sources(self) -> list[Node]:
        """Return the nodes that wait for nothing."""
        return [node for name, node in self.nodes.items() if not self._waits[name]]

    def done(self, name: str) -> list[Node]:
        """Record that a node has ended; return those that are ready now, in job order."""
        self.open -= 1
        after = self._then.pop(name, [])
        for then in after:
            self._waits[then] -= 1
        ready = sorted((then for then in after if not self._waits[then]), key=self._order.__getitem__)
        return [self.nodes[then] for then in ready]

    def replace(self, names: Sequence[str], nodes: Sequence[Node]) -> list[Node]:
        """Put nodes in the place of some that have not ended; return those that are ready now."""
        waiting = [then for name in names for then in self._then.pop(name, [])]
        self.open -= len(names)
        for node in nodes:
            self._add(node)
        last = [node.name for node in nodes if node.name not in self._then]
        for name in last:
            self._then[name] += waiting
        for then in waiting:
            self._waits[then] += len(last) - 1
        found = dict.fromkeys([*waiting, *(node.name for node in nodes)])
        return [self.nodes[name] for name in found if not self._waits[name]]

    def is_awaited(self, name: str) -> bool:
        """Return whether nodes wait for one that has not ended."""
        return bool(self._then.get(name))

    def swap(self, node: Node) -> None:
        """Put a node in the place of the one of its name, which waits for the same."""
        self.nodes[node.name] = node

    def _add(self, node: Node) -> None:
        self._order[node.name] = len(self._order)
        self.nodes[node.name] = node
        self._waits[node.name] = len(set(node.after))
        self.open += 1
        for name in dict.fromkeys(node.after):
            self._then[name].append(node.name)
