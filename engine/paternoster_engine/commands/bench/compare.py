"""``paternoster bench compare``: modes of the engine, or servers, on the same requests."""

import argparse
import os

from paternoster_contract.labels import API_KEY_ENV
from paternoster_engine.commands.bench.serve_flags import add_serve_flags, read_serve_flags
from paternoster_load.commands.outcome import finish_command
from paternoster_load.commands.traffic_flags import add_pace_flags, add_traffic_flags

HELP = "modes of the engine, or servers, on the same requests in turns: ratios with their spread"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--modes",
        default="static,dynamic,continuous",
        metavar="MODE,MODE[,MODE]",
        help="modes of the engine, in process; the first is the baseline (default: %(default)s)",
    )
    parser.add_argument(
        "--url", action="append", metavar="URL", help="a running server instead; twice or more, the first the baseline"
    )
    parser.add_argument(
        "--model", metavar="NAME", help="with --url: the served model (default: the first of /v1/models)"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each, in turns (default: 3)")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="a request without an end by then is lost"
    )
    parser.add_argument("--json", action="store_true", help="print the result document alone")
    parser.add_argument("--save-result", metavar="FILE", help="write the result document")
    add_pace_flags(parser)
    add_traffic_flags(parser)
    add_serve_flags(parser, own=("model",))
    parser.set_defaults(metric_percentiles=[99.0])
    parser.epilog = f"The key in ${API_KEY_ENV} is sent as a bearer token. Exit code 1 if any request was lost."


def run(args: argparse.Namespace) -> int:
    def run_session() -> int:
        from paternoster_engine.bench.comparison import CompareSession
        from paternoster_load.client import ServerError

        engine_args = read_serve_flags("paternoster bench compare", args.serve_flags)
        try:
            runs = CompareSession.from_namespace(args, engine_args, api_key=os.environ.get(API_KEY_ENV)).run()
        except ServerError as error:
            raise ValueError(str(error)) from error
        return 1 if any(report["lost"] for reports in runs.values() for report in reports) else 0

    return finish_command("paternoster bench compare", run_session)
