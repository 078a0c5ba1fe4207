"""The LLMDeployments that a command reads: of ``paternoster up`` on this machine, or of a cluster."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from paternoster_operator.cluster.kubeconfig import MetricsPage

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The name of one LLMDeployment, and where to read it."""
    parser.add_argument("name", help="the LLMDeployment")
    add_source_arguments(parser)


def add_source_arguments(parser: argparse.ArgumentParser, whose: str = "its") -> None:
    """Add flags that say where to read LLMDeployments, or operators; ``whose`` namespace there is a flag for."""
    parser.add_argument(
        "-n", "--namespace", help=f"{whose} namespace (default: the kubeconfig's; on this machine, any)"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--server",
        help="URL of an operator (default: the 'paternoster up' of this machine, else the kubeconfig's cluster)",
    )
    source.add_argument(
        "--kubeconfig", action="store_true", help="ask the kubeconfig's cluster, though 'paternoster up' runs here"
    )


def find_resource(args: argparse.Namespace) -> Mapping[str, Any]:
    """Return the LLMDeployment ``args.name``; raises ``OSError`` that says where it was searched."""
    from paternoster_operator.cluster.kubeconfig import read_resource

    server = _find_server(args)
    if server is None:
        return _read_cluster(args, lambda: read_resource(args.name, args.namespace))
    for item in _from_server(server, args.namespace):
        if item["metadata"]["name"] == args.name:
            return item
    named = args.name if args.namespace is None else f"{args.namespace}/{args.name}"
    elsewhere = "" if args.server else "; --kubeconfig asks a cluster"
    raise OSError(f"there is no LLMDeployment {named} at {server}{elsewhere}")


def list_resources(args: argparse.Namespace, *, all_namespaces: bool) -> Sequence[Mapping[str, Any]]:
    """Return the LLMDeployments of ``args.namespace``, or of all; raises ``OSError`` that says where it searched."""
    from paternoster_operator.cluster.kubeconfig import read_resources

    server = _find_server(args)
    if server is None:
        return _read_cluster(args, lambda: read_resources(args.namespace, all_namespaces=all_namespaces))
    return _from_server(server, args.namespace)


def read_pods(args: argparse.Namespace, document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the pods that the status of ``document`` selects; raises ``OSError`` with the reason where it cannot."""
    from paternoster_contract.labels import PODS
    from paternoster_operator.cluster.kubeconfig import read_pods
    from paternoster_operator.local.client import fetch_list

    namespace, selector = document["metadata"].get("namespace", ""), document.get("status", {}).get("selector", "")
    if not selector:
        return []
    server = _find_server(args)
    if server is None:
        return read_pods(namespace, selector)
    wanted = dict(pair.split("=", 1) for pair in selector.split(","))
    return [
        pod
        for pod in fetch_list(server, PODS)
        if pod["metadata"]["namespace"] == namespace and wanted.items() <= pod["metadata"].get("labels", {}).items()
    ]


def read_operators(args: argparse.Namespace) -> "Sequence[MetricsPage]":
    """Return what each operator answers for its metrics; raises ``OSError`` where none is found."""
    from time import monotonic

    from paternoster_contract.http.paths import METRICS
    from paternoster_operator.cluster.api_requests import LONGEST_ANSWER
    from paternoster_operator.cluster.kubeconfig import MetricsPage, read_operators
    from paternoster_operator.local.client import fetch

    server = _find_server(args)
    if server is None:
        return _read_cluster(args, lambda: read_operators(args.namespace))
    text = fetch(server, METRICS, LONGEST_ANSWER).decode(errors="replace")
    return [MetricsPage(server, text, monotonic())]


def _find_server(args: argparse.Namespace) -> str | None:
    """The operator that answers by HTTP; None for the kubeconfig's cluster."""
    from paternoster_operator.local.client import running_server

    return None if args.kubeconfig else args.server or running_server()


def _from_server(server: str, namespace: str | None) -> list[dict[str, Any]]:
    from paternoster_contract.labels import OBJECTS
    from paternoster_operator.local.client import fetch_list

    return [item for item in fetch_list(server, OBJECTS) if namespace in (None, item["metadata"]["namespace"])]


def _read_cluster(args: argparse.Namespace, read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as error:
        nowhere = "" if args.kubeconfig else "no 'paternoster up' runs on this machine, and "
        raise OSError(f"{nowhere}{error}") from error
