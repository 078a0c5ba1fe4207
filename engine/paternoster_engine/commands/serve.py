"""``paternoster serve``: one engine and its HTTP server."""

import argparse
import contextlib
import gc
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paternoster_contract.cli.terminal import print_error

if TYPE_CHECKING:
    from paternoster_engine.engine import Engine
    from paternoster_engine.model.config import ModelDescription
    from paternoster_engine.model.tokenizer import Tokenizer
    from paternoster_engine.start_timer import StartTimer

from paternoster_contract.flags import flag_errors
from paternoster_contract.labels import MODEL_EXIT_STATUS
from paternoster_contract.settings.engine_args import EngineArgs

HELP = "serve a model over the OpenAI API"
LOG_LEVEL = "info"

STALL_TIMEOUT_ENV = "PATERNOSTER_STALL_TIMEOUT"
DEFAULT_STALL_TIMEOUT = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "address",
        nargs="?",
        metavar="MODEL",
        help="the model, as --model names it; also org/name of the hub, or the path of a file or a folder",
    )
    EngineArgs.add_flags(parser)
    for flag, port in (("--fd", "--port"), ("--admin-fd", "--admin-port")):
        parser.add_argument(
            flag,
            type=int,
            metavar="DESCRIPTOR",
            help=f"inherited descriptor of a bound TCP socket to listen on; then --host and {port} bind nothing",
        )
    parser.epilog = (
        "/health answers 503 once a step lasts 20 times as long as the longest of its size lately, and at least 8 s; "
        f"the first of a size, ${STALL_TIMEOUT_ENV} seconds (default: {DEFAULT_STALL_TIMEOUT:g}). SIGTERM drains, a "
        "second one ends at once. "
        f"Exit status {MODEL_EXIT_STATUS}: the model cannot be served; 2: a setting cannot; 1: the engine failed, or "
        "the model cannot be fetched now. Models are fetched into $PATERNOSTER_MODELS, as by `paternoster pull`."
    )


def run(args: argparse.Namespace) -> int:
    try:
        engine_args = read_engine_args(args)
    except ValueError as error:
        for line in flag_errors(error):
            print_error(f"paternoster serve: {line}")
        return 2
    # Until the model is served: what is imported and loaded lives as long as the process.
    gc.disable()
    try:
        return _serve_model(engine_args, args.fd, args.admin_fd)
    except ValueError as error:
        from paternoster_engine.model.errors import ModelError, ModelUnavailable

        logging.getLogger(__name__).debug("cannot serve", exc_info=error)
        for line in flag_errors(error):
            print_error(f"paternoster serve: {line}")
        if isinstance(error, ModelUnavailable):
            return 1
        return MODEL_EXIT_STATUS if isinstance(error, ModelError) else 2
    finally:
        gc.enable()


def read_engine_args(args: argparse.Namespace) -> EngineArgs:
    """The settings that the flags of ``paternoster serve`` give; raises ``ValueError`` naming flag and value."""
    if args.address is not None:
        if args.model is not None:
            raise ValueError(f"MODEL is {args.address!r} and --model {args.model!r}: give one")
        args.model = model_address(args.address)
    elif args.model is None and (names := _names_before_model(args.served_model_name or ())):
        raise ValueError(f"--served-model-name is {' '.join(names)}: must follow MODEL, or MODEL is given with --model")
    return EngineArgs.from_namespace(args)


def _names_before_model(given: Sequence[Sequence[str]]) -> Sequence[str]:
    """The values of a ``--served-model-name`` that may have taken MODEL for a further name; empty where none has."""
    return next((names for names in given if len(names) > 1), ())


def model_address(text: str) -> str:
    """Return ``text`` with a scheme: a path that exists is ``file://``, and any other ``org/name`` is ``hf://``."""
    if "://" in text:
        return text
    path = Path(text)
    if path.exists() or path.is_absolute() or text.startswith("."):
        return path.resolve().as_uri()
    return f"hf://{text}"


def _serve_model(args: EngineArgs, fd: int | None, admin_fd: int | None) -> int:
    """Raises ``ValueError`` for a setting or a model that cannot be served."""
    import asyncio

    import uvloop

    from paternoster_engine.server.process import EngineLost, EngineProcess
    from paternoster_engine.server.state import ServerState

    stall_timeout = _stall_timeout()

    async def serve(listener: socket.socket, admin_listener: socket.socket | None) -> None:
        state = ServerState(stall_timeout=stall_timeout)
        await EngineProcess(args, listener, state, _build_engine, admin_listener).run()

    with contextlib.ExitStack() as opened:
        # Before the model: a port in use should not cost the time of loading it.
        listener = opened.enter_context(_inherit_listener("--fd", fd) or _open_port(args.host, "--port", args.port))
        admin_listener = _inherit_listener("--admin-fd", admin_fd)
        if admin_fd is not None:
            args.check_admin_keys(f"--admin-fd is {admin_fd}")
        if admin_listener is None and args.admin_port is not None:
            admin_listener = _open_port(args.host, "--admin-port", args.admin_port)
        if admin_listener is not None:
            opened.enter_context(admin_listener)
        runner = opened.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        try:
            runner.run(serve(listener, admin_listener))
        except EngineLost as error:
            print_error(f"paternoster serve: the engine cannot go on: {error}")
            return 1
    return 0


def _inherit_listener(flag: str, descriptor: int | None) -> socket.socket | None:
    """The socket that the flag names, None without one; raises ``ValueError`` naming the flag."""
    from paternoster_http.listeners import inherited_listener

    if descriptor is None:
        return None
    try:
        return inherited_listener(descriptor)
    except OSError as error:
        raise ValueError(f"{flag} is {descriptor}: {error}: must be the descriptor of a bound TCP socket") from error


def _open_port(host: str, flag: str, port: int) -> socket.socket:
    """Raises ``ValueError`` naming the flag."""
    from paternoster_http.listeners import open_listener

    try:
        return open_listener(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"cannot listen on --host {host} {flag} {port}: {reason}; choose another or 0 for a free port"
        ) from error


def _build_engine(args: EngineArgs, timer: "StartTimer") -> "tuple[Engine, Tokenizer, ModelDescription]":
    # Imported in the loading thread: torch alone takes seconds, in which probes are answered already.
    from paternoster_engine.build import build_engine

    return build_engine(args, timer)


def _stall_timeout() -> float:
    text = os.environ.get(STALL_TIMEOUT_ENV, str(DEFAULT_STALL_TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"${STALL_TIMEOUT_ENV} is {text!r}: must be a number of seconds above 0")
    return seconds
