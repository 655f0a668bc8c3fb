"""All schedulers of the house, random demands for them, and an independent checker."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import ArrayLike

from controller.schedulers.bvn import bvn
from controller.schedulers.demand import Matrix
from controller.schedulers.eclipse import eclipse
from controller.schedulers.less import less
from controller.schedulers.rotor import rotor
from controller.schedulers.schedule import Schedule
from controller.schedulers.solstice import solstice
from controller.schedulers.spectra import spectra
from controller.schedulers.spectra_plus import spectra_plus

Scheduler = Callable[[ArrayLike, int, float], Schedule]

SCHEDULERS: dict[str, Scheduler] = {
    scheduler.__name__: scheduler
    for scheduler in (spectra, spectra_plus, eclipse, less, bvn, solstice, rotor)
}

ENTRIES = st.one_of(
    st.just(0.0),
    st.floats(1e-3, 1.0),
    st.sampled_from([0.25, 0.5, 1.0]),  # equal entries: ties in every sort and every matching
    st.floats(1e-12, 1e9),  # entries of very unequal size
)

DEMANDS = st.integers(1, 7).flatmap(lambda ports: arrays(np.float64, (ports, ports), elements=ENTRIES))


def replayed(plan: Schedule, ports: int) -> tuple[Matrix, float]:
    """Return what a schedule carries and when it ends, by stepping through it port by port."""
    carried = np.zeros((ports, ports))
    end = 0.0
    for slots in plan.switches:
        now = 0.0
        for permutation, weight in slots:
            outputs = [int(output) for output in permutation]
            lit = [output for output in outputs if output != -1]
            assert len(outputs) == ports
            assert len(set(lit)) == len(lit), "two circuits end in one port"
            assert set(lit) <= set(range(ports))
            assert weight > 0
            now += plan.delay + weight
            for source, destination in enumerate(outputs):
                if destination != -1:
                    carried[source, destination] += weight
        end = max(end, now)
    return carried, end
