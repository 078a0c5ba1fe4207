"""``paternoster simulate``: what a manifest would do under some traffic, in virtual time."""

import argparse

from paternoster_contract.cli.terminal import print_error
from paternoster_contract.flags import flag_errors

HELP = "simulate a fleet in virtual time: the real scheduler, routing and scaling law on a hardware profile"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--file", required=True, metavar="FILE", help="manifest with one LLMDeployment")
    parser.add_argument(
        "--trace",
        default="synthetic",
        metavar="TRACE",
        help="a trace file as for `paternoster load`, or synthetic[:PATTERN] with PATTERN one of constant, step, "
        "spike, bursts, day-night, ramp (default: synthetic)",
    )
    parser.add_argument(
        "--profile",
        default="llama-3-8b-h100",
        metavar="NAME|FILE",
        help="hardware profile that comes with the package, or a YAML file (default: %(default)s)",
    )
    parser.add_argument("--policy", default="paternoster", metavar="NAME", help="who decides (default: %(default)s)")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument(
        "--rate", type=_parse_positive, metavar="R", help="requests per second on average (default: as recorded)"
    )
    speed.add_argument("--speed", type=_parse_positive, metavar="X", help="play a trace file X times as fast")
    parser.add_argument(
        "--duration",
        type=_parse_positive,
        metavar="S",
        help="virtual seconds (default: the trace once; synthetic: 600)",
    )
    parser.add_argument(
        "--start-replicas", type=int, metavar="N", help="replicas that serve at the start (default: the fewest allowed)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of traffic and faults (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the outcome as one JSON document")
    parser.add_argument("--report", metavar="FILE", help="write a page with charts")


def run(args: argparse.Namespace) -> int:
    from paternoster_simulator.session import run_session

    try:
        run_session(args)
    except ValueError as error:
        for line in flag_errors(error):
            print_error(f"paternoster simulate: {line}")
        return 2
    return 0


def _parse_positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"is {text}: must be a finite number above 0")
    return value
