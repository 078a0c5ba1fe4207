"""``paternoster gateway``: the front door of a fleet."""

import argparse
import asyncio
import logging
import signal
import socket
import sys
from pathlib import Path

HELP = "route OpenAI requests to the replicas of a fleet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--routes", required=True, metavar="URL|FILE", help="the routing table: the operator's /routes, or a JSON file"
    )
    parser.add_argument(
        "--engine-key",
        type=Path,
        metavar="PATH",
        help="a file or folder with the root keys from which the keys for engines and operator are made: one a line, "
        "read again every second, the first is sent; without it, none is sent",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=8080, help="port to listen on; 0 takes a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--max-body-bytes", type=int, default=16 * 2**20, help="longest request body (default: %(default)s)"
    )
    parser.add_argument(
        "--farewell-seconds",
        type=float,
        default=0,
        help="seconds that SIGTERM lets clients notice and go elsewhere before nobody listens (default: %(default)s)",
    )
    parser.add_argument(
        "--drain-timeout",
        type=int,
        default=300,
        help="seconds that SIGTERM lets answers finish in (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    from paternoster_gateway.app import create_app
    from paternoster_gateway.drain import Leaving, Server

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    listener = socket.socket(socket.AF_INET6 if ":" in args.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((args.host, args.port))
    except OSError as error:
        print(f"paternoster gateway: cannot listen on {args.host}:{args.port}: {error.strerror}", file=sys.stderr)
        return 2
    leaving = Leaving()
    app = create_app(args.routes, max_body_bytes=args.max_body_bytes, engine_key=args.engine_key, leaving=leaving)
    server = Server(app, leaving, farewell_seconds=args.farewell_seconds, drain_seconds=args.drain_timeout)
    print(f"listening on http://{args.host}:{listener.getsockname()[1]}", flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asyncio.run(server.serve(sockets=[listener]))
    return 0
