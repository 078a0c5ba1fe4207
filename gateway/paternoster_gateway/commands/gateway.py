"""``paternoster gateway``: the HTTP server before the replicas of all fleets."""

import argparse
import asyncio
import gc
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from paternoster_contract.cli.terminal import print_error, print_line
from paternoster_contract.flags import RemovedFlag, flag_errors
from paternoster_contract.http.base_url import join_base_url
from paternoster_contract.http.origins import parse_origins
from paternoster_contract.settings.http_limits import HttpLimits

if TYPE_CHECKING:
    from paternoster_gateway.process.tls import Certificate

HELP = "route OpenAI requests to the replicas of a fleet"
LOG_LEVEL = "info"
GC_THRESHOLDS = (10_000, 10, 10)
"""A full collection looks at all objects of all open streams, and no stream goes on meanwhile: one in a million new
objects. None is needed for what ends, since that leaves no cycles (test_closed_connections.py)."""


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
    parser.add_argument(
        "--last-routes",
        type=Path,
        metavar="FILE",
        help="copy of the routing table that the operator keeps (--routes-secret), used until --routes has given one",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; :: for every one, of IPv4 and IPv6 (default: %(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=8080, help="port to listen on; 0 takes a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--fd",
        type=int,
        metavar="DESCRIPTOR",
        help="inherited descriptor of a bound TCP socket to listen on; then --host and --port bind nothing",
    )
    parser.add_argument(
        "--stats-port",
        type=int,
        metavar="PORT",
        help="port of /stats, /metrics and /debug/requests, which then are on no other: they cover every model and "
        "client; 0 takes a free one (default: they are answered where requests are)",
    )
    parser.add_argument(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="certificate chain in PEM, read again when renewed: serve HTTPS; the plain port then answers probes alone",
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its key in PEM")
    parser.add_argument("--tls-port", type=int, default=8443, help="port for HTTPS (default: %(default)s)")
    parser.add_argument(
        "--shutdown-delay-seconds",
        type=float,
        default=0,
        help="seconds for which it answers on after SIGTERM, closing each connection, before it stops listening "
        "(default: %(default)s)",
    )
    parser.add_argument("--farewell-seconds", action=RemovedFlag, instead="was renamed: use --shutdown-delay-seconds")
    parser.add_argument(
        "--drain-timeout",
        type=int,
        default=300,
        help="most seconds that answers have to end after that (default: %(default)s)",
    )
    parser.add_argument(
        "--allowed-origins",
        metavar="ORIGINS",
        help="origins of web pages that may call it from their visitors' browsers, separated by commas, such as "
        "https://chat.example.org, or * for all (default: none)",
    )
    parser.add_argument(
        "--stream-comment-seconds",
        type=float,
        default=15,
        metavar="SECONDS",
        help="seconds of silence after which an event stream gets a comment, and the status 200 before it where none "
        "was sent, so that proxies do not end it; 0 for none (default: %(default)s)",
    )
    parser.add_argument(
        "--access-log",
        choices=["off", "json"],
        default="off",
        help="json: a line on stdout for each answer but those to probes and scrapes (default: %(default)s)",
    )
    HttpLimits.add_flags(parser.add_argument_group("limits", "what one client may cost; each port has them for itself"))


def run(args: argparse.Namespace) -> int:
    import uvloop

    from paternoster_gateway.app import create_app
    from paternoster_gateway.process.access_log import write_line
    from paternoster_gateway.process.drain import Server, Shutdown

    try:
        limits = HttpLimits.from_namespace(args)
    except ValidationError as error:
        for line in flag_errors(error):
            print_error(f"paternoster gateway: {line}")
        return 2
    try:
        allowed = parse_origins(args.allowed_origins or "")
    except ValueError as error:
        print_error(f"paternoster gateway: --allowed-origins {error}")
        return 2
    if not (args.stream_comment_seconds == 0 or 1 <= args.stream_comment_seconds <= 3600):
        shown = f"{args.stream_comment_seconds:g}"
        print_error(f"paternoster gateway: --stream-comment-seconds is {shown}: must be 0, or from 1 to 3600")
        return 2
    tls = None
    try:
        listener = _bind_port(args.host, args.port) if args.fd is None else _inherit_socket(args.fd)
        listeners = [listener]
        if args.stats_port is not None:
            listeners.append(_bind_port(args.host, args.stats_port))
        if args.tls_cert or args.tls_key:
            tls = _bind_port(args.host, args.tls_port), _load_certificate(args)
    except _Unusable as error:
        print_error(f"paternoster gateway: {error}")
        return 2
    shutdown = Shutdown()
    app = create_app(
        args.routes,
        engine_key=args.engine_key,
        last_routes=args.last_routes,
        shutdown=shutdown,
        origins=allowed,
        stats_port=listeners[1].getsockname()[1] if args.stats_port is not None else None,
        only_probes_in_plain=tls is not None,
        access_log=write_line if args.access_log == "json" else None,
        comment_seconds=args.stream_comment_seconds,
    )
    server = Server(
        app, limits, shutdown, grace_seconds=args.shutdown_delay_seconds, drain_seconds=args.drain_timeout, tls=tls
    )
    host, port = listener.getsockname()[:2] if args.fd is not None else (args.host, listener.getsockname()[1])
    print_line(f"listening on {join_base_url(host, port)}")
    if args.stats_port is not None:
        print_line(f"statistics on {join_base_url(args.host, listeners[1].getsockname()[1])}")
    if tls is not None:
        print_line(f"listening on {join_base_url(args.host, tls[0].getsockname()[1], 'https')}")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve(sockets=listeners))
    return 0


class _Unusable(Exception):
    """A port or a file cannot be used; the text states which and why."""


def _bind_port(host: str, port: int) -> socket.socket:
    from paternoster_http.listeners import bind_socket

    try:
        return bind_socket(host, port)
    except OSError as error:
        raise _Unusable(f"cannot listen on --host {host} and port {port}: {error.strerror}") from error


def _inherit_socket(descriptor: int) -> socket.socket:
    from paternoster_http.listeners import inherited_listener

    try:
        return inherited_listener(descriptor)
    except OSError as error:
        raise _Unusable(f"--fd is {descriptor}: {error}: must be the descriptor of a bound TCP socket") from error


def _load_certificate(args: argparse.Namespace) -> "Certificate":
    from paternoster_gateway.process.tls import Certificate

    if not (args.tls_cert and args.tls_key):
        raise _Unusable("--tls-cert and --tls-key belong together")
    try:
        return Certificate(args.tls_cert, args.tls_key)
    except OSError as error:
        raise _Unusable(f"--tls-cert {args.tls_cert}, --tls-key {args.tls_key}: {error}") from error
