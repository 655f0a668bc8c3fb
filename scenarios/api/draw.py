"""The command ``lightrail draw``: a picture of a fabric, by its builder, a function or a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from testbed.report.fabric_drawing import draw_fabric, fabric_caption
from testbed.report.page import slug
from testbed.study.options import Debug
from testbed.study.study_tables import fabric_of, rows
from testbed.study.toml_document import Document, Keys, Override, assigned
from topologies.errors import ScenarioError
from topologies.fabric import Fabric

Name = Annotated[
    str,
    typer.Argument(
        metavar="FABRIC",
        help="A builder of docs/reference/fabrics.md such as rail, your own as module:function, or a JSON"
        " file that Fabric.to_json wrote.",
    ),
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A parameter of the builder, as in servers=8; repeatable."
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The picture, .png, .pdf or .svg; by default the fabric's name, as .png."
    ),
]


def draw(name: Name, parameters: Set = [], out: Picture = None, debug: Debug = False) -> None:  # noqa: B006
    """Draw a fabric: its servers with GPUs and NICs, its switches by tier, its links.

    `lightrail draw rail --set servers=8 --set rails=4` draws eight servers on four rails.
    """
    fabric = fabric_named(name, [assigned(text) for text in parameters])
    out = Path(f"{slug(fabric.name)}.png") if out is None else out
    draw_fabric(fabric, out)
    print(f"{out}: {fabric_caption(fabric)}")


def fabric_named(name: str, parameters: Sequence[Override], command: str = "lightrail draw") -> Fabric:
    """Return the fabric of a builder, a function or a file, with parameters as a study's file has them.

    Parameters
    ----------
    name, parameters
        As they were typed.
    command
        The command that they were typed to, for errors.

    Raises
    ------
    LightrailError
        If there is none of that name, it does not take the parameters, or they cannot be wired.
    """
    is_file = Path(name).exists() or name.endswith(".json")
    form = "file" if is_file else "builder"
    table: dict[str, object] = {form: name} | {each.key: each.value for each in parameters}
    sources: dict[Keys, str | Keys] = {("fabric", 0, each.key): each.source for each in parameters}
    sources["fabric", 0] = sources["fabric", 0, form] = "FABRIC"
    document = Document(Path(command), "", {"fabric": [table]}, sources)
    row, *more = rows(document, "fabric")
    if more:
        raise ScenarioError(f"{1 + len(more)} fabrics at once", "give each key one value")
    return fabric_of(document, row)
