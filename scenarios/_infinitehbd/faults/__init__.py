"""GPUs wasted around faulty nodes, jobs that wait, and costs (InfiniteHBD, sections 6.2 and 6.5)."""
