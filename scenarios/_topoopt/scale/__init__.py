"""TopoOpt at scale: 128 servers in the fluid model, and what interconnects cost (section 5)."""
