"""Congestion control: each algorithm against a reference written apart from it, and on one queue."""
