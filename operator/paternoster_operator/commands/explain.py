"""``paternoster explain``: why a fleet is as it is."""

import argparse

from paternoster_contract.cli.terminal import print_error, print_json, print_lines
from paternoster_operator.commands import resource

HELP = "tell why a fleet has the replicas and the cap that it has"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    resource.add_arguments(parser)
    parser.add_argument(
        "--last",
        type=_parse_positive,
        default=10,
        metavar="N",
        help="decisions that are told (default: all that are kept)",
    )
    parser.add_argument("--json", action="store_true", help="the same as one JSON document")


def run(args: argparse.Namespace) -> int:
    from paternoster_operator.terminal.explain import explain_status, summarize_status

    try:
        document = resource.find_resource(args)
    except OSError as error:
        print_error(f"paternoster explain: {error}")
        return 1
    if args.json:
        print_json(summarize_status(document, last=args.last), indent=2)
    else:
        print_lines(explain_status(document, last=args.last))
    return 0


def _parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be a whole number of at least 1")
    return int(text)
