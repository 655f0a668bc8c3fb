"""The recipes at the top: what `make` does, the container, how to cite; each says what the rest says."""

import re
import tomllib

from tests.tools import CHECKOUT

PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (CHECKOUT / "Dockerfile").read_text()
INSTRUCTIONS = re.findall(r"^([A-Z]+) (.*)$", DOCKERFILE, re.MULTILINE)


def test_make_lists_seven_targets_of_one_line() -> None:
    makefile = (CHECKOUT / "Makefile").read_text()
    listed = re.findall(r"^(\w+): ## [A-Z].*\.\n\t.+\n\n", makefile, re.MULTILINE)
    assert listed == ["setup", "fast", "test", "lint", "docs", "bench", "clean"]
    assert set(re.findall(r"^(\w+):", makefile, re.MULTILINE)) == {"help", *listed}
    programs = re.findall(r"(?:bash|python) ((?:vagrant|scenarios)/\S+)", makefile)
    assert programs
    assert all((CHECKOUT / path).exists() for path in programs)


def test_the_container_is_provisioned_as_a_machine_is() -> None:
    assert INSTRUCTIONS == [
        ("FROM", "debian:12-slim"),
        ("COPY", ". /lightrail"),
        ("RUN", "bash /lightrail/vagrant/provision.sh && rm -rf /var/lib/apt/lists/*"),
        ("WORKDIR", "/work"),
        ("ENTRYPOINT", '["/lightrail/.venv/bin/lightrail"]'),
    ]
    assert PROJECT["scripts"] == {"lightrail": "lightrail:main"}


def test_each_line_of_the_container_is_carried_out_where_it_is_tried() -> None:
    script = (CHECKOUT / "vagrant" / "container.sh").read_text()
    tried = set(re.findall(r"\$\(instruction ([A-Z]+)", script))
    assert tried == {name for name, _ in INSTRUCTIONS} - {"FROM"}
    assert "bare_system bookworm" in script  # Debian 12


def test_the_page_has_the_commands_of_the_containers_file() -> None:
    page = (CHECKOUT / "docs" / "start" / "install.md").read_text().splitlines()
    commands = re.findall(r"^#     (docker .*)$", DOCKERFILE, re.MULTILINE)
    assert len(commands) == 3
    assert set(commands) <= set(page)


def test_what_is_cited_is_this_version() -> None:
    cited = dict(re.findall(r"^(\w+): (.+)$", (CHECKOUT / "CITATION.cff").read_text(), re.MULTILINE))
    assert cited["version"] == PROJECT["version"]
    assert cited["license"] == PROJECT["license"]["text"]


def test_contributors_read_of_each_target() -> None:
    told = re.findall(r"^    make (\w+) +# ", (CHECKOUT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert told == re.findall(r"^(\w+): ## ", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
