"""Points of a study carried out in this process, as workers would."""

from collections.abc import Sequence

from testbed.study.computed import Call, Found


def found_of(points: Sequence[Call]) -> Found:
    """Return what each call returns."""
    return [call.carried_out() for call in points]
