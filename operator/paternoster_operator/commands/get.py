"""``paternoster get``: the columns of ``kubectl get``, of a fleet on this machine or of a cluster."""

import argparse
from typing import Any

from paternoster_contract.cli.terminal import print_error, print_json, print_text
from paternoster_operator.commands import resource

HELP = "print the LLMDeployments of a running 'paternoster up', or of a cluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="only this one")
    parser.add_argument("-o", "--output", choices=("wide", "json", "yaml"), help="more columns, or the whole objects")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace of the cluster")
    resource.add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.all_namespaces and (args.name is not None or args.namespace is not None):
        print_error("paternoster get: --all-namespaces goes with neither a name nor --namespace")
        return 2
    try:
        if args.name is None:
            objects = resource.list_resources(args, all_namespaces=args.all_namespaces)
        else:
            objects = [resource.find_resource(args)]
    except OSError as error:
        print_error(f"paternoster get: {error}")
        return 1
    if args.output in ("json", "yaml"):
        document = objects[0] if args.name is not None else {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        _print_document(document, args.output)
        return 0

    from paternoster_contract.cli.console import QuotingConsole
    from paternoster_operator.terminal.table import columns_table

    table = columns_table(objects, wide=args.output == "wide", namespaces=args.all_namespaces)
    QuotingConsole(width=1000).print(table)
    return 0


def _print_document(document: Any, output: str) -> None:
    import yaml

    if output == "json":
        print_json(document, indent=2)
    else:
        print_text(yaml.safe_dump(document, sort_keys=False).rstrip("\n"))
