"""``paternoster operator``: reconcile the LLMDeployments of a cluster."""

import argparse
import gc
import json
import logging
import os
import socket
from typing import TYPE_CHECKING, Any

from paternoster_contract.cli.terminal import print_error
from paternoster_contract.labels import DEFAULT_ENGINE_IMAGE, DEFAULT_FETCH_IMAGE

if TYPE_CHECKING:
    from paternoster_operator.cluster.buckets import Shard
    from paternoster_operator.cluster.port import Key
    from paternoster_operator.desired.network_policy import Peers
    from paternoster_operator.settings import Settings

HELP = "reconcile the LLMDeployments of a Kubernetes cluster"
LOG_LEVEL = "info"
GC_THRESHOLDS = (10_000, 20, 50)
"""Thousands of pods are millions of objects that stay. By Python's own thresholds (700, 10, 10) all of them were looked
through for garbage 36 times in two minutes, and nothing else went on for 0.7 s each time (e2e/performance)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument("-n", "--namespace", action="append", help="watch this namespace; may be given again")
    scope.add_argument("-A", "--all-namespaces", action="store_true", help="watch the whole cluster")
    parser.add_argument(
        "--host",
        default="::",
        help="address of /routes, /metrics, /healthz; :: is every one, of IPv4 and IPv6 (default: %(default)s)",
    )
    parser.add_argument("--port", type=int, default=8080, help="port of the same (default: %(default)s)")
    parser.add_argument("--gateway-url", help="base URL of the gateway, whose held requests count as demand")
    parser.add_argument("--endpoint", help="URL that clients are told in the status (default: the gateway's)")
    parser.add_argument(
        "--engine-image",
        default=DEFAULT_ENGINE_IMAGE,
        help="image of engines whose resource names none (default: %(default)s)",
    )
    parser.add_argument(
        "--fetch-image",
        default=DEFAULT_FETCH_IMAGE,
        help="image of the init container that fetches a model, an operator's; a change rolls every fleet that has one "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--engine-vllm-metrics",
        action="store_true",
        help="have engines export their core metrics under vLLM's names, too; a change rolls every fleet",
    )
    parser.add_argument(
        "--engine-security-context",
        type=_parse_security_context,
        metavar="JSON",
        help="securityContext of every engine's pod, where its resource has no other; a change rolls every fleet "
        "(default: user and groups 65532)",
    )
    parser.add_argument(
        "--engine-pull-secret",
        action="append",
        default=[],
        metavar="NAME",
        help="Secret, in each fleet's namespace, that nodes pull the images of engines with; may be given again",
    )
    parser.add_argument(
        "--resync-seconds",
        type=float,
        default=300.0,
        help="time after which every child is applied again, so that hand edits end; for each fleet another one, from "
        "80 %% of it (default: %(default)s)",
    )
    parser.add_argument(
        "--routes-secret",
        type=_parse_secret,
        metavar="NAMESPACE/NAME",
        help="Secret to keep a copy of the routing table in, for gateways that start while no operator is there "
        "(default: none is kept)",
    )
    parser.add_argument("--leader-elect", action="store_true", help="act only while holding the lease")
    parser.add_argument("--lease-namespace", default="default", help="namespace of the lease (default: %(default)s)")
    parser.add_argument(
        "--lease-name",
        default="paternoster-operator",
        help="name of the lease, and with its namespace of this installation, which claims fleets by it; a ConfigMap "
        "with -names behind it has the record of which fleet has which served names (default: %(default)s)",
    )
    parser.add_argument(
        "--shard",
        type=_parse_shard,
        default="0/1",
        metavar="NUMBER/COUNT",
        help="reconcile the fleets of one of COUNT shards, counted from 0, with --leader-elect; the Lease of shard 1 "
        "has -shard-1 behind its name (default: %(default)s)",
    )
    parser.add_argument(
        "--shard-url",
        metavar="URL",
        help="base URL of another shard's operators, with {shard} for its number: the routing table is put together of "
        "what each of them watches",
    )
    add_key_arguments(parser)
    add_peer_arguments(parser)
    parser.add_argument("--verbose", action="store_true", help="log what kopf does, too")


def add_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Names, and the keys that the operator makes for each hop."""
    parser.add_argument(
        "--names",
        choices=["Global", "Namespaced"],
        default="Global",
        help="served names: any, to whom claims one first, or such as begin with the fleet's namespace and a slash "
        "(default: %(default)s)",
    )
    for flag, what in (("--gateway-key-secret", "gateways'"), ("--admin-key-secret", "operator's")):
        parser.add_argument(
            flag,
            type=_parse_secret,
            default=f"default/paternoster-{flag.split('-')[2]}-key",
            metavar="NAMESPACE/NAME",
            help=f"Secret whose 'key' the {what} keys to engines are derived from; made when there is none "
            "(default: %(default)s)",
        )


def add_peer_arguments(parser: argparse.ArgumentParser) -> None:
    """Who may reach engines, for their NetworkPolicies."""
    parser.add_argument(
        "--network-policies", metavar="NAMESPACE", help="make a NetworkPolicy for each fleet; the operator's namespace"
    )
    for who in ("operator", "gateway"):
        parser.add_argument(
            f"--{who}-labels", type=_parse_labels, metavar="NAME=VALUE,...", help=f"labels of the {who}'s pods there"
        )
    parser.add_argument(
        "--scraper-namespace-labels",
        type=_parse_labels,
        metavar="NAME=VALUE,...",
        help="labels of the namespaces whose pods may scrape engines (default: none may)",
    )


def _build_peers(args: argparse.Namespace) -> "Peers | None":
    from paternoster_operator.desired.network_policy import Peers

    if args.network_policies is None:
        return None
    if args.operator_labels is None:
        raise ValueError(
            "--operator-labels is unset: it must say which pods are the operator's, for --network-policies"
        )
    gateway = args.gateway_labels if args.gateway_url else None
    return Peers(args.network_policies, args.operator_labels, gateway, args.scraper_namespace_labels)


def _parse_shard(text: str) -> "Shard":
    from paternoster_operator.cluster.buckets import MAX_SHARDS, Shard

    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and int(number) < int(count) <= MAX_SHARDS):
        raise argparse.ArgumentTypeError(f"is {text!r}: must be NUMBER/COUNT, counted from 0, of at most {MAX_SHARDS}")
    return Shard(int(number), int(count))


def list_shard_urls(args: argparse.Namespace) -> list[str]:
    """Base URLs of the other shards' operators; raises ``ValueError`` for flags of shards that lack another."""
    if args.shard.count == 1:
        return []
    if not args.leader_elect:
        raise ValueError(f"--shard is {args.shard}: needs --leader-elect, as its Lease decides who reconciles")
    if "{shard}" not in (args.shard_url or ""):
        raise ValueError(f"--shard-url is {args.shard_url!r}: must have {{shard}} in it, with --shard {args.shard}")
    return [args.shard_url.replace("{shard}", str(number)) for number in args.shard.others]


def _parse_secret(text: str) -> "Key":
    from paternoster_operator.cluster.port import Key

    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise argparse.ArgumentTypeError(f"is {text!r}: must be NAMESPACE/NAME")
    return Key(namespace, name)


def _parse_security_context(text: str) -> dict[str, Any]:
    from paternoster_operator.api.pod.fields import faults_of

    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be JSON: {error}") from error
    if faults := faults_of(found, "securityContext", "PodSecurityContext"):
        raise argparse.ArgumentTypeError(f"is {text!r}: {'; '.join(faults)}")
    context: dict[str, Any] = found
    return context


def _parse_labels(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise argparse.ArgumentTypeError(f"is {text!r}: must be NAME=VALUE,...")
    return {name: value for name, _, value in pairs}


def build_settings(args: argparse.Namespace) -> "Settings":
    """The operator's settings by its flags; raises ``ValueError`` for flags that need another."""
    from paternoster_operator.desired.engine_args import SECURITY_CONTEXT, Installation
    from paternoster_operator.settings import Names, Settings

    return Settings(
        gateway_url=args.gateway_url,
        endpoint=args.endpoint,
        engines=Installation(
            engine_image=args.engine_image,
            fetch_image=args.fetch_image,
            vllm_metrics=args.engine_vllm_metrics,
            security_context=SECURITY_CONTEXT if args.engine_security_context is None else args.engine_security_context,
            pull_secrets=tuple(args.engine_pull_secret),
            # The API server's address is of the family that pods and Services have first.
            ipv6=":" in os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        ),
        resync_seconds=args.resync_seconds,
        installation=f"{args.lease_namespace}/{args.lease_name}",
        names=Names(args.names),
        gateway_key=args.gateway_key_secret,
        admin_key=args.admin_key_secret,
        peers=_build_peers(args),
    )


def run(args: argparse.Namespace) -> int:
    import kopf

    from paternoster_operator import handlers  # registers itself with kopf
    from paternoster_operator.cluster.port import Key

    try:
        settings, shard_urls = build_settings(args), list_shard_urls(args)
    except ValueError as error:
        print_error(f"paternoster operator: {error}")
        return 2
    if not args.verbose:
        logging.getLogger("kopf").setLevel(logging.WARNING)
    gc.set_threshold(*GC_THRESHOLDS)
    registry = kopf.get_default_registry()
    memo = kopf.Memo(
        watched=handlers.WATCHED if settings.peers is None else handlers.watch_network_policies(registry),
        settings=settings,
        host=args.host,
        port=args.port,
        namespaces=args.namespace or [],
        shard=args.shard,
        shard_urls=shard_urls,
        routes_secret=args.routes_secret,
        name_record=Key(args.lease_namespace, f"{args.lease_name}-names"),
        lease=Key(args.lease_namespace, args.lease_name) if args.leader_elect else None,
    )
    # Named here, because kopf would look up a user, and a container's has no name.
    identity = f"{socket.gethostname()}_{os.getpid()}"
    kopf.run(
        registry=registry,
        standalone=True,
        identity=identity,  # type: ignore[arg-type]  # a NewType of str that kopf keeps to itself
        clusterwide=args.all_namespaces,
        namespaces=memo.namespaces,
        memo=memo,
    )
    return 0
