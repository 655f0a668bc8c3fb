"""What RailS claims, for its scenarios."""
