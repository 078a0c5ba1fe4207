"""Foreign text quoted for those who read it: on a terminal, in a log, in an event, a status or a page. Pure.

Clients, engines, model files and API servers send text that reaches such places. Each place quotes what it gets with
the functions here, so that no text begins a line of its own, moves a cursor, writes to a clipboard (OSC 52) or turns
the order of letters round, whichever way it came.
"""

import re
from typing import Any

LONGEST_LINE = 8192
"""Characters of a line; of what is longer, the rest is left out and its length named."""
MOST_LINES = 400
"""Lines that are kept of a text with lines of its own, such as a traceback."""

_LONE_BREAK = re.compile(r"\r\n?|\n")


def quote_line(text: str, longest: int | None = LONGEST_LINE) -> str:
    """``text`` in printable characters, on one line; of a text above ``longest`` characters its beginning.

    Line breaks, control characters, marks of direction, lone surrogates and all else that Unicode does not print are
    written as Python writes them, such as ``\\x1b`` and ``\\u202e``. Printable text stays as it is, so that quoting
    twice changes nothing.
    """
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]} ... and {len(text) - longest} characters more"
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def quote_lines(text: str) -> list[str]:
    """The lines of ``text``, each quoted: for text whose line breaks are its own, as those of a traceback are."""
    lines = _LONE_BREAK.split(text, MOST_LINES)
    if len(lines) > MOST_LINES:
        lines[-1] = f"... and {len(lines[-1])} characters more"
    return [quote_line(line) for line in lines]


def quote_document(value: Any) -> Any:
    """Quote every text of a JSON document; names of fields stay as they are."""
    if isinstance(value, str):
        return quote_line(value)
    if isinstance(value, dict):
        return {name: quote_document(part) for name, part in value.items()}
    if isinstance(value, list):
        return [quote_document(part) for part in value]
    return value
