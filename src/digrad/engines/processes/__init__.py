"""Nodes spread over the ranks of a ``torch.distributed`` group.

How bytes travel is the business of ``engines.transports``. Read ``engine`` first: ``Processes`` is
a mixer like the simulator; the other modules are what it needs to agree, exchange, and fail well.
"""
