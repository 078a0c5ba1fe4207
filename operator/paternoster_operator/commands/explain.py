"""``paternoster explain``: why a fleet is as it is, and why a request took as long as it did."""

import argparse
from pathlib import Path

from paternoster_contract.cli.terminal import print_error, print_json, print_lines
from paternoster_operator.commands import resource

HELP = "print why a fleet has the replicas and the cap that it has, or why a request took as long as it did"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the LLMDeployment")
    resource.add_source_arguments(parser)
    calls = parser.add_mutually_exclusive_group()
    calls.add_argument(
        "--request",
        metavar="ID",
        help="the call with this X-Request-Id; --server is then a gateway's port of statistics",
    )
    calls.add_argument(
        "--slowest", type=_parse_positive, metavar="N", help="the slowest of the last calls of a gateway"
    )
    parser.add_argument("--tenant", help="with --slowest: of this tenant alone")
    parser.add_argument(
        "--gateway-key", type=Path, metavar="FILE", help="root key of that gateway (default: that of 'paternoster up')"
    )
    parser.add_argument(
        "--last",
        type=_parse_positive,
        default=10,
        metavar="N",
        help="decisions that are told (default: all that are kept)",
    )
    parser.add_argument("--json", action="store_true", help="the same as one JSON document")


def run(args: argparse.Namespace) -> int:
    if args.request is not None or args.slowest is not None:
        return _explain_calls(args)
    from paternoster_operator.terminal.explain import explain_status, summarize_status

    if args.name is None:
        print_error("paternoster explain: needs the name of an LLMDeployment, --request ID or --slowest N")
        return 2
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


def _explain_calls(args: argparse.Namespace) -> int:
    from paternoster_operator.local.client import fetch_calls
    from paternoster_operator.terminal.call_page import describe_calls

    try:
        found = fetch_calls(args.server, args.gateway_key, args.request, args.slowest, args.tenant)
    except ValueError as error:
        print_error(f"paternoster explain: {error}")
        return 2
    except OSError as error:
        print_error(f"paternoster explain: {error}")
        return 1
    if args.json:
        print_json(found, indent=2)
    else:
        print_lines(describe_calls(found))
    return 0


def _parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be a whole number of at least 1")
    return int(text)
