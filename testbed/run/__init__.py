"""A run: the experiment, the kernel and its two backends, and whether to believe what came of it."""
