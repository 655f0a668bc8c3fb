"""Strategies of parallel training: which servers have which layers, the time that takes, and the search."""
