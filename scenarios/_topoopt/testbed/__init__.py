"""TopoOpt's testbed of 12 servers (section 6)."""
