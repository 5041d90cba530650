"""Everything sections 2 to 4 of the paper say about a network, with certified error."""
