"""Functions behind a user's scripts and behind the command lightrail (docs/howto/python.md)."""
