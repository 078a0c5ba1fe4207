"""``paternoster get``: what ``kubectl get`` prints, for a fleet on this machine."""

import argparse
import json
import sys
from typing import Any

HELP = "print the LLMDeployments of a running 'paternoster up'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="only this one")
    parser.add_argument("-o", "--output", choices=("wide", "json", "yaml"), help="more columns, or the whole objects")
    parser.add_argument("--server", help="URL of the operator (default: that of the session on this machine)")


def run(args: argparse.Namespace) -> int:
    import yaml
    from rich.console import Console

    from paternoster_operator.local.client import fetch_objects, running_server
    from paternoster_operator.terminal.table import columns_table

    server = args.server or running_server()
    if server is None:
        print("paternoster get: no 'paternoster up' runs on this machine; give --server", file=sys.stderr)
        return 1
    try:
        objects = fetch_objects(server)
    except OSError as error:
        print(f"paternoster get: {error}", file=sys.stderr)
        return 1
    if args.name is not None:
        objects = [item for item in objects if item["metadata"]["name"] == args.name]
        if not objects:
            print(f"paternoster get: there is no LLMDeployment {args.name}", file=sys.stderr)
            return 1
    if args.output in ("json", "yaml"):
        document: Any = objects[0] if args.name is not None else {"apiVersion": "v1", "kind": "List", "items": objects}
        print(
            json.dumps(document, indent=2) if args.output == "json" else yaml.safe_dump(document, sort_keys=False),
            end="",
        )
        if args.output == "json":
            print()
        return 0
    Console(width=1000).print(columns_table(objects, wide=args.output == "wide"))
    return 0
