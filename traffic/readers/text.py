"""What all text formats share: a file's text, its name, its numbers, and errors that name file and line."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from topologies.errors import TraceError
from topologies.printable import printable
from topologies.strict_json import first_of, json_value

MAX_TEXT_BYTES = 256 << 20
"""Largest text file that is read at once [bytes]: a matrix of 4,096 GPUs has about 200 MB."""
MAX_GPUS = 4096
"""Most GPUs that a file may speak of; the matrix is dense."""
MAX_BYTES = 1 << 53
"""Most bytes that one cell may hold, exact in a float [bytes]."""

Form = TypeVar("Form")


@dataclass(frozen=True, slots=True)
class Taken:
    """What is taken of a file that has training steps; by default the first step, and all of it."""

    gpus: int | None = None
    """How many GPUs there are, where the file does not say."""
    alike: int | None = None
    """Of collectives, or layers, that are equal at most so many, the first ones; None for all."""
    least_bytes: int = 0
    """Smaller collectives do not count as something to do; they are among the phases of a step that counts
    [bytes]."""
    in_pairs: bool = False
    """Whether a dispatch of expert-parallel ranks is unlike their combine, which follows it and may have the
    same numbers."""


ALL = Taken()


def text_of(path: Path) -> str:
    """Return the text of a file.

    Raises
    ------
    TraceError
        If it is absent, no regular file, unreadable, larger than ``MAX_TEXT_BYTES``, empty, or no text.
    """
    require_file(path)
    size = path.stat().st_size
    if size > MAX_TEXT_BYTES:
        raise TraceError(f"{path} is too large: {size} bytes", f"give at most {MAX_TEXT_BYTES} bytes")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TraceError(f"read {path}: {error.strerror}", "give a file that can be read") from error
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{path} is not a text file: byte {error.start} is not UTF-8", "give a file of a known format"
        ) from error
    if "\0" in text:
        raise TraceError(f"{path} is not a text file: it holds a zero byte", "give a file of a known format")
    if not text.strip():
        raise TraceError(f"{path} is empty", "give a file with something in it")
    return text


def json_of(path: Path, form: TypeAdapter[Form], expected: str) -> Form:
    """Return what a JSON file holds; TraceError, with the place, if it is of another form."""
    text = text_of(path)
    try:
        return form.validate_python(json_value(text))
    except TraceError as error:
        raise TraceError(f"{path}: {error.sentence}", f"give {expected}") from error
    except ValidationError as error:
        raise TraceError(f"{path}, {first_of(error)}", f"give {expected}") from error


def trace_name(path: Path) -> str:
    """Return the name of what a file holds: no workload's begins with this word, whatever the file's."""
    return f"trace {file_name(path)}"


def file_name(path: Path) -> str:
    """Return the name of a file as a text: bytes of no character are escaped, as tables take texts only."""
    return printable(path.absolute().name)


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, by which binary formats are known; TraceError if it is unreadable."""
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError as error:
        raise TraceError(f"read {path}: {error.strerror}", "give a file that can be read") from error


def files_of(path: Path) -> list[Path]:
    """Return the files that a path stands for: itself, or those in the directory that it is, by name.

    Raises
    ------
    TraceError
        If there is no such file, or the directory cannot be read or holds none but hidden ones.
    """
    try:
        inside = sorted(path.iterdir()) if path.is_dir() else None
    except (OSError, ValueError) as error:
        raise TraceError(f"look for {str(path)!r}: {error}", "give the path of a file") from error
    if inside is None:
        require_file(path)
        return [path]
    files = [file for file in inside if file.is_file() and not file.name.startswith(".")]
    if not files:
        raise TraceError(f"{path} is a directory without files", "give the path of a file")
    return files


def require_file(path: Path) -> None:
    """Refuse what is not an existing regular file with a TraceError."""
    try:
        if path.is_file():
            return
        is_directory = path.is_dir()
    except (OSError, ValueError) as error:
        raise TraceError(f"look for {str(path)!r}: {error}", "give the path of a file") from error
    if is_directory:
        raise TraceError(f"{path} is a directory", "give the path of a file in it")
    raise TraceError(f"{path} does not exist or is not a regular file", "check the path")


def bad_line(path: Path, line: int, found: str, expected: str) -> TraceError:
    """Return the error that a line, counted from 1, is not what it should be."""
    return TraceError(f"{path}, line {line}: found {_short(found)}, expected {expected}")


def count_of(
    path: Path, line: int, text: str, *, expected: str, least: int = 0, most: int = MAX_BYTES
) -> int:
    """Return a whole number in a range, written in any way that float reads.

    Raises
    ------
    TraceError
        If the text is no number, not whole, or out of the range.
    """
    try:
        exact = float(text)  # whole numbers are exact up to MAX_BYTES
    except ValueError:
        exact = math.nan
    if not (math.isfinite(exact) and least <= exact <= most and exact == int(exact)):
        raise bad_line(path, line, text, f"{expected}: a whole number from {least} to {most}")
    return int(exact)


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_square(path: Path, rows: Sequence[Sequence[object]], lines: Sequence[int]) -> None:
    """Refuse rows that are no square matrix with a TraceError; ``lines`` says where each row is."""
    size = len(rows)
    if size > MAX_GPUS:
        raise TraceError(f"{path} has {size} rows", f"give at most {MAX_GPUS} GPUs")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != size:
            raise bad_line(
                path, line, f"{len(row)} numbers", f"{size}, because the matrix has {size} rows and is square"
            )


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
