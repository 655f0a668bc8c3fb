"""Digests of predicted runs: the tables of each small run, as one word.

Lanes, paths and OCSes are named, as their numbers say only in which order they came.

    .venv/bin/python -m tests.audit.digests > before.txt

The same command after a change shows which runs differ: ``diff before.txt after.txt``.
"""

import hashlib

import pandas as pd

from testbed.model.predict import predict
from tests.audit.cases import small_runs
from traffic.tables import Tables

NAMES = {"lane": "lanes", "path": "paths", "ocs": "ocses", "node": "nodes", "port": "ports"}
"""What numbers of these columns are of."""
TABLES = ("messages", "legs", "spans", "events", "light", "orders", "links", "faults")


def digest(tables: Tables) -> str:
    """Return a word that differs where tables do."""
    state = hashlib.sha256()
    for name in TABLES:
        table: pd.DataFrame = getattr(tables, name)
        for column, names in NAMES.items():
            if column in table:
                words = [str(each) for each in getattr(tables, names)]
                table = table.assign(**{column: [words[at] if at >= 0 else "" for at in table[column]]})
        state.update(table.to_csv(index=False).encode())
    return state.hexdigest()[:16]


def main() -> None:
    """Print the digest of each run, rings step by step and coupled."""
    for name, experiment in small_runs():
        for couples in (False, True):
            run = predict(experiment, couples=couples)
            print(f"{digest(run.tables)}  {name}{', coupled' if couples else ''}")


if __name__ == "__main__":
    main()
