"""``paternoster bench tune``: walk ``max_num_seqs`` down until preemptions stay under their target."""

import argparse
import os

from paternoster_contract.labels import ADMIN_KEY_ENV, ADMIN_PORT, API_KEY_ENV
from paternoster_engine.commands.bench.serve_flags import add_serve_flags, read_serve_flags
from paternoster_load.commands.outcome import finish_command
from paternoster_load.commands.traffic_flags import add_traffic_flags

HELP = "walk max_num_seqs down until preemptions stay under their target, and show what each value costs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", metavar="URL", help="one running engine, tuned by its admin API (default: an engine in this process)"
    )
    parser.add_argument(
        "--admin-url",
        metavar="URL",
        help=f"the engine's admin API, as its `--admin-port` opens it (default: port {ADMIN_PORT} of the URL's host)",
    )
    parser.add_argument("--start", type=int, metavar="N", help="first value (default: the engine's capacity)")
    parser.add_argument(
        "--preemption-target",
        type=float,
        default=2.0,
        metavar="PERCENT",
        help="most requests preempted, of those finished (default: 2)",
    )
    parser.add_argument(
        "--decrease-percent", type=int, default=20, metavar="N", help="how much lower each value is (default: 20)"
    )
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="a request without an end by then is lost"
    )
    parser.add_argument("--json", action="store_true", help="print all reports as one JSON document")
    add_traffic_flags(parser)
    add_serve_flags(parser)
    parser.set_defaults(max_concurrency=None, metric_percentiles=[99.0])
    parser.epilog = (
        f"The keys in ${API_KEY_ENV} and ${ADMIN_KEY_ENV} are sent as bearer tokens. Exit code 1 if no value was low "
        "enough. A running engine gets the cap back that it had; it should have no other traffic meanwhile."
    )


def run(args: argparse.Namespace) -> int:
    def run_session() -> int:
        from paternoster_engine.bench.tuning import TuneSession
        from paternoster_load.client import ServerError

        keys = {"api_key": os.environ.get(API_KEY_ENV), "admin_key": os.environ.get(ADMIN_KEY_ENV)}
        engine_args = read_serve_flags("paternoster bench tune", args.serve_flags)
        try:
            reports = TuneSession.from_namespace(args, engine_args, **keys).run()
        except ServerError as error:
            raise ValueError(str(error)) from error
        return 0 if reports[-1]["preemption_rate"] * 100 <= args.preemption_target else 1

    return finish_command("paternoster bench tune", run_session)
