"""InfiniteHBD's experiments by topic, for the scenarios `infinitehbd_*`."""
