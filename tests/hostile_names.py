"""Names that a terminal, a spreadsheet, a browser or a plot could take for orders."""

import unicodedata

NAMES = {
    "formula of a plot": "$a_{$ x",
    "markup": "[/w] [bold]",
    "control characters": "\x1b[31m\x07e\r\x9b1m",
    "long": "n" * 300,
    "long in bytes": "é" * 150,
    "formula of a sheet": "=cmd|' /C calc'!A0",
    "quoted formula": "'-cmd",
    "other direction": "a\u202egnp\u2066 \u200f",
    "letters of others": "שלום 中文 :smile:",
    "lines": "a\nb\tc",
    "number": "007",
    "no number": "nan",
    "page": "<script>alert(1)</script> {{ x }} %s",
}


def raw(text: str) -> set[str]:
    """Return the characters of a text that order something and show nothing, but for line breaks."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n"}
