"""Tests of the scenarios: each by the model, at a small size."""
