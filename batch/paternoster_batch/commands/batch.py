"""``paternoster batch``: the Batch API before a gateway; with a subcommand, a client of it."""

import argparse
import asyncio
import signal
import socket
from pathlib import Path

from paternoster_batch.commands.client import add_actions, run_action
from paternoster_contract.cli.terminal import print_error, print_line
from paternoster_contract.http.base_url import join_base_url

HELP = "serve the Batch APIs of OpenAI and Anthropic before a gateway; or submit, list, watch, read and cancel batches"
LOG_LEVEL = "info"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gateway", metavar="URL", help="where lines are sent, as ordinary requests")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="files and rows, on a local volume")
    parser.add_argument(
        "--gateway-key",
        type=Path,
        metavar="PATH",
        help="file or folder with the gateway's root keys, of which keys for owners are made; needs --api-keys",
    )
    parser.add_argument(
        "--api-keys",
        type=Path,
        metavar="PATH",
        help="a file or folder with clients' keys, each an owner of its own; needs --gateway-key",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8090, help="port; 0 takes a free one (default: %(default)s)")
    add_actions(parser)
    parser.set_defaults(usage_error=parser.error)


def run(args: argparse.Namespace) -> int:
    if args.action is not None:
        return run_action(args)
    if args.gateway is None or args.data is None:
        args.usage_error(
            "the service needs --gateway and --data; without them, one of submit, list, watch, results, cancel"
        )
    return _run_service(args)


def _run_service(args: argparse.Namespace) -> int:
    from paternoster_http.listeners import open_listener

    if args.api_keys and not args.gateway_key:
        print_error("paternoster batch: --api-keys needs --gateway-key, without which no line could be sent for a key")
        return 2
    if args.gateway_key and not args.api_keys:
        print_error("paternoster batch: --gateway-key needs --api-keys, without which lines are sent for no key")
        return 2
    if not args.gateway.startswith(("http://", "https://")):
        print_error(f"paternoster batch: --gateway is {args.gateway!r}: must be a URL such as http://127.0.0.1:8080")
        return 2
    try:
        args.data.mkdir(parents=True, exist_ok=True)
        listener = open_listener(args.host, args.port)
    except OSError as error:
        print_error(f"paternoster batch: --data, --host, --port: {error}")
        return 2
    print_line(f"listening on {join_base_url(args.host, listener.getsockname()[1])}")
    asyncio.run(_serve(args, listener))
    return 0


async def _serve(args: argparse.Namespace, listener: socket.socket) -> None:
    from paternoster_batch.app import LIMITS, create_app
    from paternoster_batch.gateway_client import GatewayClient
    from paternoster_batch.runner import BatchRunner
    from paternoster_batch.store import Store
    from paternoster_contract.access.key_files import KeyFiles
    from paternoster_contract.supervise import supervise_task
    from paternoster_http.server import BackgroundServer

    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    roots = KeyFiles(args.gateway_key) if args.gateway_key else None
    api_keys = KeyFiles(args.api_keys) if args.api_keys else None
    gateway = GatewayClient(args.gateway, roots)
    await gateway.open_session()
    with Store(args.data) as store:
        runner = BatchRunner(store, args.data, gateway)
        server = BackgroundServer(create_app(store, runner, api_keys), LIMITS)
        await server.start(listener)
        running = supervise_task(runner.run, "run-batches")
        await ending.wait()
        await server.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await gateway.close()
