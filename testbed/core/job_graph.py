"""The graph of a job: which nodes wait for which, while it runs and while it is revised."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from traffic.job import Compute, Job, Node


class JobGraph:
    """The nodes of a job, and for how many others each waits."""

    def __init__(self, job: Job) -> None:
        self.nodes: dict[str, Node] = {}
        self._order: dict[str, int] = {}
        self._waits: dict[str, int] = {}
        self._then: dict[str, list[str]] = defaultdict(list)
        self.open = 0
        """How many nodes have not ended."""
        for node in job.nodes:
            self._add(node)
        for node in job.nodes:
            self._bring_forward(self._order[node.name], node.after)

    def rank(self, name: str) -> int:
        """Return a node's place among those that are ready at the same time: that in the job.

        A node that takes no time has the place of the first that waits for it, which is ready with it.
        """
        return self._order[name]

    def sources(self) -> list[Node]:
        """Return the nodes that wait for nothing."""
        return [node for name, node in self.nodes.items() if not self._waits[name]]

    def done(self, name: str) -> list[Node]:
        """Record that a node has ended; return those that are ready now."""
        self.open -= 1
        after = self._then.pop(name, [])
        for then in after:
            self._waits[then] -= 1
        return [self.nodes[then] for then in after if not self._waits[then]]

    def replace(self, names: Sequence[str], nodes: Sequence[Node]) -> list[Node]:
        """Put nodes in the place of some that have not ended; return those that are ready now."""
        waiting = [then for name in names for then in self._then.pop(name, [])]
        self.open -= len(names)
        for node in nodes:
            self._add(node)
        for node in nodes:
            self._bring_forward(self._order[node.name], node.after)
        last = [node.name for node in nodes if node.name not in self._then]
        for name in last:
            self._then[name] += waiting
        for then in waiting:
            self._waits[then] += len(last) - 1
            self._bring_forward(self._order[then], last)
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

    def _bring_forward(self, rank: int, names: Iterable[str]) -> None:
        """Have nodes that take no time rank no later than one that waits for them."""
        before = list(names)
        while before:
            name = before.pop()
            if name in self.nodes and self._order[name] > rank and _takes_no_time(self.nodes[name]):
                self._order[name] = rank
                before += self.nodes[name].after


def _takes_no_time(node: Node) -> bool:
    """Return whether a node ends as it starts, on GPUs that are idle."""
    if isinstance(node, Compute):
        return not any(node.on_gpu_s(gpu) for gpu in node.gpus)
    return not any(len(part.moves) for part in node.pattern.lower(coupled=True).parts)
