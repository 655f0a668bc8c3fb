"""AICB's logs and workloads: titles, the sizes of groups, and what is left out."""

from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traffic.test_datasets import present
from tests.traffic.trace_files import AICB_END, AICB_HEADER, aicb_row, written
from topologies.errors import TraceError
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.ring import Ring
from traffic.job import Compute, Job
from traffic.readers.aicb import aicb_phases, read_aicb
from traffic.readers.detect import read_step, read_trace
from traffic.readers.text import MAX_GPUS, Taken
from traffic.workloads.datasets import A100_LOG

GROUPS = ("tp_group", "dp_group", "pp_group")


def csv(directory: Path, *rows: str, title: str = "") -> Path:
    return written(directory, "\n".join(filter(None, [title, AICB_HEADER, *rows])), "log.csv")


def reduced(*sizes: object) -> list[str]:
    """Return a row of a group of each kind, by its size."""
    return [aicb_row("all_reduce", group, 64, size) for group, size in zip(GROUPS, sizes, strict=False)]


def exchange(size: int, stage: str = "forward.MoE") -> str:
    """Return a row of an all-to-all between two expert-parallel ranks."""
    return aicb_row("all_to_all", "ep_group", size, 2, stage=stage)


def exchanged(job: Job) -> list[int]:
    """Return how many bytes each rank splits in each all-to-all."""
    patterns = [node.pattern for node in job.collectives]
    return [int(each.demand.matrix[0].sum()) for each in patterns if isinstance(each, AllToAll)]


def with_additional(row: str, word: object) -> str:
    """Return a row that has a word in the column ``additional``."""
    return row.replace("None,None,,", f"None,None,{word},", 1)


def stage(number: int, *ranks: int) -> str:
    return f"[ pp_stage{number}: [{', '.join(f'rank{rank}' for rank in ranks)}] ]"


SIZES = st.tuples(st.integers(2, 4), st.integers(2, 4), st.integers(2, 4))


@settings(deadline=None)
@given(SIZES, st.sets(st.sampled_from(range(3))), st.booleans())
def test_an_unknown_size_follows_from_the_others_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, sizes: tuple[int, int, int], unknown: set[int], titled: bool
) -> None:
    rows = reduced(*(None if place in unknown else size for place, size in enumerate(sizes)))
    gpus = prod(sizes)
    title = f"[rank0 ~ rank{gpus - 1}]" if titled else ""
    path = csv(tmp_path_factory.getbasetemp(), *rows, title=title)
    if len(unknown) > 1:
        with pytest.raises(TraceError, match=r"does not say the sizes of \w+_group and \w+_group"):
            read_step(path, gpus=gpus)
        return
    job = read_step(path, gpus=gpus)
    rings = [node.pattern for node in job.collectives if isinstance(node.pattern, Ring)]
    assert [len(ring.rings[0]) for ring in rings] == [size for size in sizes for _ in range(gpus // size)]
    for place in unknown:
        assert f"{GROUPS[place]} has no size: {sizes[place]}, of {gpus} GPUs" in job.note


def test_a_group_of_one_gpu_is_left_out_and_not_counted(tmp_path: Path) -> None:
    empty = aicb_row("all_reduce", "dp_group", 0, 4)
    phases = aicb_phases(csv(tmp_path, *reduced(1, 4), empty))
    assert phases.note == (
        "AICB log log.csv, step 1 of 1: 1 of 3 collectives, tp 1 dp 4 ep 1 pp 1; "
        "left out: all_reduce tp_group of one GPU (1), all_reduce dp_group of 0 bytes (1)"
    )
    with pytest.raises(TraceError, match="has its collectives in groups of one GPU"):
        read_step(csv(tmp_path, *reduced(1, 1)))
    with pytest.raises(TraceError, match="expert all-to-alls in groups of one GPU"):
        read_trace(csv(tmp_path, *reduced(4, 1), aicb_row("all_to_all", "ep_group", 64)))
    with pytest.raises(TraceError, match="holds no step with expert all-to-alls"):
        read_trace(csv(tmp_path, *reduced(2, 4), aicb_row("all_to_all", "ep_group", 0)))


def test_a_title_is_read_past_and_its_ranks_are_those_of_the_groups(tmp_path: Path) -> None:
    exchange = aicb_row("all_to_all", "ep_group", 64, 2)
    for read in (read_step, read_trace):
        job = read(csv(tmp_path, *reduced(4, 2), exchange, title="[rank0 ~ rank7]"))
        assert job.gpus == 8
    for title, said in (
        ("[rank0 ~ rank15]", "names 16 ranks, and its groups are tp 4, dp 2, pp 1"),
        ("[rank0, rank1, rank1, rank3]", "names a rank twice"),
    ):
        with pytest.raises(TraceError, match=said):
            read_step(csv(tmp_path, *reduced(4, 2), title=title))


def test_the_first_pipeline_stage_stands_for_all(tmp_path: Path) -> None:
    rows = [*reduced(2, 1, 2), aicb_row("isend", "pp_group", 64, 1)]
    parts = [
        csv(tmp_path, *rows, title=stage(0, 0, 1)).read_text(),
        csv(tmp_path, *rows, title=stage(1, 2, 3)).read_text(),
    ]
    phases = aicb_phases(written(tmp_path, "\n".join(parts), "log.csv"))
    assert phases.layout.pp == 2
    assert [phase.kind for phase in phases.phases] == ["tp", "pp"]
    assert "; the first of 2 pipeline stages stands for all; left out: " in phases.note
    assert "isend pp_group (1)" in phases.note
    assert aicb_phases(written(tmp_path, parts[1], "log.csv")).layout.gpus == 4, "of one stage"
    with pytest.raises(TraceError, match="as a later line is one"):
        aicb_phases(written(tmp_path, "\n".join([csv(tmp_path, *rows).read_text(), parts[1]]), "log.csv"))
    with pytest.raises(TraceError, match="has 2 titles, not of pipeline stages"):
        aicb_phases(written(tmp_path, "\n".join(parts).replace("pp_stage", ""), "log.csv"))


def test_all_to_alls_of_a_stage_name_what_they_leave_out(tmp_path: Path) -> None:
    product = aicb_row("computation", "all", "((4, 1), (1, 4))", None, 3)
    path = csv(tmp_path, *reduced(2, 2, 2), product, aicb_row("all_to_all", "ep_group", 64, 2))
    job = read_aicb(path)
    assert job.gpus == 4
    assert job.note.endswith(
        "groups of 2; one of 2 pipeline stages; left out: all_reduce tp_group (1), "
        "all_reduce dp_group (1), all_reduce pp_group (1), computation all (1)"
    )


def test_tensors_are_gathered_as_lists_are(tmp_path: Path) -> None:
    rows = [aicb_row(call, "dp_group", 64, 4) for call in ("all_gather_into_tensor", "reduce_scatter_tensor")]
    assert [phase.call for phase in aicb_phases(csv(tmp_path, *rows)).phases] == [
        "all-gather",
        "reduce-scatter",
    ]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([f"{aicb_row('all_reduce', 'dp_group', 64, 4)[:-1]}3"], "line 2: found 'the count 3', expected 1"),
        ([aicb_row("barrier", "all", 0, 16), *reduced(2, 4)], "names 16 ranks"),
        (reduced(3, None), "has tp_group of 3, pp_group of 1, and there are 8 GPUs; take a multiple of 3"),
        ([*reduced(2, 4), aicb_row("all_reduce", "ep_dp_group", 64)], "the size of ep_dp_group"),
        ([*reduced(2, 4), aicb_row("all_reduce", "ep_dp_group", 64, 3)], "in groups of 3 alike"),
    ],
)
def test_sizes_that_cannot_be_are_refused(tmp_path: Path, rows: list[str], said: str) -> None:
    with pytest.raises(TraceError) as error:
        aicb_phases(csv(tmp_path, *rows), Taken(gpus=8))
    assert said in str(error.value)


BYTES = st.lists(st.integers(1, 999), min_size=1, max_size=4)


@settings(deadline=None)
@given(BYTES, st.lists(BYTES, min_size=1, max_size=3), st.sampled_from(["init", "warmup", ""]), st.data())
def test_the_step_is_the_epoch_behind_set_up_whatever_is_asked_for(
    tmp_path_factory: pytest.TempPathFactory,
    setup: list[int],
    steps: list[list[int]],
    stage: str,
    data: st.DataObject,
) -> None:
    epochs = [
        [exchange(size, stage) for size in setup],
        *([exchange(size) for size in step] for step in steps),
    ]
    path = csv(tmp_path_factory.getbasetemp(), *(row for epoch in epochs for row in (*epoch, AICB_END)))
    least = data.draw(st.integers(0, max(steps[0])))
    every, large = read_trace(path, gpus=2), read_step(path, gpus=2, least_bytes=least)
    assert exchanged(every) == steps[0]
    assert exchanged(large) == [size for size in steps[0] if size >= least]
    for job in (every, large):
        assert f"step 1 of {len(steps)}: {len(steps[0])} of {len(steps[0])} " in job.note
        skipped = f"of {stage}" if stage else "without a stage"
        assert f"; set-up left out: rows {skipped} ({len(setup)}); " in job.note


def test_steps_are_counted_as_the_file_has_them(tmp_path: Path) -> None:
    gathers = aicb_row("all_gather", "tp_group", 8, 1)
    setup = exchange(7, "init.model_setup")
    path = csv(tmp_path, setup, AICB_END, AICB_END, gathers, AICB_END, exchange(9), AICB_END, gathers)
    job = read_trace(path, gpus=2)
    assert exchanged(job) == [9]
    assert "step 2 of 3: 1 of 1 all-to-alls" in job.note


def test_rows_of_set_up_are_no_step_without_ends_of_epochs(tmp_path: Path) -> None:
    setup = [exchange(7, "warmup"), exchange(8, "init._allgather_params")]
    for read in (read_step, read_trace):
        job = read(csv(tmp_path, *setup, exchange(9, "test_step")), gpus=2)
        assert exchanged(job) == [9]
        assert "; set-up left out: rows of warmup (1), rows of init (1); " in job.note
        for ends in ([], [AICB_END]):
            with pytest.raises(TraceError, match="holds set-up alone, of 2 rows; give a training step"):
                read(csv(tmp_path, *setup, *ends), gpus=2)


def test_a_step_without_collectives_that_are_large_enough_is_refused(tmp_path: Path) -> None:
    sizes = (99, 5, 50)
    path = csv(tmp_path, *(row for size in sizes for row in (exchange(size), AICB_END)))
    for least, where in ((50, "50 bytes or more before step 2; take"), (51, "51 bytes or more; take")):
        with pytest.raises(TraceError, match=f"holds no step with collectives of {where} smaller ones"):
            read_step(path, gpus=2, least_bytes=least)
    assert exchanged(read_step(path, gpus=2, least_bytes=5)) == [5]
    with pytest.raises(TraceError, match="of 1 bytes or more; give a training step with collectives"):
        read_step(csv(tmp_path, exchange(0)), gpus=2)


def test_the_a100_step_is_the_same_whatever_is_asked_for() -> None:
    whole, large = (read_step(present(A100_LOG), least_bytes=least) for least in (0, 10**6))
    assert "step 1 of 10: 847 of 848 collectives" in whole.note
    assert large.note == f"{whole.note}; left out: collectives under 1e+06 bytes (137)"
    names = {node.name for node in whole.nodes}
    assert len(names) > len(large.nodes)
    assert {node.name for node in large.nodes} < names


@pytest.mark.parametrize("is_log", [True, False])
def test_what_follows_does_not_wait_for_a_collective_that_overlaps(tmp_path: Path, *, is_log: bool) -> None:
    reduce, gather = (
        aicb_row(call, "dp_group", 64, 2, 0 if is_log else None) for call in ("all_reduce", "all_gather")
    )
    product = with_additional(aicb_row("computation", "all", "((4, 1), (1, 4))", None, 3), None)
    job = read_step(csv(tmp_path, gather, with_additional(reduce, "overlap"), product, gather))
    first, beside, compute, last = job.nodes
    assert isinstance(compute, Compute)
    assert compute.duration_s == pytest.approx(3e-3 if is_log else 3e-9)
    assert beside.after == compute.after == (first.name,)
    assert last.after == (compute.name,)
    unit = "ms, as in a log" if is_log else "ns, as in a workload that was not run"
    assert job.note.endswith(
        f"; overlapping what follows: all_reduce dp_group (1); times of computes read as {unit}"
    )


@pytest.mark.parametrize("word", ["overlap", "eager"])
def test_a_word_beside_a_collective_that_is_not_read_is_named(tmp_path: Path, word: str) -> None:
    rows = [with_additional(exchange(8), word), exchange(9), with_additional(exchange(9), None)]
    assert read_trace(csv(tmp_path, *rows), gpus=2).note.endswith(f"; not read: additional {word} (1)")
    assert ("; not read: additional eager (1)" in read_step(csv(tmp_path, *rows), gpus=2).note) == (
        word == "eager"
    )


@settings(deadline=None)
@given(st.lists(st.sampled_from(["", "None", "0", "x"]), min_size=1, max_size=4))
def test_columns_that_are_not_aicbs_are_named_where_they_have_values(
    tmp_path_factory: pytest.TempPathFactory, values: list[str]
) -> None:
    rows = [f"{AICB_HEADER},priority", *(f"{exchange(8)},{value}" for value in values)]
    path = written(tmp_path_factory.getbasetemp(), "\n".join(rows), "log.csv")
    said = sum(value in {"0", "x"} for value in values)
    for read in (read_step, read_trace):
        note = read(path, gpus=2).note
        assert note.endswith(f"; not read: column priority ({said})") == bool(said)
        assert ("not read" in note) == bool(said)


@pytest.mark.parametrize("column", AICB_HEADER.split(","))
def test_a_column_twice_is_refused(tmp_path: Path, column: str) -> None:
    text = "\n".join([f"{AICB_HEADER},{column}", f"{exchange(8)},1"])
    for read in (read_step, read_trace):
        with pytest.raises(TraceError, match=f"line 1: found 'the column {column} twice'"):
            read(written(tmp_path, text, "log.csv"), gpus=2)


SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=4)


@settings(deadline=None)
@given(SPANS, st.sampled_from(["~", " ~ "]))
def test_a_title_names_the_ranks_of_all_its_ranges(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[tuple[int, int]], to: str
) -> None:
    named, ranks = list[str](), 0
    for gap, size in gaps:
        named.append(f"rank{ranks + gap}" + f"{to}rank{ranks + gap + size - 1}" * (size > 1))
        ranks += gap + size
    sizes = sum(size for _, size in gaps)
    title = f"[{', '.join(named)}]"
    path = csv(tmp_path_factory.getbasetemp(), *reduced(1, max(sizes, 2)), title=title)
    if sizes > 1:
        assert read_step(path).gpus == sizes
    else:
        with pytest.raises(TraceError, match="names 1 ranks, and its groups are tp 1, dp 2, pp 1"):
            read_step(path)


@pytest.mark.parametrize(
    ("title", "said"),
    [
        (f"[rank0 ~ rank{MAX_GPUS}]", "names 4097 ranks in its titles; give at most 4096"),
        ("[rank0 ~ rank300000000]", "names 300000001 ranks in its titles; give at most 4096"),
        (f"[rank0 ~ rank{2**53}]", "names 9007199254740993 ranks in its titles; give at most 4096"),
        (f"[rank0 ~ rank{'9' * 5000}]", "line 1: found '99999"),
        ("[rank7 ~ rank0]", "line 1: found 'rank7 ~ rank0', expected the lower rank first"),
        ("[rank0 ~ rank3, rank2]", "names a rank twice"),
    ],
)
def test_ranks_that_cannot_be_are_refused_at_once(tmp_path: Path, title: str, said: str) -> None:
    with pytest.raises(TraceError) as error:
        read_step(csv(tmp_path, *reduced(1, 8), title=title))
    assert said in str(error.value)
    assert len(str(error.value)) < 300
