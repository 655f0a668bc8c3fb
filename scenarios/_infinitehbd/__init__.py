"""InfiniteHBD's fault study, for its scenario."""
