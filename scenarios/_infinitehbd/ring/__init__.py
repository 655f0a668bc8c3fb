"""Ring AllReduces of a TP group while its nodes die (InfiniteHBD, sections 4.2 and 5.2)."""
