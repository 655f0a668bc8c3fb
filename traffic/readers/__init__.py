"""Readers of the files that users bring, one format per file."""
