"""The terminal: it shows texts as they are, obeys nothing in them, and takes no name for markup."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from topologies.printable import printable


class Terminal(Console):
    """Rich's console without markup and codes of emoji, whatever draws on it.

    Parameters
    ----------
    stderr
        Whether it stands beside what standard output holds.
    width
        How wide it is, by default as wide as it says [characters].
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        # A notebook is a file like others: rich would display what is captured, too.
        super().__init__(
            stderr=stderr, width=width, markup=False, emoji=False, highlight=False, force_jupyter=False
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield pieces whose text is printable; rich's own orders, such as where the cursor goes, stay."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(printable(piece.text, keep="\n"), piece.style)
