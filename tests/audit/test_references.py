"""References beside the core: a few cases of each are equal, and a model that is wrong is found."""

from collections.abc import Callable

import pytest

from testbed.core import failures
from testbed.model import ocses
from testbed.model.ocses import FluidLight
from tests.audit import references
from tests.audit.references import REFERENCES, main
from traffic.clock import ps

Patch = pytest.MonkeyPatch


def test_the_first_cases_of_each_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    main(cases=2 * len(REFERENCES))
    assert capsys.readouterr().out.endswith("equal in 8 cases\n")


def nothing_is_kept(patch: Patch) -> None:
    patch.setattr(FluidLight, "_kept", lambda *_: ())


def dark_for_half_the_time(patch: Patch) -> None:
    dark_s = FluidLight._dark_s
    patch.setattr(FluidLight, "_dark_s", lambda *given: dark_s(*given) / 2)


def the_last_effect_alone(patch: Patch) -> None:
    states = failures.states_of_links
    patch.setattr(failures, "states_of_links", lambda fabric, faults: states(fabric, list(faults)[-1:]))


def slots_half_as_long(patch: Patch) -> None:
    patch.setattr(ocses, "ps", lambda lasts_s: ps(lasts_s / 2))


@pytest.mark.parametrize(
    ("mutant", "number"),
    [(nothing_is_kept, 0), (the_last_effect_alone, 1), (dark_for_half_the_time, 2), (slots_half_as_long, 3)],
)
def test_a_case_that_differs_ends_it_with_its_number(
    mutant: Callable[[Patch], None], number: int, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutant(monkeypatch)
    check = REFERENCES[number]
    monkeypatch.setattr(references, "REFERENCES", (check,))
    with pytest.raises(SystemExit, match="1"):
        main(cases=20, first=number)
    assert f"differs, of {check.__name__}" in capsys.readouterr().out
