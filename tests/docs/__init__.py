"""The documentation: its code runs, its links lead somewhere, and its site builds."""
