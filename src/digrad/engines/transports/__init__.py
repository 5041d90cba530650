"""How rows get from one process to another: over ``torch.distributed``, or through shared memory.

Nothing here knows weights, algorithms or who is to blame. Read ``transport`` first: it is what
each way implements.
"""
