"""``paternoster up``: the fleet of a manifest on this machine."""

import argparse
import sys
from pathlib import Path

from paternoster_contract.cli.terminal import print_error

HELP = "run the fleet of a manifest on this machine, with the same reconcile as on a cluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--file", action="append", required=True, type=Path, help="manifest (YAML or JSON); may be given again"
    )
    parser.add_argument(
        "--port", type=int, default=8080, help="port of the endpoint; 0 takes a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--allowed-origins",
        metavar="ORIGINS",
        help="origins of web pages that may call it from their visitors' browsers, separated by commas, such as "
        "http://localhost:3000, or * for all (default: none)",
    )
    parser.add_argument("--no-view", action="store_true", help="plain lines instead of the live view")
    parser.add_argument("--log-dir", type=Path, help="folder for logs (default: $XDG_STATE_HOME/paternoster/logs)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="append a JSON line per second for reports")


def run(args: argparse.Namespace) -> int:
    import asyncio
    import os

    from paternoster_contract.http.origins import check_origin
    from paternoster_operator.api.manifest import InvalidManifest
    from paternoster_operator.local.manifest_watch import ManifestWatch
    from paternoster_operator.local.ports import HOST, listen_on
    from paternoster_operator.local.session import LocalSession
    from paternoster_operator.local.state import state_folder
    from paternoster_operator.local.unsupported import list_unused
    from paternoster_operator.terminal.interactive_session import run_interactive_session

    try:
        origins = check_origin(args.allowed_origins or "")
    except ValueError as error:
        print_error(f"paternoster up: --allowed-origins {error}")
        return 2
    os.umask(0o077)  # other users of the machine have no access to prompts, answers and state
    watch = ManifestWatch(args.file)
    watch.has_changed()
    try:
        resources, secrets = watch.read(), watch.read_secrets()
    except InvalidManifest as invalid:
        for line in invalid.errors:
            print_error(line)
        return 2
    for line in list_unused(resources):
        print_error(line)
    try:
        port = listen_on(args.port)
    except (OSError, OverflowError) as error:
        print_error(f"--port {args.port}: cannot listen on {HOST}:{args.port}: {error}")
        return 2
    try:
        session = LocalSession(port, args.log_dir or state_folder() / "logs", origins)
    except OSError as error:
        print_error(f"paternoster up: $XDG_STATE_HOME: {error}")
        return 2
    live = not args.no_view and sys.stdout.isatty()
    session.cluster.put_secrets(secrets)
    return asyncio.run(run_interactive_session(session, watch, resources, live=live, record=args.record))
