"""With how many examples properties are tried: with few by default, with all under ``-m slow``."""

from hypothesis import settings

FEW, ALL = "few examples", "all examples"
"""Hypothesis' profiles: that of every run, and that of ``-m slow``."""


def examples(few: int, whole: int) -> int:
    """Return with how many examples a property is tried now: few, or under ``-m slow`` all."""
    return whole if settings.get_current_profile_name() == ALL else few
