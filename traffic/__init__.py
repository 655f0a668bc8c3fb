"""What is sent, over which path, and what it cost."""
