"""Launchers: which processes an application begins with, on which hosts, with which words and environment.

============ ==========================================================================================
launcher     processes
============ ==========================================================================================
each         the command on each host; per GPU once for each
mpirun       OpenMPI's ``mpirun`` on the first host, which starts a rank per GPU
torchrun     the command once per GPU, with the environment that PyTorch's ``torchrun`` gives
jax          the command once per GPU, with the address of JAX's coordinator
ssh          the command once, on the first host: a script that starts the others by ``lightrail-ssh``
============ ==========================================================================================

Every process has ``LIGHTRAIL_RANK``, ``LIGHTRAIL_SIZE``, ``LIGHTRAIL_LOCAL_RANK`` and ``LIGHTRAIL_NIC``, the
NIC beside its GPU; with ``ssh`` they are those of its one process. ``LIGHTRAIL_HOSTS`` has the names of the
hosts that take part.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from topologies.errors import ScenarioError
from topologies.fabric import Fabric

Launcher = Literal["each", "mpirun", "torchrun", "jax", "ssh"]
LAUNCHERS: tuple[Launcher, ...] = get_args(Launcher)
Per = Literal["host", "gpu"]
Over = Literal["nics", "host"]
PORT = 29500
"""Of the first rank, where processes find each other: torchrun's usual one."""
HOSTS_NETWORK = "172.16.0.0/12"
TAG = re.compile(rb"\[\d+,(\d+)\]<(stdout|stderr)>:")
"""The beginning of what mpirun passes on (``--tag-output``): the job's number, the rank, the stream."""
AS_A_RANK = (
    "LIGHTRAIL_RANK=$OMPI_COMM_WORLD_RANK LIGHTRAIL_SIZE=$OMPI_COMM_WORLD_SIZE "
    "LIGHTRAIL_LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK "
    "LIGHTRAIL_NIC=$(echo {nics} | cut -d, -f$((OMPI_COMM_WORLD_RANK + 1))) LIGHTRAIL_HOSTS={hosts}; "
    "export LIGHTRAIL_RANK LIGHTRAIL_SIZE LIGHTRAIL_LOCAL_RANK LIGHTRAIL_NIC LIGHTRAIL_HOSTS; "
    'exec "$@"'
)
"""The shell's words by which a rank of OpenMPI gets the environment that other launchers give."""


@dataclass(frozen=True)
class LaunchedProcess:
    """A process that an application begins with."""

    host: int
    label: str
    """The word before each line of its output: its host, and its number there if there are several."""
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that it has beside those of its host."""


@dataclass(frozen=True)
class Launch:
    """The processes that an application begins with."""

    processes: tuple[LaunchedProcess, ...]
    ranks: tuple[str, ...] = ()
    """The labels of the ranks that ``mpirun`` starts; none where each process is one of the above."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all whose output is told apart."""
        return tuple(dict.fromkeys([*self.ranks, *(process.label for process in self.processes)]))

    def authors(self, process: LaunchedProcess, data: bytes) -> Iterator[tuple[str, bytes, bool | None]]:
        """Yield who wrote which parts of a process' lines, and whether to standard error; None as it came.

        ``mpirun`` passes on what its ranks write, with a tag before each part of it; a part may end within a
        line, and one of another rank begin there. Its own words have no tag.
        """
        own, *parts = TAG.split(data) if self.ranks else [data]
        if own:
            yield process.label, own, None
        for rank, stream, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            known = int(rank) < len(self.ranks)
            yield self.ranks[int(rank)] if known else process.label, text, stream == b"stderr"


def hosts_named(fabric: Fabric, text: str | None) -> tuple[int, ...]:
    """Return the servers that a list of names and ranges names, each once, in its order; all for None.

    Raises
    ------
    ScenarioError
        If a name is unknown, or a range ends before it begins.

    Examples
    --------
    >>> from topologies.rail import rail_fabric
    >>> hosts_named(rail_fabric(6, 1), "h4,h0-h2")
    (4, 0, 1, 2)
    """
    if text is None:
        return tuple(range(len(fabric.servers)))
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ScenarioError("--on names no host", "give hosts, such as h0-h3,h5")
    return tuple(dict.fromkeys(number for word in words for number in _range(fabric, word)))


def _range(fabric: Fabric, word: str) -> Sequence[int]:
    """Return the servers of one word: a name, or two names with a hyphen between them."""
    if word in fabric.server_index:
        return [fabric.server_index[word]]
    parts = word.split("-")
    for at in range(1, len(parts)):  # names may have hyphens too
        ends = "-".join(parts[:at]), "-".join(parts[at:])
        if all(end in fabric.server_index for end in ends):
            first, last = (fabric.server_index[end] for end in ends)
            if last < first:
                raise ScenarioError(
                    f"the range {word} of --on ends before it begins", f"write {ends[1]}-{ends[0]}"
                )
            return range(first, last + 1)
    names = [server.name for server in fabric.servers]
    there_are = f"its hosts are {names[0]} to {names[-1]}" if names[1:] else f"its one host is {names[0]}"
    raise ScenarioError(f"--on {word}: fabric {fabric.name} has no such host", there_are)


def launch(
    fabric: Fabric,
    launcher: Launcher,
    hosts: Sequence[int],
    command: Sequence[str],
    *,
    per: Per | None = None,
    over: Over = "nics",
) -> Launch:
    """Return the processes that a launcher begins an application with.

    Parameters
    ----------
    fabric
        The hosts' GPUs and NICs.
    launcher
        Its name.
    hosts
        The servers that take part, in the order of their ranks.
    command
        The program and its arguments.
    per
        Whether there is a process per host or per GPU. By default per host with ``each``, per GPU with a
        launcher of ranks.
    over
        Whether OpenMPI is told to use the NICs' addresses or the hosts' own.

    Raises
    ------
    ScenarioError
        If ranks are asked for per host of a launcher that starts one process.
    """
    if launcher == "ssh" and per:
        raise ScenarioError("--launch ssh starts one process, so --per has no effect", "leave it out")
    if launcher == "ssh":
        (only,) = _on_each(fabric, hosts[:1], command)
        return Launch((_with(only, {"LIGHTRAIL_HOSTS": _names(fabric, hosts)}),))
    if launcher == "mpirun":
        return _mpirun(fabric, hosts, command, per or "gpu", over)
    usual: Per = "host" if launcher == "each" else "gpu"
    ranks = _on_each(fabric, hosts, command, per or usual)
    if launcher == "each":
        return Launch(tuple(ranks))
    first = fabric.servers[hosts[0]].name
    if launcher == "jax":
        return Launch(tuple(_with(rank, _of_jax(first)) for rank in ranks))
    return Launch(tuple(_with(rank, _of_torch(rank.env, first)) for rank in ranks))


def ranks_on(fabric: Fabric, host: int, per: Per) -> int:
    """Return how many processes a host has."""
    return fabric.servers[host].gpus if per == "gpu" else 1


def _on_each(
    fabric: Fabric, hosts: Sequence[int], command: Sequence[str], per: Per = "host"
) -> list[LaunchedProcess]:
    """Return a process per host or GPU, each with its rank."""
    places = [(host, local) for host in hosts for local in range(ranks_on(fabric, host, per))]
    nodes = Counter(host for host, _ in places)
    return [
        LaunchedProcess(
            host,
            _label(fabric, host, local, per),
            tuple(command),
            {
                "LIGHTRAIL_RANK": str(rank),
                "LIGHTRAIL_SIZE": str(len(places)),
                "LIGHTRAIL_LOCAL_RANK": str(local),
                "LIGHTRAIL_LOCAL_SIZE": str(nodes[host]),
                "LIGHTRAIL_NIC": _nic(fabric, host, local),
                "LIGHTRAIL_HOSTS": _names(fabric, hosts),
            },
        )
        for rank, (host, local) in enumerate(places)
    ]


def _names(fabric: Fabric, hosts: Sequence[int]) -> str:
    return ",".join(fabric.servers[host].name for host in hosts)


def _label(fabric: Fabric, host: int, local: int, per: Per) -> str:
    name = fabric.servers[host].name
    return f"{name}.{local}" if per == "gpu" and fabric.servers[host].gpus > 1 else name


def _nic(fabric: Fabric, host: int, local: int) -> str:
    """Return the name of the NIC beside a GPU of a host."""
    return f"nic{fabric.pinned_nic(fabric.gpu_offsets[host] + local).nic}"


def _with(process: LaunchedProcess, env: Mapping[str, str]) -> LaunchedProcess:
    return LaunchedProcess(process.host, process.label, process.argv, {**process.env, **env})


def _of_torch(env: Mapping[str, str], first: str) -> dict[str, str]:
    """Return the variables of ``torchrun`` for a rank (torch.distributed.elastic, Environment Variables)."""
    return {
        "RANK": env["LIGHTRAIL_RANK"],
        "WORLD_SIZE": env["LIGHTRAIL_SIZE"],
        "LOCAL_RANK": env["LIGHTRAIL_LOCAL_RANK"],
        "LOCAL_WORLD_SIZE": env["LIGHTRAIL_LOCAL_SIZE"],
        "MASTER_ADDR": first,
        "MASTER_PORT": str(PORT),
    }


def _of_jax(first: str) -> dict[str, str]:
    """Return the variables that ``jax.distributed.initialize`` reads, and collectives that cross the network.

    It is given the number of processes and the rank by its caller, which reads ``LIGHTRAIL_SIZE`` and
    ``LIGHTRAIL_RANK``.
    """
    return {
        "JAX_COORDINATOR_ADDRESS": f"{first}:{PORT}",
        "JAX_PLATFORMS": "cpu",
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    }


def _mpirun(fabric: Fabric, hosts: Sequence[int], command: Sequence[str], per: Per, over: Over) -> Launch:
    """Return OpenMPI's launcher on the first host, whose ranks are numbered host by host."""
    counts = {host: ranks_on(fabric, host, per) for host in hosts}
    places = [(host, local) for host, count in counts.items() for local in range(count)]
    slots = ",".join(f"{fabric.servers[host].name}:{count}" for host, count in counts.items())
    nics = ",".join(_nic(fabric, host, local) for host, local in places)
    as_a_rank = AS_A_RANK.format(nics=shlex.quote(nics), hosts=shlex.quote(_names(fabric, hosts)))
    options = ("--host", slots, "-np", str(len(places)), "--map-by", "slot", "--tag-output")
    argv = ("mpirun", *options, "sh", "-c", as_a_rank, "sh", *command)
    env = {"OMPI_MCA_btl_tcp_if_include": HOSTS_NETWORK} if over == "host" else {}
    process = LaunchedProcess(hosts[0], "mpirun", argv, env)
    return Launch((process,), tuple(_label(fabric, host, local, per) for host, local in places))
