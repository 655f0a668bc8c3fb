"""Figures that `scenarios/bench.py` measures, a file a topic; those of papers are in `_*/bench.py`."""
