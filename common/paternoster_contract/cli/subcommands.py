"""Subcommands come from entry points, so each package brings its own.

A subcommand is a module in the entry-point group ``paternoster.commands`` with ``HELP``, ``add_arguments(parser)``,
``run(args) -> int`` and, where its log begins at another level than ``warning``, ``LOG_LEVEL``. Such a module imports
its heavy dependencies inside ``run``, so that ``--help`` stays quick and an image without an extra can still say which
one is missing.
"""

import argparse
import importlib
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from paternoster_contract import __version__
from paternoster_contract.cli.logs import add_log_flags, configure_logging
from paternoster_contract.cli.terminal import print_error

GROUP = "paternoster.commands"

EXTRAS = {
    "paternoster_engine": "engine",
    "paternoster_sources": "sources",
    "paternoster_operator": "operator",
    "paternoster_gateway": "gateway",
    "paternoster_batch": "batch",
    "paternoster_load": "load",
    "paternoster_simulator": "simulator",
}
"""Package that registers a subcommand -> extra that brings what it needs."""
PICKER_MODULES = ("envoy", "grpc", "grpc_health", "google")
"""Modules that ``paternoster picker`` needs beside those of the gateway."""
LOAD_MODULES = ("aiohttp", "plotly")
"""Modules that ``paternoster bench`` needs for load and reports; the engine's extra does not bring them."""


def _import_command(entry: EntryPoint) -> ModuleType:
    return importlib.import_module(entry.value)


def missing_extra(entry: EntryPoint, error: ModuleNotFoundError) -> str:
    """One line that names the extra to install for ``entry``."""
    package, module = entry.value.partition(".")[0], (error.name or "").partition(".")[0]
    needs_load = package == "paternoster_engine" and module in LOAD_MODULES
    needs_picker = package == "paternoster_gateway" and module in PICKER_MODULES
    extra = "load" if needs_load else "picker" if needs_picker else EXTRAS.get(package, "all")
    return (
        f"paternoster {entry.name}: needs the module '{error.name}', which is not installed here; "
        f"install the extra: pip install 'paternoster[{extra}]'"
    )


def run(argv: Sequence[str]) -> int:
    """Run one subcommand and return its exit code; 2 for wrong usage, 1 for a missing extra."""
    commands = {entry.name: entry for entry in entry_points(group=GROUP)}
    parser = argparse.ArgumentParser(prog="paternoster", description="LLM fleets with continuous batching.")
    parser.add_argument("--version", action="version", version=f"paternoster {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    try:
        for name, entry in sorted(commands.items()):
            if chosen in commands and name != chosen:
                subparsers.add_parser(name)
                continue
            module = _import_command(entry)
            subparser = subparsers.add_parser(name, help=module.HELP, description=module.HELP)
            module.add_arguments(subparser)
            add_log_flags(subparser, default_level=getattr(module, "LOG_LEVEL", "warning"))
            subparser.set_defaults(run=module.run)
        args = parser.parse_args(argv)
        try:
            configure_logging(args)
        except ValueError as error:
            print_error(f"paternoster {args.command}: {error}")
            return 2
        return int(args.run(args))
    except ModuleNotFoundError as error:
        if chosen is None or chosen not in commands or (error.name or "").startswith("paternoster"):
            raise
        print_error(missing_extra(commands[chosen], error))
        return 1
    except KeyboardInterrupt:
        return 130
