"""The LLMDeployment that a command is asked about: of ``paternoster up`` on this machine, or of a cluster."""

import argparse
from collections.abc import Mapping
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its name, and where to look."""
    parser.add_argument("name", help="the LLMDeployment")
    parser.add_argument("-n", "--namespace", help="its namespace (default: the kubeconfig's; on this machine, any)")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--server",
        help="URL of an operator (default: the 'paternoster up' of this machine, else the kubeconfig's cluster)",
    )
    source.add_argument(
        "--kubeconfig", action="store_true", help="ask the kubeconfig's cluster, though 'paternoster up' runs here"
    )


def find_resource(args: argparse.Namespace) -> Mapping[str, Any]:
    """The object; raises ``OSError`` that says where it was looked for."""
    from paternoster_operator.cluster.kubeconfig import read_resource
    from paternoster_operator.local.client import fetch_objects, running_server

    server = None if args.kubeconfig else args.server or running_server()
    if server is None:
        try:
            return read_resource(args.name, args.namespace)
        except OSError as error:
            nowhere = "" if args.kubeconfig else "no 'paternoster up' runs on this machine, and "
            raise OSError(f"{nowhere}{error}") from error
    for item in fetch_objects(server):
        metadata = item["metadata"]
        if metadata["name"] == args.name and args.namespace in (None, metadata["namespace"]):
            return item
    named = args.name if args.namespace is None else f"{args.namespace}/{args.name}"
    elsewhere = "" if args.server else "; --kubeconfig asks a cluster"
    raise OSError(f"there is no LLMDeployment {named} at {server}{elsewhere}")
