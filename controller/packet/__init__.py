"""Packet switches: rules, routes, hashes, and changes without a wrong moment."""
