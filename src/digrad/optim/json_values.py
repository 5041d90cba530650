"""What a user stores along with a run: nested values as JSON, tensors beside it.

JSON knows neither tuples nor tables with numbers as keys, and states of schedulers have
both; they are written as tables with one key that begins with a dollar sign.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from digrad.base.errors import FileFormatError, ParameterError, message
from digrad.base.files import DEEPEST

Tensors = dict[str, Tensor]


def encode(value: Any, where: str, tensors: Tensors, deep: int = 0) -> Any:
    """Return a value as JSON has it, and put its tensors, flat, into ``tensors``."""
    if deep > DEEPEST // 3:  # a pair of a table takes three levels
        what = f"{where[:60]} ... is too deep in lists and tables, or lies in itself"
        raise ParameterError(message(what, hint=f"store at most {DEEPEST // 3} levels"))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        tensors[where] = value.detach().reshape(-1)
        return {"$tensor": where, "shape": list(value.shape)}
    if isinstance(value, list | tuple):
        items = [encode(item, f"{where}.{k}", tensors, deep + 1) for k, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping):
        pairs = [
            (key, encode(item, f"{where}.{key}", tensors, deep + 1)) for key, item in value.items()
        ]
        if all(isinstance(key, str) and not key.startswith("$") for key, _ in pairs):
            return dict(pairs)
        return {"$pairs": [[encode(key, where, tensors, deep + 1), item] for key, item in pairs]}
    what = f"{where} is a {type(value).__name__}, which cannot be stored"
    hint = "store numbers, texts, tensors, and lists, tuples and tables of them"
    raise ParameterError(message(what, hint=hint))


def decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value that was encoded.

    Raises:
        FileFormatError: Nothing that ``encode`` returns looks like that.
    """
    try:
        return _decode_value(value, tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        said = f"{type(error).__name__}: {error}".split("\n")[0]
        raise FileFormatError(f"a stored value is damaged: {said}") from error


def _decode_value(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode_value(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tensor" in value:
        return tensors[value["$tensor"]].view(torch.Size(value["shape"]))
    if "$tuple" in value:
        return tuple(_decode_value(item, tensors) for item in value["$tuple"])
    if "$pairs" in value:
        return {
            _decode_value(key, tensors): _decode_value(item, tensors)
            for key, item in value["$pairs"]
        }
    return {key: _decode_value(item, tensors) for key, item in value.items()}
