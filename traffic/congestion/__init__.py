"""Congestion control over datagrams: an algorithm a file, and the seam between algorithms and the engine."""
