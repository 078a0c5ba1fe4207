"""``paternoster operator``: reconcile the LLMDeployments of a cluster."""

import argparse
import logging

HELP = "reconcile the LLMDeployments of a Kubernetes cluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument("-n", "--namespace", action="append", help="watch this namespace; may be given again")
    scope.add_argument("-A", "--all-namespaces", action="store_true", help="watch the whole cluster")
    parser.add_argument(
        "--host", default="0.0.0.0", help="address of /routes, /metrics, /healthz (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=8080, help="port of the same (default: %(default)s)")
    parser.add_argument("--gateway-url", help="base URL of the gateway, whose held requests count as demand")
    parser.add_argument("--verbose", action="store_true", help="log what kopf does, too")


def run(args: argparse.Namespace) -> int:
    import kopf

    from paternoster_operator import handlers  # noqa: F401 - registers itself with kopf
    from paternoster_operator.settings import Settings

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if not args.verbose:
        logging.getLogger("kopf").setLevel(logging.WARNING)
    memo = kopf.Memo(settings=Settings(gateway_url=args.gateway_url), host=args.host, port=args.port)
    kopf.run(standalone=True, clusterwide=args.all_namespaces, namespaces=args.namespace or (), memo=memo)
    return 0
