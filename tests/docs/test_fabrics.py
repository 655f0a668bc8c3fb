"""The reference of fabrics: every builder has a drawing, and its lines make the fabric that is drawn."""

import re
import tomllib
from pathlib import Path

import pytest

from scenarios._docs.fabrics import docs_fabrics
from scenarios.api.draw import fabric_named
from testbed.study.study_tables import FORMS
from testbed.study.toml_document import Override, assigned
from tests.docs.pages import DOCS, Block, blocks_of

PAGE = "docs/reference/fabrics.md"
BLOCKS = blocks_of(PAGE)
NAMES = list(docs_fabrics())


def blocks(name: str, language: str) -> list[Block]:
    """Return the blocks of a builder's section."""
    text = (DOCS / "reference" / "fabrics.md").read_text()
    begins = text.count("\n", 0, text.index(f"\n## {name}\n"))
    ends = text.count("\n", 0, text.find("\n## ", text.index(f"\n## {name}\n") + 1) % (len(text) + 1))
    return [block for block in BLOCKS if block.language == language and begins < block.line <= ends]


@pytest.fixture
def readers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the page's files in the current directory."""
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block.title:
            (tmp_path / block.title).write_text(block.text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("readers_folder")
def test_lines_of_each_builder_make_the_fabric_of_its_drawing(name: str) -> None:
    fabric = docs_fabrics()[name].fabric
    (command,), (study,) = blocks(name, "sh"), blocks(name, "toml")
    words = command.text.split()
    assert words[:2] == [".venv/bin/lightrail", "draw"]
    given = [
        assigned(word) for option, word in zip(words[3::2], words[4::2], strict=True) if option == "--set"
    ]
    assert fabric_named(words[2], given) == fabric
    table = tomllib.loads(study.text)["fabric"]
    builder = table.pop("builder")
    keys = [Override(key, value, f"--set {key}") for key, value in table.items()]
    assert fabric_named(builder, keys) == fabric


@pytest.mark.parametrize("name", NAMES)
def test_python_lines_make_it_too(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(name, "python")
    made: dict[str, object] = {}
    exec(f"import lightrail as lr\n{block.text}", made)
    fabric = made["fabric"] if "fabric" in made else made["khop_line"]()  # type: ignore[operator]
    assert fabric == docs_fabrics()[name].fabric


def test_each_builder_has_a_section_with_its_drawing() -> None:
    text = (DOCS / "reference" / "fabrics.md").read_text()
    sections = re.findall(r"^## (\w+)$", text, re.MULTILINE)
    builders = FORMS["fabric"]["builder"]
    assert isinstance(builders, dict)
    assert sections == NAMES
    assert builders.keys() <= set(sections)
    assert [f"../figures/fabric_{name}.svg" for name in NAMES] == re.findall(r"\]\((\S+\.svg)\)", text)
