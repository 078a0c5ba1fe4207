"""Standard output and standard error of all commands: what they print is quoted here, once for all.

Tables and bars are in :mod:`paternoster_contract.cli.console`. ``make lint`` refuses ``print`` and rich's own console
elsewhere in the packages.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any

from paternoster_contract.cli.quoting import quote_line


def print_line(text: str = "") -> None:
    """One line to standard output, at once."""
    print(quote_line(text), flush=True)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)


def print_text(text: str) -> None:
    """Text with line breaks of its own, such as a YAML document, to standard output: quoted by line, and whole."""
    print("\n".join(quote_line(line, None) for line in text.split("\n")), flush=True)


def print_json(document: Any, indent: int | None = None) -> None:
    """A JSON document to standard output, whole: in ASCII, nothing of it has to be quoted."""
    print(json.dumps(document, indent=indent), flush=True)


def print_error(text: str) -> None:
    """One line to standard error."""
    print(quote_line(text), file=sys.stderr, flush=True)
