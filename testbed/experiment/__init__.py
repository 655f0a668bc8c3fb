"""What is run: an experiment as one frozen value, and what follows from it."""
