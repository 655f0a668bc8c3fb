"""Demands: synthetic ones, models, and where they are placed."""
