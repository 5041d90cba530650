"""The sizes of a convolution of groups, and how exact its products are."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

Pair = list[int]

MOST = 2**31  # numbers of a group that 32 bits count


@dataclass(frozen=True)
class Shape:
    """The sizes of a convolution, up and down first."""

    groups: int
    samples: int
    channels: int
    outs: int
    size: tuple[int, int]  # of an image
    window: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    precision: str
    modern: bool  # whether the GPU's tensor cores know TF32 and bfloat16
    flipped: bool = False

    @classmethod
    def of(cls, x: Tensor, weight: Tensor, stride: Pair, padding: Pair, dilation: Pair) -> "Shape":
        """Read them off tensors."""
        groups, samples, channels, *size = x.shape
        pairs = (size, weight.shape[3:], stride, padding, dilation)
        image, window, step, room, gap = ((int(up), int(across)) for up, across in pairs)
        sizes = groups, samples, channels, weight.shape[1]
        modern = _exact(x.device) != "ieee"
        return cls(*sizes, image, window, step, room, gap, _precision(x), modern)

    @property
    def high(self) -> int:
        return self.window[0]

    @property
    def wide(self) -> int:
        return self.window[1]

    @property
    def places(self) -> tuple[int, int]:
        """How many places a patch has, up and down and from side to side."""
        height, width = (
            (length + 2 * room - gap * (k - 1) - 1) // step + 1
            for length, k, step, room, gap in zip(
                self.size, self.window, self.stride, self.padding, self.dilation, strict=True
            )
        )
        return height, width

    @property
    def pixels(self) -> int:
        """How many pixels of all outputs a group has."""
        return self.samples * self.places[0] * self.places[1]

    @property
    def numbers(self) -> int:
        """How many numbers a patch has."""
        return self.channels * self.high * self.wide

    @property
    def constants(self) -> dict[str, Any]:
        """What all kernels are told."""
        (height, width), (high, wide) = self.places, self.size
        pairs = {"S": self.stride, "P": self.padding, "D": self.dilation, "K": self.window}
        window = {
            name + axis: pair[k] for name, pair in pairs.items() for k, axis in ((0, "H"), (1, "W"))
        }
        images = {"S": self.samples, "C": self.channels, "H": high, "W": wide}
        outputs = {"OUT": self.outs, "HO": height, "WO": width}
        each = max(self.channels * high * wide, max(self.numbers, self.outs) * height * width)
        large = self.samples * each >= MOST
        run = 4 if height * width % 4 == 0 else 1
        precision = "tf32" if self.precision == "half" else self.precision
        return window | images | outputs | {"RUN": run, "LARGE": large, "PRECISION": precision}

    def turned(self) -> "Shape":
        """Return the convolution that takes gradients of outputs to those of inputs, stride 1."""
        edges = zip(self.window, self.padding, self.dilation, strict=True)
        up, left = (gap * (k - 1) - room for k, room, gap in edges)
        return replace(
            self, channels=self.outs, outs=self.channels, size=self.places, padding=(up, left),
            flipped=True,
        )  # fmt: skip


class Frame(NamedTuple):
    """Zeros around an image, and how large it is with them."""

    top: int
    left: int
    high: int
    across: int

    @property
    def pixels(self) -> int:
        return self.high * self.across

    @classmethod
    def of(cls, shape: Shape) -> "Frame":
        """Return what patches of an image want: its padding, as far as they reach."""
        ends = zip(shape.size, shape.places, shape.window, shape.stride, shape.padding, strict=True)
        found = ((p, p + max(length, (places - 1) * s + k - p)) for length, places, k, s, p in ends)
        (top, high), (left, across) = found
        return cls(top, left, high, across)

    @classmethod
    def back(cls, shape: Shape) -> "Frame":
        """Return what gradients of outputs want, for every pixel of an image to read its own."""
        found = []
        for axis in (0, 1):
            some = [read for read in reads(shape, axis) if read.reach]
            top = max([0, *(-read.first for read in some)])
            ends = (read.first + read.reach + read.pixels - 1 for read in some)
            found.append((top, top + max([shape.places[axis], *ends])))
        (top, high), (left, across) = found
        return cls(top, left, high, across)


class Reads(NamedTuple):
    """Which gradients of outputs the pixels a, a + stride, a + 2 stride, ... of an image read."""

    pixels: int  # how many of them there are
    first: int  # row of the gradients that the first of them reads first; the next the next
    reach: int  # how many rows each reads
    tap: int  # number of the window that belongs to the first; then every stride-th before it


def reads(shape: Shape, axis: int) -> list[Reads]:
    """Return what the pixels of every a read, up and down (0) or from side to side (1)."""
    length, k = shape.size[axis], shape.window[axis]
    s, p = shape.stride[axis], shape.padding[axis]
    found = []
    for a in range(min(s, length)):
        least = (a + p) % s
        reach = max(0, -(-(k - least) // s))
        first = (a + p) // s - (reach - 1)
        found.append(Reads(-(-(length - a) // s), first, reach, least + s * (reach - 1)))
    return found


def _precision(x: Tensor) -> str:
    """Return how exact products with x are to be: half, tf32, or one of the exact ways."""
    if x.dtype == torch.bfloat16:
        return "half"
    return _exact(x.device) if torch.get_float32_matmul_precision() == "highest" else "tf32"


@cache
def _exact(device: torch.device) -> str:
    """Return how exact products are computed: halves need tensor cores that know TF32."""
    if torch.version.hip is not None or device.type != "cuda":  # which is Triton's interpreter
        return "ieee"
    return "tf32x3" if torch.cuda.get_device_capability(device) >= (8, 0) else "ieee"
