"""``paternoster picker``: picks replicas for Envoy, as the gateway does for its own requests."""

import argparse
import asyncio
from pathlib import Path

from pydantic import ValidationError

from paternoster_contract.cli.terminal import print_error, print_line
from paternoster_contract.flags import flag_errors
from paternoster_contract.http.base_url import join_base_url
from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_gateway.picker.limits import PickerLimits

HELP = "pick replicas for Envoy: an endpoint picker of the Gateway API Inference Extension"
LOG_LEVEL = "info"
DRAIN_SECONDS = 20
"""Time after SIGTERM for requests without a replica; a pod has 30 s by default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--routes", required=True, metavar="URL|FILE", help="the routing table: the operator's /routes, or a JSON file"
    )
    parser.add_argument(
        "--engine-key",
        type=Path,
        metavar="PATH",
        help="a file or folder with the root keys from which the keys for engines and operator are made: Envoy sends "
        "that of the fleet in place of the client's, so that none but Envoy may reach --port",
    )
    parser.add_argument(
        "--last-routes",
        type=Path,
        metavar="FILE",
        help="copy of the routing table that the operator keeps (--routes-secret), used until --routes has given one",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=9002, help="port of ext_proc; 0 takes a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--health-port",
        type=int,
        default=9003,
        help="port of gRPC's health checks; 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--stats-port",
        type=int,
        default=9090,
        help="port of /stats, /metrics and /ready; 0 takes a free one (default: %(default)s)",
    )
    PickerLimits.add_flags(parser.add_argument_group("limits", "what one request may cost, and all together"))


def run(args: argparse.Namespace) -> int:
    import uvloop

    try:
        limits = PickerLimits.from_namespace(args)
    except ValidationError as error:
        for line in flag_errors(error):
            print_error(f"paternoster picker: {line}")
        return 2
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(args, limits))
    except OSError as error:
        print_error(f"paternoster picker: cannot listen: {error}")
        return 2
    return 0


async def _serve(args: argparse.Namespace, limits: PickerLimits) -> None:
    from paternoster_gateway.picker.server import PickerPorts, run_picker
    from paternoster_gateway.process.drain import Server, Shutdown
    from paternoster_http.listeners import bind_socket

    shutdown, ports = Shutdown(), PickerPorts(args.host, args.port, args.health_port)
    with bind_socket(args.host, args.stats_port) as listener:
        async with run_picker(
            args.routes, ports, limits, shutdown, engine_key=args.engine_key, last_routes=args.last_routes,
            drain_seconds=DRAIN_SECONDS,
        ) as picker:  # fmt: skip
            print_line(f"picking for Envoy on {picker.picks}")
            print_line(f"health on {picker.health}")
            print_line(f"statistics on {join_base_url(args.host, listener.getsockname()[1])}")
            server = Server(picker.app, HttpLimits(), shutdown, grace_seconds=0, drain_seconds=DRAIN_SECONDS)
            await server.serve(sockets=[listener])
