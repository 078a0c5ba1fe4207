"""``paternoster get``: the columns of ``kubectl get``, of a fleet on this machine or of a cluster."""

import argparse
import json
import sys
from typing import Any

from paternoster_operator.commands import resource

HELP = "print the LLMDeployments of a running 'paternoster up', or of a cluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="only this one")
    parser.add_argument("-o", "--output", choices=("wide", "json", "yaml"), help="more columns, or the whole objects")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace of the cluster")
    resource.add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.all_namespaces and (args.name is not None or args.namespace is not None):
        print("paternoster get: --all-namespaces goes with neither a name nor --namespace", file=sys.stderr)
        return 2
    try:
        if args.name is None:
            objects = resource.list_resources(args, all_namespaces=args.all_namespaces)
        else:
            objects = [resource.find_resource(args)]
    except OSError as error:
        print(f"paternoster get: {error}", file=sys.stderr)
        return 1
    if args.output in ("json", "yaml"):
        document = objects[0] if args.name is not None else {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        print(_serialize_document(document, args.output), end="")
        return 0

    from rich.console import Console

    from paternoster_operator.terminal.table import columns_table

    table = columns_table(objects, wide=args.output == "wide", namespaces=args.all_namespaces)
    Console(width=1000).print(table)
    return 0


def _serialize_document(document: Any, output: str) -> str:
    import yaml

    if output == "json":
        return json.dumps(document, indent=2) + "\n"
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text
