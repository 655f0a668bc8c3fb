"""Mininet's CLI over a booted network."""
