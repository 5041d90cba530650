"""Nodes that are joined by their links alone: authenticated, encrypted, one connection each.

Who is a member and how to reach it, connections and what travels on them, the engine on top, the
hub that decides who takes part. No algorithms and no optimizer. Read ``membership`` first: it is
the file that all nodes share; ``engine`` is a mixer like the simulator.
"""
