"""How rows get from one process to another: over the wire, or through shared memory.

Nothing here knows weights or algorithms. Read ``courier`` first: it chooses between the two.
"""
