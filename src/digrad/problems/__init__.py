"""What the nodes minimise together."""
