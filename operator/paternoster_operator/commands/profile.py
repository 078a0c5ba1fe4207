"""``paternoster profile``: a fleet that runs as a hardware profile, for ``paternoster simulate --profile``."""

import argparse
import sys
from pathlib import Path

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
            print(text, end="")
        else:
            Path(args.output).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"paternoster profile: {error}", file=sys.stderr)
        return 1
    return 0
