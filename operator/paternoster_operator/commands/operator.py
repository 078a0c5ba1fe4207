"""``paternoster operator``: reconcile the LLMDeployments of a cluster."""

import argparse
import gc
import logging
import os
import socket

from paternoster_contract.labels import DEFAULT_ENGINE_IMAGE

HELP = "reconcile the LLMDeployments of a Kubernetes cluster"
GC_THRESHOLDS = (10_000, 20, 50)
"""Thousands of pods are millions of objects that stay. By Python's own thresholds (700, 10, 10) all of them were looked
through for garbage 36 times in two minutes, and nothing else went on for 0.7 s each time: see docs/benchmarks.md."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument("-n", "--namespace", action="append", help="watch this namespace; may be given again")
    scope.add_argument("-A", "--all-namespaces", action="store_true", help="watch the whole cluster")
    parser.add_argument(
        "--host", default="0.0.0.0", help="address of /routes, /metrics, /healthz (default: %(default)s)"
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
        "--resync-seconds",
        type=float,
        default=300.0,
        help="time after which every child is applied again, so that hand edits end (default: %(default)s)",
    )
    parser.add_argument("--leader-elect", action="store_true", help="act only while holding the lease")
    parser.add_argument("--lease-namespace", default="default", help="namespace of the lease (default: %(default)s)")
    parser.add_argument("--lease-name", default="paternoster-operator", help="name of the lease (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="log what kopf does, too")


def run(args: argparse.Namespace) -> int:
    import kopf

    from paternoster_operator import handlers  # noqa: F401 - registers itself with kopf
    from paternoster_operator.cluster.port import Key
    from paternoster_operator.settings import Settings

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if not args.verbose:
        logging.getLogger("kopf").setLevel(logging.WARNING)
    gc.set_threshold(*GC_THRESHOLDS)
    memo = kopf.Memo(
        settings=Settings(
            gateway_url=args.gateway_url,
            endpoint=args.endpoint,
            engine_image=args.engine_image,
            resync_seconds=args.resync_seconds,
        ),
        host=args.host,
        port=args.port,
        namespaces=args.namespace or [],
        lease=Key(args.lease_namespace, args.lease_name) if args.leader_elect else None,
    )
    # Named here, because kopf would look up a user, and a container's has no name.
    identity = f"{socket.gethostname()}_{os.getpid()}"
    kopf.run(
        standalone=True,
        identity=identity,  # type: ignore[arg-type]  # a NewType of str that kopf keeps to itself
        clusterwide=args.all_namespaces,
        namespaces=memo.namespaces,
        memo=memo,
    )
    return 0
