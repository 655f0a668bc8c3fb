"""The core: the state of a run, what happens in it, and what follows."""
