"""A run that is gone on with by its directory alone: its options are those that it was begun with.

``run.json`` has them as data, names and values as they were typed. They are read as options are, by the
parameters of the scenario's own command, so they are checked as what a user types.
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from testbed.report.results import ENTERED
from testbed.report.run_json import Typed, Value, begun_as, typed_of
from testbed.study.directories import check_code
from testbed.study.options import directory
from testbed.study.output import say
from testbed.study.study import RUN
from topologies.errors import ScenarioError

FREE = {
    *("jobs", "resume", "part", "cluster", "out", "no_wait", "calibrate", "dry_run", "cli"),
    *("debug", "help"),
}
"""Options that do not decide results: nothing is kept of them, and each command may have its own."""
REDRAWN = "plots"
"""The option that is kept and that a command may change: plots are drawn anew, so a run gets PDFs later."""
SCRIPTED = {"python", "repeat"}
"""Names of runs that no command goes on with: those of a Python script, and those that repeat one."""
LEFT: list[str] = []
"""The lines on what is left of a command that ended in its middle, and on how to go on with it."""


class GoingOn(TyperCommand):
    """The command of a scenario: with ``--resume`` it has the options of the run in that directory."""

    # The context is of a class that typer keeps to itself.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Read the options, after those of a run that is gone on with."""
        given: Mapping[str, Any] = self.make_parser(ctx).parse_args(args=[*args])[0]
        run = Typed(_program(), {**self._of_environment(ctx), **_deciding(given)}, os.getcwd())
        if given.get("resume") and not given.get("help"):
            run = self._begun(ctx, directory(given["resume"]), given) or run
            ctx.default_map = run.options
            # What the environment sets comes before a default, and after what is typed.
            set_before = [param for param in self.params if param.envvar and param.name in run.options]
            args = [*(word for param in set_before for word in _words(param, run.options[param.name])), *args]
        ctx.obj = run if _is_unicode(run) else None
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Carry the command out; keep how to go on with it if it ends in its middle."""
        try:
            return super().invoke(ctx)
        except BaseException as error:
            if not (ctx.params.get("resume") and isinstance(error, Exception)):  # that is the command already
                LEFT.extend(_left(ctx.params))
            raise

    def _of_environment(self, ctx: Any) -> dict[str, Value]:  # noqa: ANN401
        """Return the options that the environment may set, with what they have where none is typed."""
        params = [param for param in self.params if param.envvar]
        return {param.name: str(param.value_from_envvar(ctx) or param.default) for param in params}

    def _begun(self, ctx: Any, path: Path, given: Mapping[str, Any]) -> Typed | None:  # noqa: ANN401
        """Return how a run was begun, if no typed option contradicts it; None if run.json has no options."""
        check_code(path, ())
        if (run := typed_of(path / RUN)) is None:
            _check_begun_by_command(path)
            return None
        if run.program != _program():
            file = Path(sys.argv[0]).parent / f"{run.program}.py"
            is_here = Path(run.program).name == run.program and file.is_file()
            hint = f"run: {going_on(path, program=str(file))}" if is_here else "give it to that one"
            raise ScenarioError(f"{path} is a run of {run.program}.py", hint)
        params = {str(param.name): param for param in self.params if param.name not in FREE}
        for name, value in run.options.items():
            if name not in params or not _can_be(params[name], value):
                said = f"{path / RUN} has the option {name}, and {run.program}.py keeps none"
                raise ScenarioError(
                    f"{said} of that name and kind", "give the directory of a run as it was written"
                )
        now = _deciding(given)
        for param in self.params:
            self._check_same(ctx, path, param, run.options.get(str(param.name)), now.get(str(param.name)))
        _check_found(path, replace(run, options={n: v for n, v in run.options.items() if n not in now}))
        return run

    def _check_same(self, ctx: Any, path: Path, param: Any, before: Value, now: Value) -> None:  # noqa: ANN401
        """Refuse an option that says something else than in the run; a file may have moved."""
        if now is None or isinstance(value := param.process_value(ctx, now), Path) or param.name == REDRAWN:
            return
        if isinstance(now, str) and isinstance(before, str) and os.path.exists(now):  # as a file it may, too
            return
        if value != param.process_value(ctx, param.get_default(ctx) if before is None else before):
            was = f"without {param.opts[0]}" if before is None else f"with {' '.join(_words(param, before))}"
            raise ScenarioError(
                f"{path} was begun {was}, and {' '.join(_words(param, now))} is given",
                "leave it out: its options are those of that run",
            )


def going_on(path: Path, *more: str, program: str | None = None) -> str:
    """Return the command that goes on with a run, as one types it.

    Parameters
    ----------
    path
        Its directory.
    more
        Further options.
    program
        The scenario's file, where it is not this command's.
    """
    words = ["python", program or sys.argv[0], "--resume", str(path), *more]
    return shlex.join(["sudo", *words] if "SUDO_UID" in os.environ else words)


def _left(given: Mapping[str, Any]) -> list[str]:
    there = [path for path in ENTERED if os.path.exists(path / RUN)]
    if not there:
        return []
    finished = f"what was finished is in {there[-1]}"
    if "resume" not in given:
        return [finished]
    part = given["part"]
    more = ["--part", f"{part.number}/{part.parts}"] if part else []
    return [f"{finished}; to go on:", going_on(there[-1], *more)]


def say_how_to_join(points: int, path: Path) -> None:
    """Say what a part left, and what makes one run of all parts."""
    say(f"{points} points are in {path}; this joins all parts:")
    say(going_on(path))


def _check_begun_by_command(path: Path) -> None:
    """Refuse a run of a script; one whose run.json has no options takes those that are given."""
    scenario, line = begun_as(path / RUN)
    if scenario in SCRIPTED:
        raise ScenarioError(
            f"{path} is a run of a script, which nothing goes on with", f"run it again: {line}"
        )


def _can_be(param: Any, value: Value) -> bool:  # noqa: ANN401
    """Return whether an option is kept as such a value: a flag as a bool, a repeated one as a list."""
    if getattr(param, "is_flag", False):
        return value is True or (value is False and bool(param.secondary_opts))
    return isinstance(value, list if param.multiple else str)


def _program() -> str:
    return Path(sys.argv[0]).stem


def _is_unicode(run: Typed) -> bool:
    """Return whether a file can hold what was typed: a name of bytes that are no text it cannot."""
    try:
        json.dumps(asdict(run), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _deciding(given: Mapping[str, Any]) -> dict[str, Value]:
    """Return those of the typed options that decide results."""
    return {
        name: value
        for name, value in given.items()
        if name not in FREE and isinstance(value, str | bool | list)
    }


def _words(param: Any, value: Value) -> list[str]:  # noqa: ANN401
    """Return an option as one types it."""
    if isinstance(value, bool):
        return [str((param.opts if value else param.secondary_opts)[0])]
    values = [value] if isinstance(value, str) else value or []
    return [word for each in values for word in (str(param.opts[0]), each)]


def _check_found(path: Path, run: Typed) -> None:
    """Refuse to go on where a file that an option names is not here, and is where the run was begun."""
    texts = [
        text for value in run.options.values() for text in (value if isinstance(value, list) else [value])
    ]
    for word in filter(None, ",".join(map(str, texts)).split(",")):
        module, colon, _ = word.partition(":")
        file = f"{module.replace('.', '/')}.py" if colon else word
        if os.path.exists(os.path.join(run.directory, file)) and not os.path.exists(file):
            raise ScenarioError(
                f"{file}, which {path} was begun with, is in {run.directory} and not here",
                "go on with the run from there",
            )
