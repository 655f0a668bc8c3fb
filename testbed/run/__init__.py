"""A run: the experiment, the runner and its two backends, and whether to believe what came of it."""
