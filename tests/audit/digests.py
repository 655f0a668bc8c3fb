"""Digests of runs, a word for each: of their tables over fluids and, late as a network is, of all orders too.

    .venv/bin/python -m tests.audit.digests > before.txt

The same command after a change shows which runs differ: ``diff before.txt after.txt``. A small run has a line
for itself and one for its coupled flows, a drawn one has one. Over a backend that is late (`AsLive`) each has
two more: ``orders``, of what its backend was ordered in which order, and ``live``, with the times of that,
what was reported, and the tables. All of it for one run, a line each, is printed by

    .venv/bin/python -m tests.audit.digests "changes 5"

Lanes, paths, ports and OCSes are named, as their numbers say only in which order they came.
"""

import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain

import pandas as pd

from testbed.core.run import Run
from testbed.model.predict import predict
from tests.audit.as_live import REPORTS, AsLive, Scale
from tests.audit.carried_out import Case, case_of
from tests.audit.cases import small_runs
from tests.audit.drawn_faults import drawn_faults
from tests.audit.drawn_jobs import drawn_jobs
from tests.audit.drawn_light import drawn_light
from topologies.errors import LightrailError
from traffic.tables import Tables

NAMES = {"lane": "lanes", "path": "paths", "ocs": "ocses", "node": "nodes", "port": "ports"}
"""The names that numbers of these columns stand for."""
TABLES = ("messages", "legs", "spans", "events", "light", "orders", "links", "faults")
LATE, COARSE = 20, 100
"""A lag is this part of what a leg takes, a grain that of the largest leg."""
ALONE = Scale(10**9, 1000)
"""Of a run that does not end over fluids."""


def digest(tables: Tables, *words: str) -> str:
    """Return a word that differs where tables or words do."""
    state = sha256("\n".join(words).encode())
    for name in TABLES:
        table: pd.DataFrame = getattr(tables, name)
        for column, names in NAMES.items():
            if column in table:
                named = [str(each) for each in getattr(tables, names)]
                table = table.assign(**{column: [named[at] if at >= 0 else "" for at in table[column]]})
        state.update(table.to_csv(index=False).encode())
    return state.hexdigest()[:16]


def drawn() -> Iterator[tuple[str, Case]]:
    """Yield the runs that are not among the small ones."""
    return chain(drawn_light(), drawn_faults(), drawn_jobs())


def cases() -> Iterator[tuple[str, Case]]:
    """Yield all runs that are not coupled."""
    small = ((name, case_of(experiment)) for name, experiment in small_runs())
    return chain(small, drawn())


def late(case: Case, *, creeps: bool = False) -> tuple[AsLive, Run | LightrailError]:
    """Return a run's late backend, and what comes of it there: tables, or an error."""
    found = came_of(case)
    backend = AsLive(case.fluid(), scale_of(found.tables) if isinstance(found, Run) else ALONE, creeps=creeps)
    return backend, came_of(case, backend)


def came_of(case: Case, backend: AsLive | None = None) -> Run | LightrailError:
    """Return a run over fluids by default, or the error with which it ended."""
    try:
        return case.over(backend or case.fluid())
    except LightrailError as error:
        return error


def scale_of(tables: Tables) -> Scale:
    """Return how late and coarse a network would be that carries a run like this."""
    legs = tables.legs
    if not len(legs):
        return ALONE
    took_ps, largest = (legs["last_ps"] - legs["first_ps"]).median(), legs["bytes"].max()
    return Scale(max(int(took_ps) // LATE, 1000), max(int(largest) // COARSE, 1))


def words_of(found: Run | LightrailError, words: Sequence[str] = ()) -> str:
    """Return the digest of what came of a run; an error's kind counts, and not its text."""
    if isinstance(found, Run):
        return digest(found.tables, *words)
    return digest(Tables(), *words, type(found).__name__)


def lines() -> Iterator[str]:
    """Yield the digest and the name of each run."""
    for name, experiment in small_runs():
        for couples in (False, True):
            tables = predict(experiment, couples=couples).tables
            yield f"{digest(tables)}  {name}{', coupled' if couples else ''}"
    for name, case in drawn():
        yield f"{words_of(came_of(case))}  {name}"
    for name, case in cases():
        backend, found = late(case)
        ordered = [f"{what} {words}" for _, what, words in backend.record if what != REPORTS]
        yield f"{digest(Tables(), *ordered)}  {name}, orders"
        yield f"{words_of(found, [' '.join(map(str, row)) for row in backend.record])}  {name}, live"


def main(*names: str) -> None:
    """Print the digest of each run, or all that was ordered in those that are named."""
    if not names:
        for line in lines():
            print(line)
    for name, case in cases():
        if name in names:
            backend, found = late(case)
            for at_ps, what, words in backend.record:
                print(f"{at_ps:>18,} {what}: {words}")
            print(found if isinstance(found, LightrailError) else f"ended after {found.iteration_s:g} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
