"""Optical switches: circuits, programs and reconfigurations."""
