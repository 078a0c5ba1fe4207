"""The settings of an engine in this process: flags of ``paternoster serve`` after ``--``."""

import argparse
from collections.abc import Collection, Sequence

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.commands import serve


def add_serve_flags(parser: argparse.ArgumentParser, own: Collection[str] = ()) -> None:
    """Have ``parser`` read what follows ``--``; flags of ``paternoster serve`` before it are errors that say so.

    ``own``: settings whose flags ``parser`` has with a meaning of its own.
    """
    parser.add_argument(
        "serve_flags",
        nargs="*",
        metavar="-- SERVE FLAGS",
        help="the engine in this process, as `paternoster serve` describes it; `-- --help` lists its flags",
    )
    EngineArgs.refuse_flags(parser, "is a flag of `paternoster serve`: must follow `--`", own)


def read_serve_flags(command: str, flags: Sequence[str]) -> EngineArgs:
    """Read flags as ``paternoster serve`` does; exits with status 2, or raises ``ValueError`` naming flag and value."""
    parser = argparse.ArgumentParser(prog=f"{command} --", usage=f"{command} [FLAGS] -- [MODEL] [SERVE FLAGS]")
    serve.add_arguments(parser)
    return serve.read_engine_args(parser.parse_args(flags))
