"""How much a file may hold, and its bytes as text."""

from digrad.base.errors import FileFormatError, message

LARGEST_FILE = 4 << 30  # bytes, decompressed: a small archive can claim to hold anything
LARGEST_TEXT = 1 << 30  # bytes; reading text takes ten times its size


def check_bytes(count: int, most: int | None = None) -> None:
    """Refuse more than ``most`` bytes, or more than any file may hold."""
    most = LARGEST_FILE if most is None else most
    if count > most:
        raise FileFormatError(f"more than {most / 2**30:.3g} GiB of data")


def text_of(raw: bytes) -> str:
    """Decode UTF-8 with any line ends, or say which line is no text."""
    check_bytes(len(raw), LARGEST_TEXT)
    wrong = raw.find(b"\0")
    try:
        if wrong < 0:
            return raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        wrong = error.start
    line = raw.count(b"\n", 0, wrong) + 1
    raise FileFormatError(
        message(f"line {line}: byte 0x{raw[wrong]:02x} is no text", hint="save it as UTF-8")
    )
