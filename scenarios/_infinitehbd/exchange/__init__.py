"""All-to-alls between nodes: binary exchange and rings (InfiniteHBD, section 7 and appendix G)."""
