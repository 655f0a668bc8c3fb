"""Mechanical mutants of the fluid network and of spraying: which of them the unit tests of their files catch.

    .venv/bin/python -m tests.traffic.mutate --mutants 200 --seed 1

A mutant differs in one place of one function (`tests.audit.mutate`). The tests run in a process of their own,
forked off with its code in the place of the function's own, up to the first that fails. It is printed how
many are caught, and of those that are not where they are: one may be as good as what it was made of.
"""

import argparse
import ast
import importlib
import os
import random
import signal
import sys
import types
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.audit.mutate import mutant, places, put
from tests.tools import CHECKOUT

PROACTIVE = ("test_spraying", "test_kept")
REACTIVE = ("test_reactive", "test_spray", "test_rehearsal", "test_kept")
TESTS = {
    "fluid.network": ("test_fluid_network",),
    "spraying.checks": ("test_spraying", "test_reactive"),
    "spraying.connections": PROACTIVE,
    "spraying.ecmp": PROACTIVE,
    "spraying.entropies": PROACTIVE,
    "spraying.minrtt": REACTIVE,
    "spraying.optimal": PROACTIVE,
    "spraying.plb": REACTIVE,
    "spraying.policy": ("test_spraying", *REACTIVE),
    "spraying.pxn": PROACTIVE,
    "spraying.rails": PROACTIVE,
    "spraying.rehearsal": REACTIVE,
    "spraying.reps": REACTIVE,
    "spraying.spray": REACTIVE,
    "spraying.states": REACTIVE,
    "spraying.subflows": REACTIVE,
}
"""The tests of each module of traffic that is mutated."""
FIRST_FAILURE = "first failure"
"""Hypothesis' profile: as quick tests, without looking for a simpler failure or remembering it."""
LONGEST_S = 180
"""A mutant under which the tests take longer does not end."""


def caught(module: types.ModuleType, changed: ast.Module, tests: tuple[str, ...]) -> bool:
    """Return whether a test fails, or does not end, with the code of a changed module."""
    if not (child := os.fork()):
        signal.alarm(LONGEST_S)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        put(module, changed)
        files = [str(CHECKOUT / "tests" / "traffic" / f"{name}.py") for name in tests]
        options = ["-x", "-q", "--no-cov", "-p", "no:cacheprovider", "-p", "no:randomly", "--assert=plain"]
        os._exit(pytest.main([*options, f"--hypothesis-profile={FIRST_FAILURE}", *files]))
    return os.waitpid(child, 0)[1] != 0


def main() -> None:
    """Try mutants, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", choices=TESTS, help="mutate this one alone")
    asked = parser.parse_args()
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(FIRST_FAILURE, deadline=None, max_examples=30, phases=phases, database=None)
    names = [asked.module] if asked.module else TESTS
    modules = {name: importlib.import_module(f"traffic.{name}") for name in names}
    sources = {name: Path(str(module.__file__)).read_text() for name, module in modules.items()}
    found_places = [(name, *place) for name, source in sources.items() for place in places(source)]
    chosen = random.Random(asked.seed).sample(found_places, min(asked.mutants, len(found_places)))
    for name, module in modules.items():
        if caught(module, ast.parse(sources[name]), TESTS[name]):
            sys.exit(f"the tests of {name} fail without a mutant; run them first")
    counts: Counter[str] = Counter()
    for name, number, change in chosen:
        line, changed = mutant(sources[name], number, change)
        word = "caught" if caught(modules[name], changed, TESTS[name]) else "missed"
        counts[word] += 1
        if word == "missed":
            print(f"missed: {modules[name].__name__}:{line}, change {change} of node {number}", flush=True)
    print(f"{len(found_places)} places, {len(chosen)} mutants: {dict(counts)}")


if __name__ == "__main__":
    main()
