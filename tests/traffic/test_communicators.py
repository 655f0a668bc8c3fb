"""Communicators: which collectives are of one, and the ports of their connections."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import TraceError
from topologies.fabric import Nic
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.ring import Ring
from traffic.communicators import Communicators
from traffic.compose import MOST_NODES, one_after_another, placed, side_by_side
from traffic.job import Collective, Job
from traffic.job_file import read_job, write_job
from traffic.spraying.policy import ENTROPIES, QueuePair
from traffic.transports.connections import PORT_SETS, is_service, ports
from traffic.workloads.synthetic import uniform


def ring(name: str, *gpus: int, kind: str = "all-reduce", communicator: str = "") -> Collective:
    operation = {"all-reduce": "all-reduce", "all-gather": "all-gather"}[kind]
    return Collective(name, Ring((gpus,), 64, operation), communicator=communicator)  # type: ignore[arg-type]


NODES = (
    ring("sum", 0, 1),
    ring("gather", 1, 0, kind="all-gather"),
    Collective("experts", AllToAll(uniform(2))),
    ring("others", 2, 3),
    ring("named", 0, 1, communicator="pp"),
    ring("elsewhere", 2, 3, communicator="pp"),
)
JOB = Job("some", 4, NODES)


def numbers(job: Job, *, shared: bool = False) -> dict[str, int]:
    found = Communicators(job, shared=shared)
    return {node.name: found.number(node) for node in job.collectives}


def test_one_kind_between_the_same_gpus_is_one_communicator_and_so_is_one_name() -> None:
    assert list(numbers(JOB).values()) == [0, 0, 1, 2, 3, 3]
    assert set(numbers(JOB, shared=True).values()) == {0}


def test_nodes_that_come_later_and_are_alike_share_and_others_are_numbered_on() -> None:
    found = Communicators(JOB)
    assert found.number(ring("again", 0, 1)) == 0
    assert found.number(ring("new", 1, 2)) == 4


def test_repeated_parts_keep_communicators_and_parts_side_by_side_have_their_own() -> None:
    twice = one_after_another("twice", [replace(JOB, name="a"), replace(JOB, name="b")])
    assert set(numbers(twice).values()) == set(numbers(JOB).values())
    jobs = [replace(placed(JOB, range(first, first + 4), of=8), name=f"{first}") for first in (0, 4)]
    both = side_by_side("both", jobs)
    assert len(set(numbers(both).values())) == 2 * len(set(numbers(JOB).values()))


def test_files_name_communicators(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    write_job(JOB, path)
    assert read_job(path) == JOB
    assert path.read_text().count('"communicator": "pp"') == 2
    path.write_text(path.read_text().replace('"communicator": "pp"', '"communicator": ""'))
    with pytest.raises(TraceError, match=r"nodes\[4\]\.communicator"):
        read_job(path)
    path.write_text(
        '{"format": "lightrail job 1", "name": "j", "gpus": 2, "nodes":'
        ' [{"kind": "compute", "name": "c", "duration_s": 1, "communicator": "pp"}]}'
    )
    with pytest.raises(TraceError, match=r"communicator"):
        read_job(path)


ENDS = Nic(0, 0), Nic(1, 0)


@given(
    st.lists(
        st.tuples(st.integers(0, ENTROPIES - 1), st.integers(0, MOST_NODES - 1)),
        unique=True,
        min_size=2,
        max_size=50,
    )
)
def test_no_two_queue_pairs_between_two_nics_have_the_same_ports(which: list[tuple[int, int]]) -> None:
    found = [ports(QueuePair(*ENDS, *each)) for each in which]
    assert len(set(found)) == len(which)
    assert all(source < 1 << 16 and is_service(service) for source, service in found)
    assert not any(is_service(source) for source, _ in found)


def test_the_first_communicators_share_a_service_port_and_number_0_has_the_entropy_alone() -> None:
    pairs = [QueuePair(*ENDS, *each) for each in product((0, ENTROPIES - 1), range(PORT_SETS))]
    assert {ports(pair)[1] for pair in pairs} == {5000}
    assert ports(QueuePair(*ENDS, 7)) == (20007, 5000)
    assert ports(QueuePair(*ENDS, 7, PORT_SETS)) == (20007, 5001)
