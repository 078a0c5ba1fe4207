"""``paternoster explain``: why a fleet is as it is."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

HELP = "tell why a fleet has the replicas and the cap that it has"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the LLMDeployment")
    parser.add_argument("-n", "--namespace", help="its namespace (default: the kubeconfig's; on this machine, any)")
    parser.add_argument(
        "--last", type=_positive, default=10, metavar="N", help="decisions that are told (default: all that are kept)"
    )
    parser.add_argument("--json", action="store_true", help="the same as one JSON document")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--server",
        help="URL of an operator (default: the 'paternoster up' of this machine, else the kubeconfig's cluster)",
    )
    source.add_argument(
        "--kubeconfig", action="store_true", help="ask the kubeconfig's cluster, though 'paternoster up' runs here"
    )


def run(args: argparse.Namespace) -> int:
    from paternoster_operator.terminal.explain import explain, summary

    try:
        document = _find(args)
    except OSError as error:
        print(f"paternoster explain: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(summary(document, last=args.last), indent=2))
    else:
        print(explain(document, last=args.last), end="")
    return 0


def _find(args: argparse.Namespace) -> Mapping[str, Any]:
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


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be a whole number of at least 1")
    return int(text)
