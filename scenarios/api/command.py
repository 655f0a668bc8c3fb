"""The command ``lightrail``: lists scenarios and runs them, runs studies, draws fabrics, compares event logs.

It imports no scenario, so that it answers at once; each is run as ``python scenarios/NAME.py`` runs it.
"""

import ast
import os
import sys
import tomllib
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, NoReturn

import typer

CHECKOUT = Path(__file__).resolve().parents[2]
SCENARIOS = CHECKOUT / "scenarios"
PAPERS = {
    "rails": "RailS (docs/papers/rails.md)",
    "ocs": "Spectra (docs/papers/spectra.md)",
    "mfabric": "mFabric (docs/papers/mfabric.md)",
    "topoopt": "TopoOpt (docs/papers/topoopt.md)",
    "infinitehbd": "InfiniteHBD (docs/papers/infinitehbd.md)",
}
"""The papers, by the first word of their scenarios' names."""
OTHERS = "Your own, and what belongs to no single paper"
HANDED_ON = {"ignore_unknown_options": True, "help_option_names": []}
"""A command whose options, --help among them, are another's."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="A scenario, as `lightrail list` names it.")]
Words = Annotated[list[str] | None, typer.Argument(metavar="...", help="Its own options; --help lists them.")]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command."""
    app(prog_name="lightrail")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"lightrail {version()}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
]


@app.callback()
def lightrail(version: Version = False) -> None:
    """lightrail, an emulation testbed for AI-training fabrics: optical circuits and rails."""


@app.command("list")
def list_scenarios() -> None:
    """List every scenario, with the sentence that says what it is about."""
    grouped: dict[str, list[str]] = {paper: [] for paper in [*PAPERS.values(), OTHERS]}
    names = scenarios()
    for name in names:
        grouped[PAPERS.get(name.partition("_")[0], OTHERS)].append(name)
    width = max(map(len, names))
    for paper, some in grouped.items():
        print(paper)
        for name in some:
            print(f"  {name:<{width}}  {sentence_of(name)}")


@app.command(context_settings={"allow_interspersed_args": False})
def run(name: Name, words: Words = None) -> None:
    """Run a scenario with its own options, as `python scenarios/NAME.py ...` does."""
    if name not in scenarios():
        close = get_close_matches(name, scenarios(), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`lightrail list` names all."
        print(f"unknown scenario {name!r}; {hint}", file=sys.stderr)
        raise typer.Exit(2)
    become(name, words or [])


@app.command(context_settings=HANDED_ON)
def study(words: Words = None) -> None:
    """Run a study from a TOML file (docs/reference/study.md)."""
    become("study", words or [])


@app.command(context_settings=HANDED_ON)
def draw(words: Words = None) -> None:
    """Draw a fabric: its servers, switches and links."""
    own_command("draw", words or [])


@app.command("diff-events", context_settings=HANDED_ON)
def diff_events(words: Words = None) -> None:
    """Show where two event logs part (docs/explain/events.md)."""
    own_command("diff-events", words or [])


def own_command(name: str, words: list[str]) -> None:
    """Run a command of a file of its own, which is named as the command is."""
    sys.argv = [f"lightrail {name}", *words]
    function = name.replace("-", "_")
    # Imported by this command alone: they take two seconds, and the others answer at once.
    command = getattr(import_module(f"scenarios.api.{function}"), function)
    import_module("testbed.study.command").main(command)


def become(name: str, words: list[str]) -> NoReturn:
    """Replace this process by a scenario's."""
    os.execv(sys.executable, [sys.executable, str(SCENARIOS / f"{name}.py"), *words])


def scenarios() -> list[str]:
    """Return the names of all scenarios."""
    return sorted(path.stem for path in SCENARIOS.glob("[!_]*.py"))


def sentence_of(name: str) -> str:
    """Return the first sentence of a scenario's docstring."""
    tree = ast.parse((SCENARIOS / f"{name}.py").read_text())
    return (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")


def version() -> str:
    """Return lightrail's version, which pyproject.toml states."""
    stated: str = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    return stated
