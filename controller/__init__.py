"""Who forwards, and which circuits are lit."""
