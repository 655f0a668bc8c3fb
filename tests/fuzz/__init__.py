"""Inputs that are mutated: what is no input of ours is refused in a sentence."""
