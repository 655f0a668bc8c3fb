"""Bytes with a checksum behind them, so that what lasts is read only if it is what was written.

The last line of a file is JSON, ``{"name": ..., "sha256": ...}``, whose checksum is of all that precedes the
checksum itself: the name of the file too, so that files which were exchanged are found as well.
"""

from hashlib import sha256

from topologies.errors import ScenarioError

HEX = 64
"""Digits of a checksum."""
END = b'"}\n'


def with_checksum(content: bytes, name: str) -> bytes:
    """Return the bytes of a file: its content, and the line of its checksum.

    Parameters
    ----------
    content
        Any bytes; those of JSON make a file of JSON lines.
    name
        The name of the file: letters and digits.

    Examples
    --------
    >>> content_of(with_checksum(b"[1, 2]", "numbers"), "numbers")
    b'[1, 2]'
    """
    before = content + _line(name)
    return before + sha256(before).hexdigest().encode() + END


def content_of(data: bytes, name: str) -> bytes:
    """Return the content of a file; ScenarioError if the file is not what was written under its name."""
    before, line = data[: len(data) - HEX - len(END)], _line(name)
    if before.endswith(line) and before + sha256(before).hexdigest().encode() + END == data:
        return before[: len(before) - len(line)]
    raise ScenarioError(f"{name} is damaged: its checksum does not agree", "delete it, and it is made anew")


def _line(name: str) -> bytes:
    return f'\n{{"name": "{name}", "sha256": "'.encode()
