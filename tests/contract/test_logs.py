"""Logs of commands: level and format from flags and environment, one line of JSON a record."""

import argparse
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points

import pytest

from paternoster_contract.cli import logs
from paternoster_contract.cli.command import main
from paternoster_contract.cli.subcommands import GROUP


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The root logger; what a command writes to the environment is undone."""
    for variable in (logs.LEVEL_VARIABLE, logs.FORMAT_VARIABLE):
        monkeypatch.setenv(variable, "")
    root = logging.getLogger()
    level = root.level
    yield root
    root.setLevel(level)


@contextmanager
def new_process(*handlers: logging.Handler) -> Iterator[None]:
    """The root logger has only these handlers, and none of pytest's."""
    root = logging.getLogger()
    before, root.handlers = root.handlers, list(handlers)
    try:
        yield
    finally:
        root.handlers = before


def configure(*flags: str) -> None:
    parser = argparse.ArgumentParser()
    logs.add_log_flags(parser, default_level="info")
    logs.configure_logging(parser.parse_args(flags))


def test_json_record_is_one_line_with_traceback(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    with new_process():
        configure("--log-format", "json")
        try:
            raise RuntimeError("lost\n\x1b[31m")
        except RuntimeError:
            logging.getLogger("paternoster.test").exception("cannot read %r", "a\nb")
    (line,) = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert (record["level"], record["logger"], record["message"]) == (
        "error",
        "paternoster.test",
        r"cannot read 'a\nb'",
    )
    assert "RuntimeError: lost" in record["exception"]
    assert record["time"].endswith("+00:00")
    assert line.isascii()
    assert line.isprintable()


def test_text_records_from_the_default_level_on(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    with new_process():
        configure()
        logging.getLogger("a").debug("hidden")
        logging.getLogger("a").info("shown")
    assert capsys.readouterr().err.endswith(" INFO a: shown\n")


def test_flag_wins_over_environment_and_reaches_children(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(logs.LEVEL_VARIABLE, "error")
    configure()
    assert root.level == logging.ERROR
    configure("--log-level", "debug", "--log-format", "json")
    assert root.level == logging.DEBUG
    with new_process():
        logs.configure_child_logging("warning")
        assert root.level == logging.DEBUG
        assert isinstance(root.handlers[0].formatter, logs.JsonFormatter)


def test_console_replaces_text_but_not_json(root: logging.Logger) -> None:
    console = logging.NullHandler()
    with new_process():
        configure("--log-format", "json")
        logs.log_through(console)
        assert console not in root.handlers
    with new_process():
        configure("--log-format", "text")
        logs.log_through(console)
        assert root.handlers == [console]


def test_handlers_of_a_calling_program_stay(root: logging.Logger) -> None:
    own = logging.NullHandler()
    with new_process(own):
        configure()
        assert root.handlers == [own]


def test_unknown_value_of_a_variable_is_named(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(logs.LEVEL_VARIABLE, "loud")
    assert main(["get"]) == 2
    assert capsys.readouterr().err == (
        "paternoster get: environment variable PATERNOSTER_LOG_LEVEL: 'loud' is not allowed; "
        "use one of debug, info, warning, error\n"
    )


@pytest.mark.parametrize("name", sorted(entry.name for entry in entry_points(group=GROUP)))
def test_every_command_has_the_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert "--log-level {debug,info,warning,error}" in shown
    assert "--log-format {text,json}" in shown
