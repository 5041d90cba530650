"""Where the nodes live."""
