"""The front door: what ``import digrad as dg`` offers beyond what one room can.

Each function turns what people have into what the rooms take, and calls them; nothing is
computed here. Read ``simulate`` first.
"""
