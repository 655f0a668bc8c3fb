"""Modules that every host has on PYTHONPATH."""
