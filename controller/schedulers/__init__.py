"""Schedulers of parallel optical circuit switches, one paper per file, pure functions on matrices."""
