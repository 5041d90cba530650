"""Whole numbers of a few bits each, side by side in bytes."""

import torch
from torch import Tensor


def pack(numbers: Tensor, width: int) -> Tensor:
    """Put numbers from 0 to 2ʷ - 1 into bytes along the last axis, the first in the lowest bits.

    >>> pack(torch.tensor([1, 2, 3]), 4)
    tensor([33,  3], dtype=torch.uint8)
    """
    if width % 8 == 0:
        kind = {8: torch.uint8, 16: torch.int16, 32: torch.int32}[width]
        return numbers.to(kind).contiguous().view(torch.uint8)
    if 8 % width == 0:
        return _joined(numbers.to(torch.uint8), width)
    places = torch.arange(width, device=numbers.device)
    bits = (numbers.unsqueeze(-1) >> places) & 1
    return _joined(bits.to(torch.uint8).flatten(-2), 1)


def _joined(numbers: Tensor, width: int) -> Tensor:
    each = 8 // width
    missing = -numbers.shape[-1] % each
    if missing:
        numbers = torch.nn.functional.pad(numbers, (0, missing))
    whole = numbers.reshape(*numbers.shape[:-1], -1, each)
    made = whole[..., 0].clone()
    for k in range(1, each):
        made |= whole[..., k] << (width * k)
    return made


def unpack(content: Tensor, count: int, width: int) -> Tensor:
    """Return so many numbers that ``pack`` put into bytes.

    >>> unpack(pack(torch.tensor([5, 0, 7]), 3), 3, 3).tolist()
    [5, 0, 7]
    """
    if width % 8 == 0:
        if width == 8:
            return content[..., :count]
        kind = {16: torch.int16, 32: torch.int32}[width]
        part = content[..., : count * width // 8]
        whole = part.clone(memory_format=torch.contiguous_format).view(kind)
        return whole.to(torch.int64).bitwise_and(2**width - 1)
    if 8 % width == 0:
        return _parted(content, width)[..., :count]
    bits = _parted(content, 1)[..., : count * width]
    places = torch.arange(width, device=content.device)
    whole = bits.reshape(*bits.shape[:-1], count, width).to(torch.int64)
    made: Tensor = (whole << places).sum(-1)
    return made


def _parted(content: Tensor, width: int) -> Tensor:
    mask = 2**width - 1
    parts = [(content >> (width * k)) & mask for k in range(8 // width)]
    return torch.stack(parts, dim=-1).flatten(-2)
