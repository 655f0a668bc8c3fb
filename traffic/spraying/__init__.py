"""Spraying policies: which queue pair carries which chunk; one scheme per file."""
