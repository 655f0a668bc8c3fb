"""The model: fluids over the same links, on a clock of its own."""
