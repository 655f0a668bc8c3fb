"""The report of emulated training steps, and of their circuits."""
