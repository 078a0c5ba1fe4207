"""Flags that every benchmark with requests shares."""

import argparse


def add_traffic_flags(parser: argparse.ArgumentParser) -> None:
    """Which requests: a trace or synthetic ones, how long, and when."""
    group = parser.add_argument_group("traffic")
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--trace",
        "--dataset-path",
        metavar="FILE",
        help="replay a trace: simplified CSV, Azure CSV, BurstGPT CSV or Mooncake JSON lines",
    )
    source.add_argument(
        "--synthetic", action="store_true", help="chat traffic shaped like the Azure 2023 conversation trace (default)"
    )
    group.add_argument(
        "--num-prompts", type=int, metavar="N", help="requests to send (default: 100; with --trace: all rows)"
    )
    group.add_argument("--sample", action="store_true", help="pick N trace rows at random, arriving all at once")
    group.add_argument(
        "--burstiness", type=float, default=1.0, metavar="B", help="with --request-rate: 1 is Poisson, below 1 burstier"
    )
    group.add_argument(
        "--duration", type=float, metavar="S", help="send for S seconds, repeating the requests as needed"
    )
    group.add_argument(
        "--max-prompt-tokens",
        type=int,
        metavar="N",
        help="clip prompts (default: the context, if the server reports it)",
    )
    group.add_argument("--max-output-tokens", type=int, metavar="N", help="clip outputs (default: half the context)")
    group.add_argument(
        "--min-output-tokens", type=int, default=1, metavar="N", help="raise outputs to this (default: 1)"
    )
    group.add_argument("--prompt-text", metavar="FILE", help="text that prompts are cut from (default: sonnets)")
    group.add_argument("--temperature", type=float, default=0.0, metavar="T", help="default: 0, greedy")
    group.add_argument("--ignore-eos", action="store_true", help="generate exactly the trace's output lengths")
    group.add_argument("--seed", type=int, default=0, help="of rows, arrivals and prompts (default: 0)")


def add_pace_flags(parser: argparse.ArgumentParser) -> None:
    """How fast; a list is a sweep, one run for each value."""
    parser.add_argument(
        "--request-rate",
        type=_parse_floats,
        metavar="R[,R...]",
        help="requests per second, or inf for all at once (default: as recorded); a list is a sweep",
    )
    parser.add_argument(
        "--max-concurrency",
        type=_parse_counts,
        metavar="N[,N...]",
        help="most requests in flight (default: no bound); a list is a sweep",
    )


def add_report_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of the report: its parts and where they go."""
    group = parser.add_argument_group("report")
    group.add_argument(
        "--goodput",
        nargs="+",
        metavar="KEY:MS",
        help="count requests within all of these as goodput; KEY is ttft, tpot, itl (mean of the request) or e2el",
    )
    group.add_argument(
        "--metric-percentiles",
        type=_parse_floats,
        default=[99.0],
        metavar="P[,P...]",
        help="percentiles of the report (default: 99)",
    )
    group.add_argument("--json", action="store_true", help="print the result document alone")
    group.add_argument("--save-result", metavar="FILE", help="write the result document")
    group.add_argument("--save-detailed", action="store_true", help="with --save-result: per-request numbers too")
    group.add_argument("--html", metavar="FILE", help="write a report page with charts")


def _parse_floats(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be numbers with commas between them") from None


def _parse_counts(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be whole numbers with commas between them") from None
