"""One experiment per file, each short enough to be read as the experiment's description."""
