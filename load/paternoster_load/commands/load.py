"""``paternoster bench serve``, and ``paternoster load``: drive a server and report what its users saw."""

import argparse
import os

from paternoster_contract.labels import API_KEY_ENV
from paternoster_load.commands.outcome import finish_command
from paternoster_load.commands.traffic_flags import add_pace_flags, add_report_flags, add_traffic_flags

HELP = "drive an OpenAI-compatible server with a trace or synthetic traffic and print a report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", "--base-url", required=True, metavar="URL", help="base URL, such as http://127.0.0.1:8000"
    )
    parser.add_argument("--model", metavar="NAME", help="served model (default: the first of /v1/models)")
    add_pace_flags(parser)
    parser.add_argument("--num-warmups", type=int, default=0, metavar="N", help="requests sent first and not counted")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="a request without an end by then is lost"
    )
    add_traffic_flags(parser)
    add_report_flags(parser)
    parser.epilog = (
        f"The key in ${API_KEY_ENV} is sent as a bearer token. "
        "Exit code 1 if any request was lost: neither completed nor answered with an error that says why."
    )


def run(args: argparse.Namespace) -> int:
    def run_session() -> int:
        import asyncio

        from paternoster_load.client import ServerError
        from paternoster_load.session import LoadSession

        load = LoadSession.from_namespace(args, api_key=os.environ.get(API_KEY_ENV))
        try:
            reports = asyncio.run(load.run())
        except ServerError as error:
            raise ValueError(str(error)) from error
        return 1 if any(report["lost"] for report in reports) else 0

    return finish_command("paternoster load" if args.command == "load" else "paternoster bench serve", run_session)
