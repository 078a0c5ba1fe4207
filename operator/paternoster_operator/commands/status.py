"""``paternoster status``: one page why a fleet is not ready or not fast, and what to do next."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from paternoster_contract.cli.terminal import print_error, print_lines
from paternoster_operator.commands import resource

HELP = "print why a fleet is not ready or not fast, and what to do next; ends with 0 where it is ready, else with 3"
NOT_READY_STATUS = 3
"""Exit status, as that of 'systemctl status' for a unit that does not run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    resource.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from paternoster_operator.api.manifest import InvalidManifest, parse_resource
    from paternoster_operator.api.stored import with_successors
    from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
    from paternoster_operator.terminal.status_page import describe_fleet, is_ready

    try:
        document = resource.find_resource(args)
    except OSError as error:
        print_error(f"paternoster status: {error}")
        return 1
    try:
        pods: Sequence[Mapping[str, Any]] | str = resource.read_pods(args, document)
    except OSError as error:
        pods = f"not read: {error}"
    try:
        spec: LLMDeploymentSpec | None = parse_resource(with_successors(document)[0]).spec
    except InvalidManifest:
        spec = None  # a condition has what is wrong with it
    print_lines(describe_fleet(document, spec, pods, datetime.now(UTC).isoformat()))
    return 0 if is_ready(document) else NOT_READY_STATUS
