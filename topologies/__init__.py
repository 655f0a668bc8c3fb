"""What is wired: immutable fabrics and their builders, no sockets."""
