"""The compiled engine: which modules are compiled, and where Python finds them in place of their sources.

`vagrant/compile_engine.py` turns the modules below into machine code by mypyc. They stay plain Python, and
where they were not compiled the same files run interpreted, at a fraction of the packets a second.

What was compiled is kept in the virtual environment, in a folder whose name is a digest of everything it was
made from. So an edited file runs interpreted until it is compiled anew, checkouts that share an environment
have a folder each, and nothing stale is ever run.
"""

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from topologies.errors import ScenarioError

MODULES = (
    "traffic.congestion.credit",
    "traffic.congestion.nscc",
    "traffic.spraying.checks",
    "traffic.spraying.plb",
    "traffic.spraying.reps",
    "traffic.spraying.spray",
    "traffic.spraying.states",
    "traffic.transports.ack_packets",
    "traffic.transports.control_packets",
    "traffic.transports.datagram_engine",
    "traffic.transports.datagram_lane",
    "traffic.transports.datagram_sockets",
    "traffic.transports.engine",
    "traffic.transports.feeder",
    "traffic.transports.flow_log",
    "traffic.transports.late_binding",
    "traffic.transports.loop",
    "traffic.transports.marking",
    "traffic.transports.nic_sender",
    "traffic.transports.order",
    "traffic.transports.packet_feeder",
    "traffic.transports.propagation",
    "traffic.transports.round_trips",
    "traffic.transports.sources",
    "traffic.transports.transport",
)
"""The modules that are compiled, together: calls among them are those of C."""
ENGINE = "LIGHTRAIL_ENGINE"
"""The environment variable by which a run asks for the engine `INTERPRETED` though it was compiled."""
COMPILED, INTERPRETED = "compiled", "interpreted"
SHARED = "__mypyc"
"""How the name ends of the one library that holds the code of all of them."""
CHECKOUT = Path(__file__).parents[1]
_IMPORT = re.compile(
    r"^\s*(?:from|import) ((?:traffic|topologies)[.\w]*)(?: import (\([^)]*\)|.*))?", re.MULTILINE
)


def folder() -> Path:
    """Return the folder of this environment that holds these sources compiled, if it exists."""
    digest = sha256(f"{sys.version} mypy {_mypy()}".encode())
    for name, path in sorted(_sources().items()):
        digest.update(f"{name in MODULES} {name}\n".encode() + path.read_bytes())
    return Path(sys.prefix) / "lightrail-engine" / digest.hexdigest()


@cache
def extensions() -> dict[str, Path]:
    """Return the files of the compiled modules and of their library; none where the engine is interpreted."""
    if os.environ.get(ENGINE) == INTERPRETED:
        return {}
    place = folder()
    return {path.name.removesuffix(".so"): path for path in place.glob("*.so")} if is_whole(place) else {}


def is_whole(place: Path) -> bool:
    """Return whether a folder holds all compiled modules and their library: half of them would not agree."""
    names = {path.name.removesuffix(".so") for path in place.glob("*.so")}
    return names.issuperset(MODULES) and any(name.endswith(SHARED) for name in names)


def engine() -> str:
    """Return which engine emulations of this process have: `COMPILED` or `INTERPRETED`.

    Raises
    ------
    ScenarioError
        If the environment asks for another.
    """
    asked = os.environ.get(ENGINE) or COMPILED
    if asked not in (COMPILED, INTERPRETED):
        raise ScenarioError(f"there is no engine {asked!r}", f"set {ENGINE} to {INTERPRETED}, or to nothing")
    return COMPILED if extensions() else INTERPRETED


def advice() -> str:
    """Return a sentence where the engine is interpreted and nobody asked for it; else nothing."""
    if extensions() or os.environ.get(ENGINE) == INTERPRETED:
        return ""
    return (
        "the engine was not compiled from these sources, so it runs interpreted and carries fewer packets; "
        "run as root: bash vagrant/provision.sh"
    )


class CompiledModules:
    """Finds the compiled modules, before Python looks for their sources."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is loaded from; None for all that is not compiled."""
        if name not in MODULES and not name.endswith(SHARED):
            return None
        file = extensions().get(name)
        return spec_from_file_location(name, file) if file else None


def _mypy() -> str:
    try:
        return version("mypy")
    except PackageNotFoundError:
        return "none"


def _sources() -> dict[str, Path]:
    """Return the files of the compiled modules, and of all of this checkout that these import.

    Compiled code holds the types and the constants of what it imports.
    """
    found: dict[str, Path] = {}
    left = list(MODULES)
    while left:
        name = left.pop()
        path = CHECKOUT.joinpath(*name.split(".")).with_suffix(".py")
        if name in found or not path.is_file():  # a package, which says nothing, or a name in a module
            continue
        found[name] = path
        for module, names in _IMPORT.findall(path.read_text()):
            left += [module, *(f"{module}.{each}" for each in re.findall(r"\w+", names))]
    return found
