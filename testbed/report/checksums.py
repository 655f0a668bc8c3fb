"""Checksums, so that what lasts is read only if it is what was written: behind its bytes, and in a list.

The last line of a file is JSON, ``{"name": ..., "sha256": ...}``, whose checksum is of all that precedes the
checksum itself: the name of the file too, so that files which were exchanged are found as well.

``SHA256SUMS`` lists the checksums of whole files, as ``sha256sum --check SHA256SUMS`` reads them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from hashlib import file_digest, sha256
from pathlib import Path
from stat import S_ISREG

from testbed.machine.files import append_text, exists, file_lock, read_whole, reading, write_whole
from topologies.errors import ScenarioError

SUMS = "SHA256SUMS"

HEX = 64
"""Digits of a checksum."""
END = b'"}\n'


ENTRY = re.compile(rf"(?P<digest>[0-9a-f]{{{HEX}}})  (?P<name>.+)")


def is_listable(name: str) -> bool:
    """Return whether a run can have written a file of a name: ``sha256sum`` takes others escaped only."""
    return name.isprintable() and "\\" not in name


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


def listed_bytes(file: Path) -> bytes:
    """Return the bytes of a file of a results directory; ScenarioError if its list has another checksum."""
    data = read_whole(file)
    if Sums(file.parent, file.parent).listed.get(file.name) in (None, sha256(data).hexdigest()):
        return data
    raise ScenarioError(
        f"{file} is damaged: its checksum in {SUMS} does not agree", "--resume writes it anew"
    )


def _line(name: str) -> bytes:
    return f'\n{{"name": "{name}", "sha256": "'.encode()


class Sums:
    """The list of a results directory, ``SHA256SUMS``: several runs, each of a part, may add to it at a time.

    Parameters
    ----------
    directory
        The results directory.
    lock
        A file in one of its directories, locked while the list changes: without that directory no other run
        adds to it.
    """

    def __init__(self, directory: Path, lock: Path) -> None:
        self._directory, self._lock = directory, lock

    @property
    def listed(self) -> dict[str, str]:
        """The checksums of the files that it lists, by their names, as it is now.

        ScenarioError if a line is not one; the beginning of one, which a killed process left, is left out.
        """
        file, found = self._directory / SUMS, {}
        try:
            text = read_whole(file).decode(errors="surrogateescape")
        except FileNotFoundError:
            return {}
        for number, line in enumerate(text.split("\n")[:-1], 1):
            if not (entry := ENTRY.fullmatch(line)) or not is_listable(entry["name"]):
                raise ScenarioError(
                    f"{file} is damaged: line {number} is not a checksum and a name",
                    "delete it: points are then held against their own checksums, other files against none",
                )
            found[entry["name"]] = entry["digest"]
        return found

    def add(self, name: str, data: bytes) -> None:
        """List a file that it does not list."""
        with self._alone():
            append_text(self._directory / SUMS, _listing({name: sha256(data).hexdigest()}))

    def keep(self, which: Callable[[str], bool]) -> None:
        """List only those files whose names a function accepts, since others are to be written anew."""
        with self._alone():
            if listed := self.listed:
                self._write({name: digest for name, digest in listed.items() if which(name)})

    def clear(self) -> None:
        """List nothing."""
        with self._alone():
            self._write({})

    def close(self, files: Iterable[Path]) -> None:
        """List all files of the directory that a run can have written; a checksum that is there stays."""
        plain = [each for each in files if S_ISREG(each.lstat().st_mode)]
        with self._alone():
            listed, names = self.listed, {str(each.relative_to(self._directory)): each for each in plain}
            names = {name: file for name, file in names.items() if is_listable(name)}
            self._write({name: listed.get(name) or _digest(file) for name, file in sorted(names.items())})

    def _alone(self) -> AbstractContextManager[None]:
        return file_lock(self._lock) if exists(self._lock.parent) else nullcontext()

    def _write(self, digests: Mapping[str, str]) -> None:
        write_whole(self._directory / SUMS, _listing(digests))


def _listing(digests: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


def _digest(file: Path) -> str:
    with reading(file) as opened:
        return file_digest(opened, "sha256").hexdigest()
