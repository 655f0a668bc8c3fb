"""Jobs made of jobs: one after another, side by side, on a part of a fabric, several times.

A part keeps its nodes, bytes and arrows; its nodes are called ``part/node``, and the n-th time of a
repeated node ``node[n]``. A part that waits starts when all that it waits for has ended: every node
of it that waits for nothing inside waits for all last nodes before it. No node of it may have a start of
its own, which is a time of the whole job.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from topologies.errors import DemandError
from traffic.job import Collective, Job, Node

MOST_NODES = 100_000
"""Most nodes of a job that is made of parts."""
MOST_ARROWS = 10_000_000
"""Most arrows between one part and the next, or between all times of one: each last to each first node."""


@dataclass(frozen=True)
class Repeat:
    """A part that runs several times, each time when the time before has ended.

    Raises
    ------
    DemandError
        If it runs less than once, or makes more than `MOST_NODES` nodes or `MOST_ARROWS` arrows.
    """

    part: Node | Job
    times: int
    after: tuple[str, ...] = ()
    """What the first time waits for; a node's own arrows are the first time's too."""

    def __post_init__(self) -> None:
        """Check how often."""
        if self.times < 1:
            raise DemandError(f"{self.name!r} runs {self.times} times", "let it run once or more")
        nodes = self.part.nodes if isinstance(self.part, Job) else (self.part,)
        if (size := self.times * len(nodes)) > MOST_NODES:
            raise DemandError(f"{self.name!r} makes {size:,} nodes", f"make at most {MOST_NODES:,}")
        _check_arrows(self.name, (self.times - 1) * len(_first(nodes)) * len(_last(nodes)))

    @property
    def name(self) -> str:
        """What waits for the last time names it so."""
        return self.part.name

    @property
    def waits(self) -> tuple[str, ...]:
        """All that the first time waits for."""
        return self.after if isinstance(self.part, Job) else (*self.part.after, *self.after)


def unfolded(name: str, gpus: int, parts: Sequence[Node | Repeat], note: str = "") -> Job:
    """Return the job of nodes and repeated parts.

    What waits for a repeated part by its name waits for the end of its last time; its nodes cannot be
    waited for one by one from outside, nor wait for single nodes outside.

    Raises
    ------
    DemandError
        If a repeated part is for more GPUs than the job, two parts share a name, or as of `Job`.
    """
    _check_names(name, [part.name for part in parts])
    ends = {part.name: _last(_time(part, part.times - 1, ())) for part in parts if isinstance(part, Repeat)}
    nodes: list[Node] = []
    for part in parts:
        if isinstance(part, Repeat):
            _check_fits(part, gpus)
            nodes += _times(part, _resolved(part.waits, ends))
        else:
            nodes.append(replace(part, after=_resolved(part.after, ends)))
    return Job(name, gpus, tuple(nodes), note)


def one_after_another(name: str, jobs: Sequence[Job]) -> Job:
    """Return jobs as one, each of which starts when all of the one before has ended.

    Parameters
    ----------
    name
        Of the whole.
    jobs
        For the same number of GPUs, of different names.

    Raises
    ------
    DemandError
        If there is no job, two share a name, or they are for different numbers of GPUs.
    """
    gpus = _gpus(name, jobs)
    nodes: list[Node] = []
    after: tuple[str, ...] = ()
    for job in jobs:
        part = _inside(job.name, job.nodes, after)
        nodes += part
        after = _last(part)
    return Job(name, gpus, tuple(nodes), _notes(jobs))


def side_by_side(name: str, jobs: Sequence[Job]) -> Job:
    """Return jobs as one, all of which start at once; those that share GPUs or links share them.

    Communicators with a name are of a job each, and called ``part/communicator``.

    Its parameters, and what it raises, are those of `one_after_another`.
    """
    gpus = _gpus(name, jobs)
    nodes = tuple(_apart(job.name, node) for job in jobs for node in _inside(job.name, job.nodes, ()))
    return Job(name, gpus, nodes, _notes(jobs))


def placed(job: Job, gpus: Sequence[int], *, of: int) -> Job:
    """Return a job on a part of a fabric.

    Parameters
    ----------
    job
        For as many GPUs as are given.
    gpus
        The fabric's GPU that each GPU of the job is.
    of
        How many GPUs the fabric has.

    Raises
    ------
    DemandError
        If there is not one GPU of the fabric, of its own, for each GPU of the job.
    """
    if len(gpus) != job.gpus:
        raise DemandError(
            f"job {job.name!r} is for {job.gpus} GPUs, and is placed on {len(gpus)}", "give one for each"
        )
    twice = [gpu for gpu, count in Counter(gpus).items() if count > 1]
    if twice:
        raise DemandError(f"job {job.name!r} is placed on GPU {twice[0]} twice", "give each GPU once")
    outside = [gpu for gpu in gpus if not 0 <= gpu < of]
    if outside:
        raise DemandError(f"job {job.name!r} is placed on GPU {outside[0]} of {of} GPUs", "count them from 0")
    return replace(job, gpus=of, nodes=tuple(renumbered(node, gpus) for node in job.nodes))


def renumbered(node: Node, gpus: Sequence[int]) -> Node:
    """Return a node between other GPUs: ``gpus[k]`` takes the part of GPU k."""
    if isinstance(node, Collective):
        return replace(node, pattern=node.pattern.renumbered(gpus))
    return replace(node, gpus=tuple(gpus[gpu] for gpu in node.gpus))


def _times(repeat: Repeat, after: tuple[str, ...]) -> list[Node]:
    """Return the nodes of all times of a part, the first of which waits for ``after``."""
    nodes: list[Node] = []
    for time in range(repeat.times):
        mine = _time(repeat, time, after)
        nodes += mine
        after = _last(mine)
    return nodes


def _time(repeat: Repeat, time: int, after: tuple[str, ...]) -> tuple[Node, ...]:
    """Return the nodes of one time of a part."""
    part, name = repeat.part, f"{repeat.name}[{time}]"
    if isinstance(part, Job):
        return _inside(name, part.nodes, after)
    return (replace(part, name=name, after=after),)


def _inside(part: str, nodes: Sequence[Node], after: tuple[str, ...]) -> tuple[Node, ...]:
    """Return the nodes of a part under its name; those that wait for none of it wait for ``after``."""
    _check_arrows(part, len(_first(nodes)) * len(after))
    if after and (starts := [node.name for node in nodes if node.at_s]):
        raise DemandError(
            f"node {starts[0]!r} starts at a time of the job, and part {part!r} when others have ended",
            "leave out its time, or have the part wait for nothing",
        )
    inside = [tuple(f"{part}/{name}" for name in node.after) for node in nodes]
    return tuple(
        replace(node, name=f"{part}/{node.name}", after=waits or after)
        for node, waits in zip(nodes, inside, strict=True)
    )


def _apart(part: str, node: Node) -> Node:
    """Return a node whose communicator, if it has a name, is another than one of that name of other parts."""
    if isinstance(node, Collective) and node.communicator:
        return replace(node, communicator=f"{part}/{node.communicator}")
    return node


def _first(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the nodes that wait for nothing."""
    return tuple(node.name for node in nodes if not node.after)


def _last(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the nodes that no other of them waits for."""
    waited = {name for node in nodes for name in node.after}
    return tuple(node.name for node in nodes if node.name not in waited)


def _resolved(after: Sequence[str], ends: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(end for name in after for end in ends.get(name, (name,))))


def _check_fits(repeat: Repeat, gpus: int) -> None:
    if isinstance(repeat.part, Job) and repeat.part.gpus > gpus:
        raise DemandError(
            f"part {repeat.name!r} is for {repeat.part.gpus} GPUs, and the job has {gpus}",
            "give the job as many",
        )


def _gpus(name: str, jobs: Sequence[Job]) -> int:
    """Return how many GPUs jobs are for that can be parts of one."""
    if not jobs:
        raise DemandError(f"job {name!r} has no part", "give it one")
    _check_names(name, [job.name for job in jobs])
    for job in jobs:
        if job.gpus != jobs[0].gpus:
            raise DemandError(
                f"job {jobs[0].name!r} is for {jobs[0].gpus} GPUs, and {job.name!r} for {job.gpus}",
                "place both on one fabric first",
            )
    return jobs[0].gpus


def _check_arrows(part: str, count: int) -> None:
    if count > MOST_ARROWS:
        raise DemandError(
            f"part {part!r} makes {count:,} arrows, from all its last nodes to all its first ones",
            "end it with one node that waits for the others, such as a compute on no GPU",
        )


def _check_names(name: str, parts: Sequence[str]) -> None:
    for part, count in Counter(parts).items():
        if count > 1:
            raise DemandError(f"{count} parts of job {name!r} are named {part!r}", "name them apart")


def _notes(jobs: Sequence[Job]) -> str:
    return "; ".join(dict.fromkeys(job.note for job in jobs if job.note))
