"""The lock files: all that pyproject.toml asks for and all that follows, held to hashes, and nothing else."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tools import CHECKOUT

PYTHONS = ("3.11", "3.12", "3.13")
"""Debian 12 has the first, Ubuntu 24.04 the second."""
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
LOCK, CLUSTER_LOCK, JAX_LOCK = "requirements.lock", "requirements-cluster.lock", "requirements-jax.lock"
OURS = "lightrail (pyproject.toml)"
"""The name of the checkout in a pin's ``via``."""


@dataclass(frozen=True)
class Pin:
    """A version that a lock has of a package, where its marker holds."""

    requirement: Requirement
    hashes: tuple[str, ...]
    via: frozenset[str]
    """The packages that ask for it."""

    @property
    def name(self) -> str:
        """Its package."""
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        """The only one that it takes."""
        (specifier,) = self.requirement.specifier
        assert specifier.operator == "=="
        return specifier.version

    def holds(self, python: str) -> bool:
        """Return whether it is for such a Python on Linux."""
        asked = {"python_version": python, "python_full_version": f"{python}.7"}
        return self.requirement.marker is None or self.requirement.marker.evaluate(asked)


def pins(lock: str) -> list[Pin]:
    """Return the pins of a lock."""
    text = (CHECKOUT / lock).read_text()
    return [pin_of(each) for each in re.split(r"\n(?=\w)", text) if not each.startswith("#")]


def pin_of(text: str) -> Pin:
    """Return the pin that some lines of a lock are."""
    hashes = tuple(re.findall(r"^    --hash=(\S+)", text, re.MULTILINE))
    via = re.findall(r"^    #   ?(?:via )?(\S.*)$", text.replace("    # via ", "    #   "), re.MULTILINE)
    return Pin(Requirement(re.split(r" \\\n|\n", text)[0]), hashes, frozenset(via) - {"via"})


def asked(*extras: str) -> dict[str, Requirement]:
    """Return the requirements of pyproject.toml with some extras, and of its build, by package."""
    project = PROJECT["project"]
    of_extras = [each for extra in extras for each in project["optional-dependencies"][extra]]
    texts = [*PROJECT["build-system"]["requires"], *project["dependencies"], *of_extras]
    return {canonicalize_name(each.name): each for each in map(Requirement, texts)}


def check_satisfied(requirements: Iterable[Requirement], versions: dict[str, str]) -> None:
    """Hold versions against what asks for them."""
    for each in requirements:
        assert each.specifier.contains(versions[canonicalize_name(each.name)], prereleases=True), each


@pytest.mark.parametrize("lock", [LOCK, CLUSTER_LOCK, JAX_LOCK])
def test_each_pin_has_hashes(lock: str) -> None:
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for pin in pins(lock) for each in pin.hashes)
    assert [pin.name for pin in pins(lock) if not pin.hashes] == []


@pytest.mark.parametrize("lock", [LOCK, CLUSTER_LOCK, JAX_LOCK])
def test_a_lock_does_not_say_where_packages_are_found(lock: str) -> None:
    lines = [line for line in (CHECKOUT / lock).read_text().splitlines() if not line.startswith("#")]
    assert not [line for line in lines if re.search("://|-url|--find-links", line)]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_pins_satisfy_what_is_asked(python: str) -> None:
    here = [pin for pin in pins(LOCK) if pin.holds(python)]
    versions = {pin.name: pin.version for pin in here}
    assert len(versions) == len(here)  # none is there twice
    check_satisfied(asked("dev", "docs").values(), versions)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("extra", "lock"), [("cluster", CLUSTER_LOCK), ("jax", JAX_LOCK)])
def test_the_pins_of_an_extra_satisfy_it_and_are_those_of_the_lock(
    extra: str, lock: str, python: str
) -> None:
    here = [pin for pin in pins(lock) if pin.holds(python)]
    versions = {pin.name: pin.version for pin in here}
    assert len(versions) == len(here)
    check_satisfied(map(Requirement, PROJECT["project"]["optional-dependencies"][extra]), versions)
    common = {pin.name: pin.version for pin in pins(LOCK) if pin.holds(python) and pin.name in versions}
    assert common.items() <= versions.items()


def test_the_lock_knows_what_is_asked() -> None:
    assert {pin.name for pin in pins(LOCK) if OURS in pin.via} == set(asked("dev", "docs"))


@pytest.mark.parametrize(
    ("lock", "roots"), [(LOCK, {*asked("dev", "docs")}), (CLUSTER_LOCK, {"ray"}), (JAX_LOCK, {"jax"})]
)
def test_nothing_is_locked_that_does_not_follow(lock: str, roots: set[str]) -> None:
    found, reached, more = pins(lock), set[str](), roots
    while more:
        reached |= more
        more = {pin.name for pin in found if pin.via & reached} - reached
    assert {pin.name for pin in found} == reached
