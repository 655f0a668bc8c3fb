"""The audit: whether what a run's tables say is possible, from the tables, the job and the fabric alone."""
