"""What every room stands on: errors, files written whole, text for a terminal, random numbers.

Nothing here knows what a network or an algorithm is, and nothing here may import another room.
Read ``errors`` first: every text that a user sees when something is wrong is laid out there.
"""
