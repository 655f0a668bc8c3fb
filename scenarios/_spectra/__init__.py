"""Spectra's sweep on paper, and what it claims, for its scenario."""
