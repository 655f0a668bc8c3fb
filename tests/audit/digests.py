"""Digests of predicted runs: messages, legs, spans and light of each small run, as one word.

    .venv/bin/python -m tests.audit.digests > before.txt

The same command after a change shows which runs differ: ``diff before.txt after.txt``.
"""

import hashlib

import pandas as pd

from testbed.run.predict import predict
from tests.audit.cases import small_runs
from traffic.tables import Tables

TABLES = ("messages", "legs", "spans", "light")


def digest(tables: Tables) -> str:
    """Return a word that differs where tables do."""
    state = hashlib.sha256()
    for name in TABLES:
        table = getattr(tables, name)
        table = table.assign(circuits=table["circuits"].map(repr)) if "circuits" in table else table
        state.update(pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes())
    return state.hexdigest()[:16]


def main() -> None:
    """Print the digest of each run, rings step by step and coupled."""
    for name, experiment in small_runs():
        for couples in (False, True):
            run = predict(experiment, couples=couples)
            print(f"{digest(run.tables)}  {name}{', coupled' if couples else ''}")


if __name__ == "__main__":
    main()
