"""``paternoster bench``: what a server, an engine or a fleet's settings are worth, measured."""

import argparse
from collections.abc import Sequence
from typing import Any

from paternoster_engine.commands.bench import calibrate, compare, offline, serve, tune

HELP = "measure: a server, the engine in process, its step costs, its live cap, one mode against another"

SUBCOMMANDS = {"serve": serve, "offline": offline, "calibrate": calibrate, "tune": tune, "compare": compare}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="bench", metavar="BENCHMARK")
    for name, module in SUBCOMMANDS.items():
        subparser = subparsers.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(subparser)
        subparser.set_defaults(run_bench=module.run)
    parser.add_argument(
        "--calibrate",
        nargs=argparse.REMAINDER,
        action=_Calibrate,
        parser=subparsers.choices["calibrate"],
        help="the same as the benchmark calibrate, with its flags",
    )
    parser.set_defaults(usage_error=parser.error)


def run(args: argparse.Namespace) -> int:
    if not hasattr(args, "run_bench"):
        args.usage_error(f"needs a benchmark: one of {', '.join(SUBCOMMANDS)}")
    return int(args.run_bench(args))


class _Calibrate(argparse.Action):
    """Hands the rest of the command line to the calibration's own parser."""

    def __init__(self, *args: Any, parser: argparse.ArgumentParser, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parser = parser

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        self._parser.parse_args([str(value) for value in values or ()], namespace)
        namespace.run_bench = calibrate.run
