"""What hostile inputs are made of: bytes changed here and there, and values that fit nowhere."""

import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

TOKENS = [
    *(b"-1", b"nan", b"inf", b"1e309", b"9" * 25, b"9" * 5000, b"\xff", b"\0", b"\x1b[2J", b"<"),
    *(b"&a;", b"\n", b"\r", b"#", b",", b" ", b"(", b"[" * 5000, b"{", b'"', b"=", b"true"),
    *("\u202e".encode(), b"\xef\xbb\xbf", b"../../etc/passwd", b"$tensor", b"null", b"0x10"),
]
WHOLE = [
    0,
    1,
    2,
    3,
    5,
    8,
    16,
    33,
    1000,
    4096,
    10**5,
    3 * 10**5,
    10**7,
    10**9,
    2**31,
    2**63,
    10**400,
]
NUMBERS = [-1, -(2**63), 1.5, 0.3, 1e-300, 1e300, math.nan, math.inf, -math.inf, -0.0]
OTHERS: list[Any] = [
    *(None, True, False, "", "x", "4", "\x1b[2J", "nan", b"x", [], [1], [[1, 2], [3]], (), (1, 2)),
    *({}, {"a": 1}, set(), range(3), object(), int, len, complex(1, 1), Path("/nowhere/x.txt")),
    *(
        np.int64(4),
        np.float64(0.5),
        np.float32(2),
        np.bool_(True),
        np.array([1, 2]),
        np.zeros((2, 2)),
    ),
    *(np.array("x"), np.array([math.nan, 1]), np.eye(3), np.array([None, 1]), np.int8(-1)),
    *(
        torch.tensor(3),
        torch.zeros(2, 2),
        torch.tensor([math.nan]),
        torch.ones(1, dtype=torch.bool),
    ),
    *(torch.float32, torch.int64, torch.device("cpu"), "cuda:99", lambda: 3, iter(()), Ellipsis),
]


class SilentlyAcceptedError(Exception):
    """Damage that was taken for what it is not."""


def nasty(draw: Random) -> Any:
    """A value of any kind, of any size."""
    return draw.choice(draw.choice([WHOLE, NUMBERS, OTHERS]))


def edited(raw: bytes, draw: Random) -> bytes:
    """Change a few bytes of a file: flipped, replaced, cut off, doubled, moved."""
    for _ in range(draw.randint(1, 3)):
        k = draw.randrange(len(raw) + 1)
        end = min(len(raw), k + draw.choice([1, 1, 2, 8, 100]))
        raw = draw.choice(
            [
                lambda k=k, raw=raw: flipped(raw, draw),
                lambda k=k, raw=raw: raw[:k],
                lambda k=k, raw=raw, end=end: raw[:k] + draw.choice(TOKENS) + raw[end:],
                lambda k=k, raw=raw, end=end: raw[:k] + draw.randbytes(end - k) + raw[end:],
                lambda k=k, raw=raw, end=end: (
                    raw[:k] + raw[k:end] * draw.choice([0, 2, 50]) + raw[end:]
                ),
                lambda k=k, raw=raw: raw[k:] + raw[:k],
            ]
        )()
    return raw


def flipped(raw: bytes, draw: Random) -> bytes:
    """Flip one bit."""
    if not raw:
        return b"\1"
    k = draw.randrange(len(raw))
    return raw[:k] + bytes([raw[k] ^ (1 << draw.randrange(8))]) + raw[k + 1 :]
