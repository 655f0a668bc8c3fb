"""Plots are drawn where a test is marked `drawn`, and blank elsewhere."""

from tests.blank import blank_plots

__all__ = ["blank_plots"]
