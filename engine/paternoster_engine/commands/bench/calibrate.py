"""``paternoster bench calibrate``: how long this machine's steps take, as a profile for ``paternoster simulate``."""

import argparse

from paternoster_engine.commands.bench.serve_flags import add_serve_flags, read_serve_flags
from paternoster_load.commands.outcome import finish_command

HELP = "time the engine's steps on this machine and write a hardware profile for `paternoster simulate --profile`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", default="profile.yaml", metavar="FILE", help="profile to write (default: %(default)s)"
    )
    parser.add_argument("--name", metavar="NAME", help="the profile's name (default: from the file's)")
    parser.add_argument(
        "--seconds", type=float, default=45.0, metavar="S", help="how long to measure, after warm-up (default: 45)"
    )
    parser.add_argument("--samples", metavar="FILE", help="write every timed step as JSON lines")
    parser.add_argument("--json", action="store_true", help="print fit and residuals as one JSON document")
    parser.add_argument("--seed", type=int, default=0, help="of the order and lengths of steps (default: 0)")
    parser.add_argument(
        "--usd-per-hour",
        type=float,
        default=0.0,
        metavar="USD",
        help="price of a replica, for the profile (default: 0)",
    )
    parser.add_argument(
        "--ttft-ms", type=float, default=5000.0, metavar="MS", help="the profile's objective (default: 5000)"
    )
    parser.add_argument(
        "--itl-ms", type=float, default=500.0, metavar="MS", help="the profile's objective (default: 500)"
    )
    add_serve_flags(parser)


def run(args: argparse.Namespace) -> int:
    def run_session() -> int:
        from paternoster_engine.bench.calibration.session import CalibrationSession

        engine_args = read_serve_flags("paternoster bench calibrate", args.serve_flags)
        CalibrationSession.from_namespace(args, engine_args).run()
        return 0

    return finish_command("paternoster bench calibrate", run_session)
