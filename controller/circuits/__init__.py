"""Optical switches: circuits, programs, reconfigurations and their proof."""
