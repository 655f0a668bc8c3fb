"""A cluster that jobs share, and its shards (section 5.6)."""
