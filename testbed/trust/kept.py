"""What was measured of this machine, kept in a file that all runs of a user share.

A run holds a lock on it while it measures: two at once would measure half each. What was taken while
something else used the CPUs serves for some minutes only. A file of another format is measured anew, and so
is what lies where other users could exchange it: that is left alone, with a note.
"""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from testbed.machine.commands import output_of
from testbed.machine.datapath import Datapath
from testbed.machine.files import file_lock, make_directory, read_whole, write_whole
from topologies.errors import MachineError
from traffic.compiled import engine

CACHE = "LIGHTRAIL_CACHE"
SHARED_S = 600.0
"""How long a measurement serves that was taken while something else used the CPUs [s]."""


@dataclass(frozen=True)
class Measured:
    """A measurement of a machine."""

    machine: str
    """Processor, kernel, Open vSwitch, its datapath and the engine: what the figures are of."""
    taken: str
    """When, in UTC (ISO 8601)."""
    alone: bool
    """Whether nothing else used the CPUs meanwhile; also true where that is unknown."""

    def serves(self, now: datetime) -> bool:
        """Return whether a run may be scaled by it."""
        return self._age(now) < (timedelta.max if self.alone else timedelta(seconds=SHARED_S))

    def age(self, now: datetime) -> str:
        """Return how long ago it was taken, and beside what."""
        minutes = self._age(now).total_seconds() / 60
        age = f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
        age = age if minutes < 48 * 60 else f"{minutes / 60 / 24:.0f} days"
        return f"{age} ago{'' if self.alone else ' while something else used the CPUs'}"

    def _age(self, now: datetime) -> timedelta:
        return now - datetime.fromisoformat(self.taken)


T = TypeVar("T", bound=Measured)


@dataclass(frozen=True)
class KeptMeasurements(Generic[T]):
    """Measurements of one kind, by machine and datapath."""

    name: str
    """Of the file, without its ending."""
    version: int
    """Of its format."""
    kind: type[T]
    """Its class, which says what is valid."""
    measure: Callable[[Datapath], T]
    """Takes one, in the sandbox."""

    def of(self, datapath: Datapath, *, anew: bool = False) -> T:
        """Return this machine's measurement: the kept one, or a new one, which is kept.

        Parameters
        ----------
        datapath
            Each is measured by itself; the figures of one never serve another.
        anew
            Whether to measure in any case.
        """
        machine = machine_name(datapath)
        if not anew and (found := self._all().get(machine)):
            return found
        with self._locked():
            if not anew and (found := self._all().get(machine)):  # another run has measured meanwhile
                return found
            found = self.measure(datapath)
            self._keep(self._all() | {machine: found})
        return found

    def has(self, datapath: Datapath) -> bool:
        """Return whether this machine's is kept, so that `of` measures nothing."""
        return machine_name(datapath) in self._all()

    def forget(self, measured: T) -> None:
        """Keep a measurement no longer, unless another run has taken it anew meanwhile."""
        with self._locked():
            self._keep({name: each for name, each in self._all().items() if each != measured})

    @property
    def _path(self) -> Path:
        folder = os.environ.get(CACHE, Path.home() / ".cache" / "lightrail")
        return Path(folder) / f"{self.name}.json"

    def _all(self) -> dict[str, T]:
        """Return what serves, by machine; nothing where the file is not valid."""
        now = datetime.now(UTC)
        try:
            data = json.loads(read_whole(self._path))
            if data["format"] != self.version:
                return {}
            kept = map(TypeAdapter(self.kind).validate_python, data["calibrations"])
            return {each.machine: each for each in kept if each.serves(now)}
        except (MachineError, OSError, ValueError, KeyError, TypeError):
            return {}

    def _keep(self, kept: Mapping[str, T]) -> None:
        """Write what is kept; a home that cannot be written costs the next run some seconds, no more."""
        data = {"format": self.version, "calibrations": [asdict(each) for each in kept.values()]}
        with suppress(MachineError):
            write_whole(self._path, json.dumps(data))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no other run that shares a file measure meanwhile; the lock ends with its process."""
        with ExitStack() as stack:
            try:
                make_directory(self._path.parent)
                stack.enter_context(file_lock(self._path.with_suffix(".lock")))
            except MachineError as error:
                said = MachineError(
                    f"{error.sentence}: no measurement is kept", f"set {CACHE} to another directory"
                )
                sys.stderr.write(f"{said}\n")
            yield


def machine_name(datapath: Datapath) -> str:
    """Return the name of this machine, a datapath and the engine for a measurement."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = model[0].split(":")[1].strip() if model else platform.machine()
    version = _switch_version()
    return (
        f"{os.cpu_count()} x {processor}, Linux {platform.release()}, Open vSwitch {version}, "
        f"datapath {datapath}, engine {engine()}"
    )


def _switch_version() -> str:
    try:
        words = output_of(["ovs-vswitchd", "--version"]).split()
    except MachineError:  # a dry run needs none
        return "unknown"
    return words[3] if len(words) > 3 else "unknown"
