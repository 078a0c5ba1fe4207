"""``paternoster batch submit``, ``list``, ``watch``, ``results`` and ``cancel``: a user's side of the Batch API."""

import argparse
import asyncio
import os
from pathlib import Path

from paternoster_contract.cli.terminal import print_error
from paternoster_contract.labels import API_KEY_ENV

HELP = {
    "submit": "validate a file of requests, upload it and create its batch; prints the batch's id",
    "list": "print the newest batches",
    "watch": "show how far a batch is, with tokens and an estimate of its end, until it has ended",
    "results": "write the results of a batch that has ended, or those so far",
    "cancel": "cancel a batch; what is answered is kept",
}
EPILOG = (
    f"The key in ${API_KEY_ENV} is sent as a bearer token. Exit codes: 0; 1 where lines of the file may not run, or "
    "the batch did not answer each of its lines; 2 for wrong usage, or where the service refuses or cannot be reached."
)


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of ``paternoster batch``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", help=", ".join(HELP))
    parsers = {
        name: actions.add_parser(name, help=text, description=text, epilog=EPILOG) for name, text in HELP.items()
    }
    for each in parsers.values():
        each.add_argument(
            "--url", required=True, metavar="URL", help="the batch service, such as http://127.0.0.1:8090"
        )
    for name in ("watch", "results", "cancel"):
        parsers[name].add_argument("batch", metavar="ID", help="id of the batch")
    parsers["submit"].add_argument("file", type=Path, metavar="FILE", help="JSONL, a request a line")
    parsers["submit"].add_argument(
        "--endpoint", default="/v1/chat/completions", metavar="PATH", help="url of all lines (default: %(default)s)"
    )
    parsers["submit"].add_argument(
        "--window", default="24h", help="time in which lines are answered, 15m to 30d (default: %(default)s)"
    )
    parsers["list"].add_argument(
        "--limit", type=int, default=20, metavar="N", help="most batches that are printed (default: %(default)s)"
    )
    parsers["results"].add_argument(
        "--after", type=int, metavar="N",
        help="those so far, in the order in which they came, behind the first N (default: all, once the batch has "
        "ended: those answered and then those failed, each in the order of the lines)",
    )  # fmt: skip
    parsers["results"].add_argument("-o", "--output", type=Path, metavar="FILE", help="default: standard output")


def run_action(args: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    from paternoster_batch.batch_client import ServiceError

    try:
        _check_flags(args)
        return asyncio.run(_act(args))
    except (ServiceError, ValueError, OSError) as error:
        print_error(f"paternoster batch {args.action}: {error}")
        return 2


def _check_flags(args: argparse.Namespace) -> None:
    """Raise ``ValueError`` for a value that cannot be."""
    from paternoster_batch.completion_window import parse_window
    from paternoster_batch.input_file import ENDPOINTS

    if not args.url.startswith(("http://", "https://")):
        raise ValueError(f"--url is {args.url!r}: must be a URL such as http://127.0.0.1:8090")
    if args.action == "submit":
        if args.endpoint not in ENDPOINTS:
            raise ValueError(f"--endpoint is {args.endpoint!r}: must be one of {', '.join(ENDPOINTS)}")
        try:
            parse_window(args.window)
        except ValueError as error:
            raise ValueError(f"--window is {error}") from None
    for name, least in (("limit", 1), ("after", 0)):
        if (number := getattr(args, name, None)) is not None and number < least:
            raise ValueError(f"--{name} is {number}: must be at least {least}")


async def _act(args: argparse.Namespace) -> int:
    from paternoster_batch import client_actions
    from paternoster_batch.batch_client import BatchClient

    async with BatchClient(args.url, os.environ.get(API_KEY_ENV)) as client:
        match args.action:
            case "submit":
                return await client_actions.submit_file(client, args.file, args.endpoint, args.window)
            case "list":
                return await client_actions.list_batches(client, args.limit)
            case "watch":
                return await client_actions.watch_batch(client, args.batch)
            case "results":
                return await client_actions.read_results(client, args.batch, args.after, args.output)
            case _:
                return await client_actions.cancel_batch(client, args.batch)
