"""Standard output and standard error of all commands: what they print is quoted here, once for all.

Tables and bars are in :mod:`paternoster_contract.cli.console`. ``make lint`` refuses ``print`` and rich's own console
elsewhere in the packages.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable
from typing import Any

from paternoster_contract.cli.quoting import quote_line


def print_line(text: str = "") -> None:
    """One line to standard output, at once."""
    _write_output(quote_line(text))


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)


def print_text(text: str) -> None:
    """Text with line breaks of its own, such as a YAML document, to standard output: quoted by line, and whole."""
    _write_output("\n".join(quote_line(line, None) for line in text.split("\n")))


def print_json(document: Any, indent: int | None = None) -> None:
    """A JSON document to standard output, whole: in ASCII, nothing of it has to be quoted."""
    _write_output(json.dumps(document, indent=indent))


def _write_output(text: str) -> None:
    """Write to standard output; where its reader has closed it, as ``| head`` does, end as SIGPIPE would."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None


def print_error(text: str) -> None:
    """One line to standard error."""
    print(quote_line(text), file=sys.stderr, flush=True)
