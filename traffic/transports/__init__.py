"""What moves bytes between two NICs: connections, engines, windows."""
