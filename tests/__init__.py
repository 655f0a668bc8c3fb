"""The tests, one folder per room; `tests/emulation` needs namespaces, all else runs anywhere."""
