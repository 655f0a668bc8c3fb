"""The live backend: a booted network on a dilated clock."""
