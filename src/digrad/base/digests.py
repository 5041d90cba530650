"""Checksums that tie results to the networks, data and code that made them."""

import hashlib
import json
from typing import Any

import numpy as np


def text_digest(value: Any) -> str:
    """Return a checksum of nested plain values, whatever the order of their keys.

    >>> text_digest({"a": 1, "b": [2.5]}) == text_digest({"b": [2.5], "a": 1})
    True
    """
    return bytes_digest(json.dumps(value, sort_keys=True).encode())


def bytes_digest(content: bytes) -> str:
    """Return a checksum of bytes."""
    return hashlib.sha256(content).hexdigest()[:32]


def arrays_digest(*arrays: Any) -> str:
    """Return a checksum of numbers, their types and shapes."""
    total = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(array.data if array.size else b"")
    return total.hexdigest()[:32]
