"""``paternoster profile``: a fleet that runs as a hardware profile, for ``paternoster simulate --profile``."""

import argparse
from pathlib import Path

from paternoster_contract.cli.terminal import print_error, print_text
from paternoster_operator.commands import resource

HELP = "write what is learnt of a fleet's engines as a hardware profile for 'paternoster simulate'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    resource.add_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write it there (default: print it)")


def run(args: argparse.Namespace) -> int:
    from paternoster_operator.terminal.profile import hardware_profile

    try:
        text = hardware_profile(resource.find_resource(args))
        if args.output is None:
            print_text(text.rstrip("\n"))
        else:
            Path(args.output).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        print_error(f"paternoster profile: {error}")
        return 1
    return 0
