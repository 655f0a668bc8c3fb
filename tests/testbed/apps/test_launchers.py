"""Launchers: each process once, on its host, with the words and the environment that its peers expect."""

import subprocess

import pytest

from testbed.apps.launchers import LAUNCHERS, Launcher, hosts_named, launch
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.rail import rail_fabric

FABRIC = rail_fabric(4, 2)
"""Four hosts of two NICs and two GPUs."""


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (None, (0, 1, 2, 3)),
        ("h0", (0,)),
        ("h1-h3", (1, 2, 3)),
        ("h3,h0-h1", (3, 0, 1)),
        ("h0-h2, h1", (0, 1, 2)),
        ("h2-h2", (2,)),
    ],
)
def test_hosts_are_named_by_names_and_ranges(text: str | None, hosts: tuple[int, ...]) -> None:
    assert hosts_named(FABRIC, text) == hosts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h9-h2", "no such host; its hosts are h0 to h3"),
        ("h3-h2", "the range h3-h2 of --on ends before it begins; write h2-h3"),
        ("h4", "no such host"),
        ("0-3", "no such host"),
        (" , ", "names no host"),
        ("h0-", "no such host"),
    ],
)
def test_other_names_are_refused(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        hosts_named(FABRIC, text)


def test_a_fabric_of_one_host_has_no_range_of_them() -> None:
    with pytest.raises(ScenarioError, match=r"no such host; its one host is h0$"):
        hosts_named(rail_fabric(1, 1), "h1")


def test_names_may_have_hyphens() -> None:
    fabric = Fabric.from_json(FABRIC.to_json().replace('"h', '"node-'))
    assert hosts_named(fabric, "node-0-node-2") == (0, 1, 2)
    assert hosts_named(fabric, "node-1") == (1,)


def test_each_runs_a_command_once_on_each_host_or_once_per_gpu() -> None:
    begun = launch(FABRIC, "each", (2, 0), ("hostname", "-s"))
    assert [(each.host, each.label, each.argv) for each in begun.processes] == [
        (2, "h2", ("hostname", "-s")),
        (0, "h0", ("hostname", "-s")),
    ]
    assert [each.env["LIGHTRAIL_RANK"] for each in begun.processes] == ["0", "1"]
    per_gpu = launch(FABRIC, "each", (2, 0), ("hostname",), per="gpu")
    assert [each.label for each in per_gpu.processes] == ["h2.0", "h2.1", "h0.0", "h0.1"]
    assert [each.env["LIGHTRAIL_NIC"] for each in per_gpu.processes] == ["nic0", "nic1", "nic0", "nic1"]
    assert {each.env["LIGHTRAIL_SIZE"] for each in per_gpu.processes} == {"4"}


@pytest.mark.parametrize("launcher", ["each", "torchrun", "jax"])
def test_ranks_are_numbered_host_by_host(launcher: Launcher) -> None:
    begun = launch(FABRIC, launcher, (0, 1, 2, 3), ("train",), per="gpu").processes
    assert [int(each.env["LIGHTRAIL_RANK"]) for each in begun] == list(range(8))
    assert [int(each.env["LIGHTRAIL_LOCAL_RANK"]) for each in begun] == [0, 1] * 4
    assert [each.host for each in begun] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_torchrun_gives_what_torch_distributed_reads() -> None:
    last = launch(FABRIC, "torchrun", (1, 3), ("train",)).processes[-1]
    of_torch = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    assert [last.env[name] for name in of_torch] == ["3", "4", "1", "2", "h1", "29500"]


def test_jax_gives_the_coordinator_and_collectives_that_cross_the_network() -> None:
    for each in launch(FABRIC, "jax", (1, 3), ("train",)).processes:
        assert each.env["JAX_COORDINATOR_ADDRESS"] == "h1:29500"
        assert each.env["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] == "gloo"


def test_ssh_starts_one_process_on_the_first_host() -> None:
    (only,) = launch(FABRIC, "ssh", (2, 3), ("./all.sh",)).processes
    assert (only.host, only.label, only.argv, only.env["LIGHTRAIL_SIZE"]) == (2, "h2", ("./all.sh",), "1")
    with pytest.raises(ScenarioError, match="--per has no effect"):
        launch(FABRIC, "ssh", (2, 3), ("./all.sh",), per="gpu")


def test_mpirun_starts_a_rank_per_gpu_in_the_order_of_hosts() -> None:
    begun = launch(FABRIC, "mpirun", (1, 0), ("./all", "4"))
    (only,) = begun.processes
    assert only.host == 1
    assert only.argv[:5] == ("mpirun", "--host", "h1:2,h0:2", "-np", "4")
    assert only.argv[-2:] == ("./all", "4")
    assert begun.ranks == ("h1.0", "h1.1", "h0.0", "h0.1")
    assert launch(FABRIC, "mpirun", (1, 0), ("./all",), per="host").ranks == ("h1", "h0")


def test_mpirun_uses_the_hosts_own_addresses_where_it_is_told_to() -> None:
    (over_nics,) = launch(FABRIC, "mpirun", (0, 1), ("a",)).processes
    (over_host,) = launch(FABRIC, "mpirun", (0, 1), ("a",), over="host").processes
    assert over_nics.env == {}
    assert over_host.env == {"OMPI_MCA_btl_tcp_if_include": "172.16.0.0/12"}


def test_a_rank_of_mpirun_has_the_environment_of_other_launchers() -> None:
    told = "$LIGHTRAIL_RANK $LIGHTRAIL_SIZE $LIGHTRAIL_LOCAL_RANK $LIGHTRAIL_NIC $LIGHTRAIL_HOSTS"
    (only,) = launch(FABRIC, "mpirun", (0, 1), ("sh", "-c", f'echo "{told}"')).processes
    shell = list(only.argv[only.argv.index("sh") :])
    of_ompi = {"RANK": "3", "SIZE": "4", "LOCAL_RANK": "1"}
    env = {f"OMPI_COMM_WORLD_{name}": value for name, value in of_ompi.items()}
    said = subprocess.run(shell, env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, check=True)
    assert said.stdout == b"3 4 1 nic1 h0,h1\n"


def test_what_mpirun_passes_on_is_its_ranks_wherever_a_part_begins() -> None:
    begun = launch(FABRIC, "mpirun", (0, 1), ("a",), per="host")
    (only,) = begun.processes
    data = b"[1,1]<stdout>:hello: a\n[1,0]<stderr>:Mod[1,1]<stderr>:x\n[1,0]<stderr>:ule\n"
    assert list(begun.authors(only, data)) == [
        ("h1", b"hello: a\n", False),
        ("h0", b"Mod", True),
        ("h1", b"x\n", True),
        ("h0", b"ule\n", True),
    ]
    own = b"There are not enough slots\n"
    assert list(begun.authors(only, own)) == [("mpirun", own, None)]
    assert list(begun.authors(only, b"[1,7]<stdout>:who\n")) == [("mpirun", b"who\n", False)]


def test_what_any_other_process_writes_is_its_own_whatever_it_says() -> None:
    begun = launch(FABRIC, "each", (0, 1), ("a",))
    line = b"[1,1]<stdout>:hello\n"
    assert list(begun.authors(begun.processes[0], line)) == [("h0", line, None)]


@pytest.mark.parametrize("launcher", ["each", "torchrun", "jax", "ssh"])
def test_processes_know_the_hosts_that_take_part(launcher: Launcher) -> None:
    begun = launch(FABRIC, launcher, (3, 1), ("a",))
    assert {each.env["LIGHTRAIL_HOSTS"] for each in begun.processes} == {"h3,h1"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_labels_are_told_apart(launcher: Launcher) -> None:
    begun = launch(FABRIC, launcher, (0, 1, 2), ("a",))
    assert len(set(begun.labels)) == len(begun.labels) >= len(begun.processes)
