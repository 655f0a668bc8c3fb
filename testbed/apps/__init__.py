"""Applications: programs that were not written for lightrail, run on the hosts of an emulated network."""
