"""The controller as a process: OpenFlow, its northbound, and its client."""
