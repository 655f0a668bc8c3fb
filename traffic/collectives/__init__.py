"""Patterns of collectives: who sends what to whom, and which message waits for which."""
