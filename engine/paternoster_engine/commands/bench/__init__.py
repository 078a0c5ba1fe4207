"""``paternoster bench``: what a server, an engine or a fleet's settings are worth, measured."""

import argparse

from paternoster_contract.flags import RemovedFlag
from paternoster_engine.commands.bench import calibrate, compare, offline, tune
from paternoster_load.commands import load

HELP = "measure: a server, the engine in process, its step costs, its live cap, one mode against another"

SUBCOMMANDS = {"serve": load, "offline": offline, "calibrate": calibrate, "tune": tune, "compare": compare}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="bench", metavar="BENCHMARK")
    for name, module in SUBCOMMANDS.items():
        subparser = subparsers.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(subparser)
        subparser.set_defaults(run_bench=module.run)
    parser.add_argument("--calibrate", action=RemovedFlag, instead="was removed: use `paternoster bench calibrate`")
    parser.set_defaults(usage_error=parser.error)


def run(args: argparse.Namespace) -> int:
    if not hasattr(args, "run_bench"):
        args.usage_error(f"needs a benchmark: one of {', '.join(SUBCOMMANDS)}")
    return int(args.run_bench(args))
