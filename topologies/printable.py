"""Text of others, such as names, notes and errors, as people may be shown it."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Return a text in which all that cannot be printed is escaped, as Python writes it.

    That is what a terminal or a browser would obey in place of showing it: control characters, marks that
    turn the direction of what follows, invisible ones, and halves of characters, which no file takes.

    Parameters
    ----------
    text
        Any text.
    keep
        Characters that stay, such as line breaks.

    Examples
    --------
    >>> print(printable("\x1b[31mred\nEpsilon: \u03b5"))
    \x1b[31mred\nEpsilon: ε
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
