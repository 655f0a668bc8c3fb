"""The one exception tree: every error says what happened and what to do.

    LightrailError
    ├── FabricError      a fabric that cannot be wired
    ├── DemandError      a demand matrix or a schedule's input that makes no sense
    ├── TraceError       a file that cannot be read as what it should be
    ├── ScenarioError    options that do not go together, an unknown scheme
    ├── MachineError     this machine lacks a tool, a right or the speed
    ├── NetworkError     a network, a switch or a controller that failed
    ├── StuckError       a transfer that made no progress
    └── UnsoundError     a run whose tables say what cannot be

Only ``testbed/study/command.py`` catches them, prints one line and exits with 2.
"""

from topologies.printable import printable


class LightrailError(Exception):
    """A failure told to people: a sentence, and a hint of what to do.

    Its text is one line; characters that cannot be printed, such as those of a file's name, are escaped.

    Parameters
    ----------
    sentence
        What happened, with the value that caused it.
    hint
        What to do about it; may be empty.
    """

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence, hint)
        self.sentence = sentence
        self.hint = hint

    def __str__(self) -> str:
        said = f"{self.sentence}; {self.hint}" if self.hint else self.sentence
        return printable(said)


class FabricError(LightrailError):
    """A fabric that cannot be wired."""


class DemandError(LightrailError):
    """A demand matrix, or a scheduler's input, that makes no sense."""


class TraceError(LightrailError):
    """A file that cannot be read as what it should be."""


class ScenarioError(LightrailError):
    """Options that do not go together, or an unknown name."""


class MachineError(LightrailError):
    """The machine lacks a tool, a right, or the speed."""


class NetworkError(LightrailError):
    """A network, a switch or a controller that failed while it was needed."""


class StuckError(NetworkError):
    """A transfer that made no progress for the stated time."""


class UnsoundError(LightrailError):
    """A run whose tables say what cannot be, so that nothing of it may be shown."""
