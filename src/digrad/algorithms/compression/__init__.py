"""Small messages: compressors, the mixer that uses them, and any method over it.

Read ``compressor`` first, then ``mixer``; ``methods`` has what the literature has names for.
"""
