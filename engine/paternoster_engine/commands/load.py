"""``paternoster load``: drive a server with realistic traffic and report what its users saw."""

import argparse
import os
import sys

from paternoster_contract.labels import API_KEY_ENV

HELP = "drive an OpenAI-compatible server with a trace or synthetic traffic and print a report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", required=True, metavar="URL", help="base URL, such as http://127.0.0.1:8000")
    parser.add_argument("--model", metavar="NAME", help="served model (default: the first of /v1/models)")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--trace", metavar="FILE", help="replay a trace: simplified CSV, Azure CSV, BurstGPT CSV or Mooncake JSON lines"
    )
    source.add_argument(
        "--synthetic", action="store_true", help="chat traffic shaped like the Azure 2023 conversation trace (default)"
    )
    parser.add_argument(
        "--num-prompts", type=int, metavar="N", help="requests to send (default: 100; with --trace: all rows)"
    )
    parser.add_argument("--sample", action="store_true", help="pick N trace rows at random, arriving all at once")
    parser.add_argument(
        "--request-rate",
        type=float,
        metavar="R",
        help="requests per second, or inf for all at once (default: as recorded)",
    )
    parser.add_argument(
        "--burstiness", type=float, default=1.0, metavar="B", help="with --request-rate: 1 is Poisson, below 1 burstier"
    )
    parser.add_argument("--max-concurrency", type=int, metavar="N", help="most requests in flight (default: no bound)")
    parser.add_argument(
        "--duration", type=float, metavar="S", help="send for S seconds, repeating the requests as needed"
    )
    parser.add_argument(
        "--max-prompt-tokens", type=int, metavar="N", help="clip prompts (default: the context, if the server tells it)"
    )
    parser.add_argument("--max-output-tokens", type=int, metavar="N", help="clip outputs (default: half the context)")
    parser.add_argument(
        "--min-output-tokens", type=int, default=1, metavar="N", help="raise outputs to this (default: 1)"
    )
    parser.add_argument("--prompt-text", metavar="FILE", help="text that prompts are cut from (default: sonnets)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="default: 0, greedy")
    parser.add_argument("--ignore-eos", action="store_true", help="generate exactly the trace's output lengths")
    parser.add_argument("--seed", type=int, default=0, help="of rows, arrivals and prompts (default: 0)")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="a request without an end by then is lost"
    )
    parser.add_argument("--json", action="store_true", help="print the result document alone")
    parser.add_argument("--save-result", metavar="FILE", help="write the result document")
    parser.add_argument("--save-detailed", action="store_true", help="with --save-result: per-request numbers too")
    parser.add_argument("--html", metavar="FILE", help="write a report page with charts")
    parser.epilog = (
        f"The key in ${API_KEY_ENV} is sent as a bearer token. "
        "Exit code 1 if any request was lost: neither completed nor answered with an error that says why."
    )


def run(args: argparse.Namespace) -> int:
    import asyncio

    from paternoster_engine.bench.client import ServerError
    from paternoster_engine.bench.session import LoadSession

    try:
        session = LoadSession.from_namespace(args, api_key=os.environ.get(API_KEY_ENV))
        report = asyncio.run(session.run())
    except (ValueError, ServerError) as error:
        print(f"paternoster load: {error}", file=sys.stderr)
        return 2
    return 1 if report["lost"] else 0
