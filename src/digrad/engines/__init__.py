"""Where the nodes live: all here (``simulator``), or spread over processes (``processes``).

An engine offers the verbs of a mixer and nothing of algorithms. Read ``simulator`` first.
"""
