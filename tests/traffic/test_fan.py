"""Fans: they owe what their definition says, in a few numbers, and can be written into a job's file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import DemandError
from traffic.collectives.fan import Fan, owed_in_fan
from traffic.collectives.own_pattern import check_lowered
from traffic.collectives.pattern import bytes_between
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job
from traffic.job_file import job_document, job_of_document


@st.composite
def fans(draw: st.DrawFn, gpus: int = 6) -> Fan:
    """Draw a fan between some of six GPUs."""
    sides = st.lists(st.integers(0, gpus - 1), min_size=1, unique=True)
    owners, members = draw(st.tuples(sides, sides).filter(lambda both: len({*both[0], *both[1]}) > 1))
    size, booleans = draw(st.integers(1, 1000)), st.booleans()
    return Fan(tuple(owners), tuple(members), size, draw(booleans), draw(booleans))


@given(fans())
def test_a_fan_is_the_messages_between_its_owners_and_members(fan: Fan) -> None:
    listed = [
        (member, owner, fan.bytes) if fan.back else (owner, member, fan.bytes)
        for owner in fan.owners
        for member in fan.members
        if owner != member
    ]
    as_listed = bytes_between(PointToPoint(tuple(listed)), 6)
    owed, written = owed_in_fan(fan), np.zeros((6, 6), dtype=np.int64)
    np.add.at(written, (owed.source, owed.destination), owed.least)
    assert (bytes_between(fan, 6) == as_listed).all()
    assert (written == as_listed).all()
    assert owed.total == as_listed.sum()
    assert fan.gpus == {*fan.owners, *fan.members}
    assert fan.name == ("many to one" if fan.back else "one to many")
    check_lowered(fan)


@given(fans(), st.permutations(range(6)))
def test_a_renumbered_fan_is_between_the_other_gpus(fan: Fan, gpus: list[int]) -> None:
    moved = fan.renumbered(gpus)
    assert (bytes_between(moved, 6)[np.ix_(gpus, gpus)] == bytes_between(fan, 6)).all()
    assert moved.renumbered(np.argsort(gpus).tolist()) == fan


@given(fans())
def test_it_goes_as_one_only_where_it_is_asked_twice(fan: Fan) -> None:
    assert len(fan.lower()) == len(fan.lower().moves)
    coupled = fan.lower(coupled=True)
    assert len(coupled) == (1 if fan.coupled_as_one else len(coupled.moves))
    assert coupled.coupled is fan.coupled_as_one


@given(fans())
def test_a_job_with_a_fan_is_read_as_it_was_written(fan: Fan) -> None:
    job = Job("fan", 6, (Collective("x", fan),))
    assert job_of_document(job_document(job), "a file") == job


@pytest.mark.parametrize(
    ("fan", "said"),
    [
        (((), (0,), 1), "list one GPU or more on either side"),
        (((0, 0), (1,), 1), "each once"),
        (((0,), (1, -1), 1), "each once"),
        (((0,), (0,), 1), "a fan of 1 bytes between 1 GPUs"),
        (((0,), (1,), 0), "a fan of 0 bytes between 2 GPUs"),
    ],
)
def test_a_fan_that_sends_nothing_or_twice_is_refused(
    fan: tuple[tuple[int, ...], tuple[int, ...], int], said: str
) -> None:
    with pytest.raises(DemandError, match=said):
        Fan(*fan)
