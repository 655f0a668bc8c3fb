"""Failures in emulated training steps: what fails, and the report."""
