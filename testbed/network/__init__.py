"""The booted network: links, switches, what they are set to, and what is seen on the wire."""
