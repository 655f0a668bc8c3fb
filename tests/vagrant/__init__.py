"""The machine: the install script and what stands around it."""
