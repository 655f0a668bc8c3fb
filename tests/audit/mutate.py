"""Mechanical mutants of what makes runs: how many of those that change a result the audit catches.

    .venv/bin/python -m tests.audit.mutate --mutants 200 --seed 1

A mutant differs in one place of one function: another comparison, another operator, a number one larger, a
condition turned round, a statement left out. It predicts the small runs (`tests.audit.cases`), each forked
off with its code in the place of the function's own. A mutant that raises, or does not end, shows by itself;
one whose tables are all as before changes nothing. Of the others it is printed whether the audit found some
run unsound, and for those that it missed, where they are.
"""

import argparse
import ast
import gc
import hashlib
import importlib
import os
import pickle
import random
import signal
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from testbed.model.predict import predict
from tests.audit.cases import small_runs
from topologies.errors import LightrailError
from traffic.tables import Tables

MUTATED = (
    "testbed.core.circuits",
    "testbed.core.computing",
    "testbed.core.failures",
    "testbed.core.job_graph",
    "testbed.core.lane_table",
    "testbed.core.lanes",
    "testbed.core.losing",
    "testbed.core.ocses",
    "testbed.core.ops",
    "testbed.core.placing",
    "testbed.core.record",
    "testbed.core.sending",
    "testbed.core.simulation",
    "testbed.core.state",
    "testbed.core.tables",
    "testbed.core.together",
    "testbed.core.views",
    "testbed.core.written",
    "testbed.model.backend",
    "testbed.model.choices",
    "testbed.model.gates",
    "testbed.model.nvlink",
    "testbed.model.ocses",
    "testbed.model.solved_once",
    "traffic.fluid.bundles",
    "traffic.fluid.choice",
    "traffic.fluid.maxmin",
    "traffic.fluid.network",
)
LONGEST_S = 60
"""A mutant that takes longer does not end."""
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
LEFT_OUT = (ast.Assign, ast.AugAssign, ast.Expr)
"""Statements that are left out, but for docstrings."""


def places(source: str) -> list[tuple[int, int]]:
    """Return where the functions of a module can be changed: the number of a node, and of a change to it."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {id(node) for function in functions for part in function.body for node in ast.walk(part)}
    return [
        (number, change)
        for number, node in enumerate(ast.walk(tree))
        if id(node) in inside
        for change in range(_changes(node))
    ]


def mutant(source: str, number: int, change: int) -> tuple[int, ast.Module]:
    """Return the line that a mutant of a module changes, and the module."""
    tree = ast.parse(source)
    node = next(each for index, each in enumerate(ast.walk(tree)) if index == number)
    line = getattr(node, "lineno", 0)
    _change(tree, node, change)
    return line, ast.fix_missing_locations(tree)


def _changes(node: ast.AST) -> int:
    """Return how many ways there are to change a node."""
    if isinstance(node, ast.Compare):
        return int(type(node.ops[0]) in COMPARISONS)
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        return int(type(node.op) in OPERATORS) + isinstance(node, ast.AugAssign)
    if isinstance(node, ast.Constant):
        return int(type(node.value) in (int, float))
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return int(isinstance(node, (ast.If, ast.IfExp, *LEFT_OUT)) and not is_text)


def _change(tree: ast.Module, node: ast.AST, change: int) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OPERATORS and not change:
        node.op = OPERATORS[type(node.op)]()
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        node.value = node.value + 1
    elif isinstance(node, (ast.If, ast.IfExp)):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    else:
        for parent in ast.walk(tree):
            for body in (getattr(parent, name, None) for name in ("body", "orelse")):
                if isinstance(body, list) and node in body:
                    body[body.index(node)] = ast.Pass()


def put(module: types.ModuleType, changed: ast.Module) -> None:
    """Give the functions of a module, wherever they are known, the code of a changed one."""
    code = compile(changed, str(module.__file__), "exec")
    found = {each.co_qualname: each for each in _codes(code)}
    for each in gc.get_objects():
        if isinstance(each, types.FunctionType) and each.__module__ == module.__name__:
            new = found.get(each.__qualname__)
            if new and len(new.co_freevars) == len(each.__code__.co_freevars):
                each.__code__ = new


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def digest(tables: Tables) -> str:
    """Return a short name that equal tables share."""
    state = hashlib.sha256()
    for name in ("messages", "spans", "legs", "events", "links", "light"):
        table: pd.DataFrame = getattr(tables, name)
        state.update(table.to_csv(index=False).encode())
    return state.hexdigest()


def outcomes() -> list[tuple[str, str, bool]]:
    """Return the digest of each small run by name, and whether it is unsound; rings coupled too."""
    found = []
    for name, experiment in small_runs():
        for couples in (False, True):
            run = predict(experiment, couples=couples)
            found.append((f"{name}, {couples}", digest(run.tables), bool(run.audit and run.audit.findings)))
    return found


def of_mutant(module: types.ModuleType, changed: ast.Module) -> object:
    """Return what comes of a mutant in a process of its own, a word if it raises or does not end."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        signal.alarm(LONGEST_S)
        os.close(reader)
        sys.stderr = sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # until the process ends
        try:
            put(module, changed)
            found: object = outcomes()
        except (Exception, RecursionError) as error:
            found = "refused" if isinstance(error, LightrailError) else "raised"
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(found, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else "did not end"


def main() -> None:
    """Try mutants, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    modules = [importlib.import_module(name) for name in MUTATED]
    sources = {module: Path(str(module.__file__)).read_text() for module in modules}
    found_places = [(module, *place) for module, source in sources.items() for place in places(source)]
    chosen = random.Random(asked.seed).sample(found_places, min(asked.mutants, len(found_places)))
    before = outcomes()
    counts: Counter[str] = Counter()
    for module, number, change in chosen:
        line, changed = mutant(sources[module], number, change)
        found = of_mutant(module, changed)
        if isinstance(found, list):
            same = [new[:2] for new in found] == [old[:2] for old in before]
            word = "changes nothing" if same else "caught" if any(bad for *_, bad in found) else "missed"
        else:
            word = str(found)
        counts[word] += 1
        if word == "missed":
            print(f"missed: {module.__name__}:{line}", flush=True)
    changing = counts["caught"] + counts["missed"]
    print(f"{len(found_places)} places, {len(chosen)} mutants: {dict(counts)}")
    print(f"caught of those that change a result: {counts['caught'] / max(changing, 1):.2f}")


if __name__ == "__main__":
    main()
