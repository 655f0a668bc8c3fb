"""A training step as an experiment, what an iteration of it takes, and studies of such points."""
