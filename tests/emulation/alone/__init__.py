"""Tests of emulation that measure time or rates, or run scenarios: nothing runs beside them."""
