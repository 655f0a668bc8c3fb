"""What every host has on PYTHONPATH."""
