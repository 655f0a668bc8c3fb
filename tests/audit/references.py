"""Runs over fluids beside references that share nothing with the core: equal in all of many drawn cases.

    .venv/bin/python -m tests.audit.references 3000

By turns circuits that are reconfigured, provisioned and flipped, event by event (`light_reference`); faults
that come and go, at every instant as their list says (`test_faulting`); schedules, slot by slot
(`slot_by_slot`); and what slots leave to packets, by their room. The first case that differs ends it with its
number, by which it is drawn again: ``references 1 1234`` runs one case, number 1234.
"""

import sys
import time
from collections.abc import Callable
from random import Random

import numpy as np

from controller.schedulers.registry import SCHEDULERS
from tests.audit.drawn_light import drawn_rest, light_changes
from tests.testbed.ocs_cases import DELAY_S, OCSES, experiment_of, partially
from tests.testbed.slot_by_slot import ends_s
from tests.testbed.test_failures import test_at_every_instant_all_is_as_the_faults_say as check_faults
from tests.testbed.test_light import check_ends
from tests.testbed.test_ocs_predict import predicted
from tests.testbed.test_rest import check_carried
from traffic.workloads.ocs_workloads import SCALED

CASES = 3000
MOST_SLOTS = 100
SLOTTED = tuple(name for name in SCHEDULERS if name not in ("bvn", "solstice"))
"""Schedulers but those whose messages end together with slots, where a picosecond decides which is last."""


def circuits(number: int) -> None:
    """Check when messages end whose circuits change."""
    random = Random(number)
    delay_s = random.uniform(0.001, 0.5), random.uniform(0.001, 0.5)
    check_ends(light_changes(random), delay_s, random.uniform(0.0, 0.1))


def slots(number: int) -> None:
    """Check when messages of a schedule end, as its slots come that are dark for drawn times before."""
    random = Random(number)
    experiment = experiment_of(random.choice(SLOTTED), random.choice(list(SCALED)), number)
    experiment = partially(experiment, random.random() < 0.5)
    delays_s = [[random.uniform(0.5, 2) * DELAY_S for _ in range(MOST_SLOTS)] for _ in range(OCSES)]
    assert np.allclose(predicted(experiment, delays_s)["end_s"], ends_s(experiment, delays_s), rtol=1e-9)


def rest(number: int) -> None:
    """Check what circuits carry of a demand, and what packets."""
    check_carried(drawn_rest(Random(number), "ecmp"))


REFERENCES: tuple[Callable[[int], None], ...] = (circuits, check_faults, slots, rest)


def main(cases: int = CASES, first: int = 0) -> None:
    """Run cases from a first one on; exit with 1 at the first that differs."""
    began_s = time.monotonic()
    for number in range(first, first + cases):
        check = REFERENCES[number % len(REFERENCES)]
        try:
            check(number)
        except Exception as error:
            print(f"\ncase {number} differs, of {check.__name__}: {type(error).__name__}: {error}")
            sys.exit(1)
        if (number + 1) % 100 == 0:
            print(f"\r{number + 1 - first} cases, {time.monotonic() - began_s:.0f} s", end="", flush=True)
    print(f"\nequal in {cases} cases")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
