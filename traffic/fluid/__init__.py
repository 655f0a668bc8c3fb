"""Fluids: max-min fair rates over links that change."""
