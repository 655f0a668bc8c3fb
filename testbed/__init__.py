"""Where it runs, and whether the result can be believed."""
