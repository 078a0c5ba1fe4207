"""The level and the format of each command's log, set by two flags or two environment variables.

In the format ``json`` every record is one line: ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message`` and, where
there is one, ``exception`` with the traceback. JSON in ASCII escapes line breaks and control characters. In the format
``text`` a record is one line, too, and its traceback follows indented. So no text of a client can begin a line of its
own or reach a terminal as a control sequence.
"""

import argparse
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

from paternoster_contract.cli.quoting import LONGEST_LINE, quote_line, quote_lines

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
LEVEL_VARIABLE = "PATERNOSTER_LOG_LEVEL"
FORMAT_VARIABLE = "PATERNOSTER_LOG_FORMAT"
TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LONGEST_EXCEPTION = 65_536
"""Characters of a traceback in a line of JSON."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:LONGEST_LINE],
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[:LONGEST_EXCEPTION]
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    """Formats a record as one line, and what it has of tracebacks and stacks as lines below that are indented."""

    def format(self, record: logging.LogRecord) -> str:
        # Not by the base class: a traceback that another formatter left in the record is not quoted.
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [quote_line(self.formatMessage(record))]
        below = [self.formatException(record.exc_info)] if record.exc_info else []
        below += [self.formatStack(record.stack_info)] if record.stack_info else []
        lines += [f"    {line}" for text in below for line in quote_lines(text)]
        return "\n".join(lines)


def add_log_flags(parser: argparse.ArgumentParser, *, default_level: str) -> None:
    """Add ``--log-level`` and ``--log-format``; without a flag the environment variables count."""
    group = parser.add_argument_group("log")
    group.add_argument(
        "--log-level",
        choices=LEVELS,
        help=f"the least severe records that are logged (default: ${LEVEL_VARIABLE}, else {default_level})",
    )
    group.add_argument(
        "--log-format",
        choices=FORMATS,
        help=f"text, or a line of JSON for each record (default: ${FORMAT_VARIABLE}, else text)",
    )
    parser.set_defaults(default_log_level=default_level)


def configure_logging(args: argparse.Namespace) -> None:
    """Send the root logger's records to standard error, as the flags in ``args`` or the environment ask.

    The values are written to the environment, which child processes inherit. Raises ``ValueError`` that names the
    environment variable, its value and what is allowed.
    """
    level = args.log_level or _read_variable(os.environ, LEVEL_VARIABLE, LEVELS)
    log_format = args.log_format or _read_variable(os.environ, FORMAT_VARIABLE, FORMATS)
    for variable, value in ((LEVEL_VARIABLE, level), (FORMAT_VARIABLE, log_format)):
        if value:
            os.environ[variable] = value
    _configure_logging(level or args.default_log_level, log_format or "text")


def configure_child_logging(default_level: str) -> None:
    """Configure the log of a process that a command started: its parent's settings are in the environment."""
    level = _read_variable(os.environ, LEVEL_VARIABLE, LEVELS)
    _configure_logging(level or default_level, _read_variable(os.environ, FORMAT_VARIABLE, FORMATS) or "text")


def log_through(handler: logging.Handler) -> None:
    """Send text records to ``handler`` in place of standard error; JSON stays where it is."""
    root = logging.getLogger()
    for former in root.handlers:
        if isinstance(former, _StandardError) and not isinstance(former.formatter, JsonFormatter):
            root.removeHandler(former)
            root.addHandler(handler)
            return


class _StandardError(logging.StreamHandler[TextIO]):
    """The handler of :func:`configure_logging`."""


def _configure_logging(level: str, log_format: str) -> None:
    """Keep the handlers that are there: a program that calls a command's function has its own."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    if not root.handlers:
        handler = _StandardError()
        handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter(TEXT_FORMAT))
        root.addHandler(handler)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An exception that ends the process has foreign text in it as others do."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logging.getLogger(__name__).critical("uncaught exception", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def _read_variable(environment: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str | None:
    value = environment.get(name)
    if value and value not in allowed:
        raise ValueError(f"environment variable {name}: {value[:40]!r} is not allowed; use one of {', '.join(allowed)}")
    return value or None
