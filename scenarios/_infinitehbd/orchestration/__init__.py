"""Jobs placed around faulty nodes, and what of their traffic leaves its ToR (InfiniteHBD, section 6.4)."""
