"""Tensors in files, in the safetensors format: a header of JSON, then plain bytes.

Eight bytes with the header's length, the header, the data. Nothing is ever unpickled; a
checksum over the header and the data finds damage. Other programs can read these files.

Nested values that a user stores along with a run become JSON, their tensors stand beside it. JSON
knows neither tuples nor tables with numbers as keys, and states of schedulers have both; they are
written as tables with one key that begins with a dollar sign.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import torch
from torch import Tensor

from digrad.base.errors import FileFormatError, ParameterError
from digrad.base.files import DEEPEST, create, json_of
from digrad.base.machine import check_memory

Tensors = dict[str, Tensor]
KINDS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in KINDS.items()}
LONGEST_HEADER = 100 << 20  # the format's own limit
PLACEHOLDER = "????????"  # stands for the checksum while it is taken
CHUNK = 1 << 22  # numbers handled at a time


def encode(value: Any, where: str, tensors: Tensors, deep: int = 0) -> Any:
    """Return a value as JSON has it, and put its tensors, flat, into ``tensors``."""
    if deep > DEEPEST // 3:  # a pair of a table takes three levels
        what = f"{where[:60]} ... is too deep in lists and tables, or lies in itself"
        raise ParameterError(what, hint=f"store at most {DEEPEST // 3} levels")
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
    raise ParameterError(what, hint=hint)


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


def write_tensors(
    path: Path, tensors: Mapping[str, Sequence[Tensor]], about: Mapping[str, str]
) -> None:
    """Write tensors, each given as 1-D pieces that follow each other, and bring them to disk.

    The caller moves the file's folder to its place: until then it does not count.
    """
    header: dict[str, Any] = {}
    place = checksum = 0
    # Wide numbers first, so that all lie at multiples of their size.
    order = sorted(tensors, key=lambda name: -tensors[name][0].element_size())
    for name in order:
        pieces = tensors[name]
        count = sum(len(piece) for piece in pieces)
        end = place + count * pieces[0].element_size()
        kind = _kind(name, pieces[0].dtype)
        header[name] = {"dtype": kind, "shape": [count], "data_offsets": [place, end]}
        place = end
        for part in _bytes(pieces):
            checksum = crc32(part, checksum)
    text = _header_text(header, about, checksum)
    with create(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            for part in _bytes(tensors[name]):
                file.write(part)
        file.flush()
        os.fsync(file.fileno())


def _kind(name: str, dtype: torch.dtype) -> str:
    if dtype in _NAMES:
        return _NAMES[dtype]
    known = ", ".join(str(one).removeprefix("torch.") for one in KINDS.values())
    hint = f"store it as one of {known}; complex numbers by torch.view_as_real"
    raise ParameterError(f"{name} has type {dtype}, which cannot be stored", hint=hint)


def _header_text(header: Mapping[str, Any], about: Mapping[str, str], checksum: int) -> bytes:
    """Return the header as it is written, with a checksum that covers itself and the data."""
    text = json.dumps({**header, "__metadata__": {**about, "crc32": PLACEHOLDER}}).encode()
    text += b" " * (-len(text) % 8)
    return text.replace(
        _checksum_entry(PLACEHOLDER), _checksum_entry(f"{crc32(text, checksum):08x}")
    )


def _checksum_entry(checksum: str) -> bytes:
    return f'"crc32": "{checksum}"'.encode()  # within a text of the header quotes are escaped


def _bytes(pieces: Sequence[Tensor]) -> Iterator[memoryview]:
    for piece in pieces:
        for start in range(0, len(piece), CHUNK):
            part = piece.detach()[start : start + CHUNK]
            yield part.cpu().contiguous().view(torch.uint8).numpy().data


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file, and the texts that were stored with them.

    One of the texts is ``crc32``, the checksum.
    """
    try:
        with path.open("rb") as file:
            text, length = _header(file.read(8), file, os.fstat(file.fileno()).st_size)
            said = f"the {length:,} bytes of {path.name}"
            check_memory(2.0 * length, said, error=FileFormatError)
            data = bytearray(length)
            if file.readinto(data) != length:
                raise FileFormatError("it ends too early")
        header, about = _parse_header(text, data)
        return {name: _tensor(name, entry, data) for name, entry in header.items()}, about
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        what = f"{path} cannot be read: {str(error).split(chr(10))[0]}"
        raise FileFormatError(what, hint="delete its folder to use an older one") from error


def stored_checksum(path: Path) -> str:
    """Return the checksum that a file says it has, without reading its data."""
    with path.open("rb") as file:
        text, _ = _header(file.read(8), file, os.fstat(file.fileno()).st_size)
    return str(json_of(text)["__metadata__"]["crc32"])


def _header(size: bytes, file: BinaryIO, total: int) -> tuple[bytes, int]:
    length = int.from_bytes(size, "little")
    if len(size) < 8 or not 2 <= length <= min(LONGEST_HEADER, total - 8):
        raise FileFormatError("it has no header")
    return file.read(length), total - 8 - length


def _parse_header(text: bytes, data: bytearray) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the header says of the tensors, and the texts with them, if all is whole."""
    header = json_of(text)
    about = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(about, dict) or not all(isinstance(x, str) for x in about.values()):
        raise FileFormatError("its header is no table")
    seal = about.get("crc32", "")
    unsealed = text.replace(_checksum_entry(seal), _checksum_entry(PLACEHOLDER))
    if f"{crc32(unsealed, crc32(data)):08x}" != seal:
        raise FileFormatError("its checksum is wrong")
    return header, about


def _tensor(name: str, entry: Mapping[str, Any], data: bytearray) -> Tensor:
    dtype, (count,), (start, end) = KINDS[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if not all(type(x) is int for x in (count, start, end)):
        raise FileFormatError(f"the place of {name} is no number")
    fits = 0 <= start <= end <= len(data) and start % dtype.itemsize == 0
    if not fits or end - start != count * dtype.itemsize:
        raise FileFormatError(f"{name} lies outside the file")
    if not count:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype, count=count, offset=start)
