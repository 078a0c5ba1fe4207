"""``paternoster plan``: what the operator would do about a manifest, and nothing is done."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paternoster_contract.cli.terminal import print_error, print_lines

if TYPE_CHECKING:
    from paternoster_operator.api.v1alpha1 import LLMDeployment
    from paternoster_operator.observed import Observed
    from paternoster_operator.plan.plan import Plan
    from paternoster_operator.settings import Settings
    from paternoster_operator.terminal.plan_lines import Found

HELP = "print what the operator would create, change and delete for a manifest, on the kubeconfig's cluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--file", required=True, type=Path, help="manifest (YAML or JSON)")
    parser.add_argument("-n", "--namespace", help="namespace of its LLMDeployments that name none (default: default)")
    parser.add_argument("--empty", action="store_true", help="plan for an empty cluster, and ask none")
    parser.add_argument(
        "operator_flags",
        nargs="*",
        metavar="-- FLAG",
        help="flags of 'paternoster operator' that change what it makes, such as -- --gateway-url URL",
    )


def run(args: argparse.Namespace) -> int:
    import asyncio

    from paternoster_operator.api.manifest import InvalidManifest, load_resources
    from paternoster_operator.cluster.port import ClusterError
    from paternoster_operator.commands import operator

    parser = argparse.ArgumentParser(prog="paternoster plan -f FILE --", add_help=False)
    operator.add_arguments(parser)
    try:
        # Which namespaces an operator watches changes no plan, and one flag or the other must be there.
        scoped = any(word.startswith(("-n", "--namespace", "-A", "--all-namespaces")) for word in args.operator_flags)
        flags = [*args.operator_flags, *([] if scoped else ["--all-namespaces"])]
        settings = operator.build_settings(parser.parse_args(flags))
        resources = [_name_model(each, settings) for each in _place_resources(load_resources(args.file), args)]
        for lines in asyncio.run(_describe_all(resources, settings, empty=args.empty)):
            print_lines(lines)
    except InvalidManifest as invalid:
        for line in invalid.errors:
            print_error(line)
        return 2
    except ValueError as error:
        print_error(f"paternoster plan: {error}")
        return 2
    except ClusterError as error:
        print_error(f"paternoster plan: {error}; --empty asks no cluster")
        return 1
    return 0


def _place_resources(resources: "Sequence[LLMDeployment]", args: argparse.Namespace) -> "list[LLMDeployment]":
    """Put resources that name no namespace into that of the command line."""
    from paternoster_operator.api.manifest import InvalidManifest

    if args.namespace is None:
        return [*resources]
    errors = [
        f"{args.file}: metadata.namespace: is {resource.metadata.namespace!r}: must be {args.namespace!r}, "
        "that of --namespace, or unset"
        for resource in resources
        if "namespace" in resource.metadata.model_fields_set and resource.metadata.namespace != args.namespace
    ]
    if errors:
        raise InvalidManifest(errors)
    return [_amend_resource(resource, {"namespace": args.namespace}) for resource in resources]


def _name_model(resource: "LLMDeployment", settings: "Settings") -> "LLMDeployment":
    """Give a model without a served name the one that the installation would."""
    from paternoster_operator.settings import Names

    model, metadata = resource.spec.model, resource.metadata
    if settings.names is Names.GLOBAL or model.served_name is not None:
        return resource
    named = model.model_copy(update={"served_name": f"{metadata.namespace}/{metadata.name}"})
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"model": named})})


def _amend_resource(resource: "LLMDeployment", metadata: Mapping[str, Any], **fields: Any) -> "LLMDeployment":
    return resource.model_copy(update={"metadata": resource.metadata.model_copy(update=metadata), **fields})


async def _describe_all(resources: "Sequence[LLMDeployment]", settings: "Settings", *, empty: bool) -> list[list[str]]:
    from paternoster_operator.cluster.kubernetes import KubernetesCluster
    from paternoster_operator.cluster.one_time_cache import OneTimeCache
    from paternoster_operator.cluster.port import Key
    from paternoster_operator.observe.observer import read_objects
    from paternoster_operator.observed import Observed
    from paternoster_operator.terminal.plan_lines import describe_plan

    if empty:
        nothing = [Observed(None, (), is_target=each.spec.target_ref is not None) for each in resources]
        plans = [_make_plan(each, observed, settings) for each, observed in zip(resources, nothing, strict=True)]
        return [describe_plan(plan, {}) for plan in plans]
    cache, described = OneTimeCache(), []
    cluster = KubernetesCluster(cache)
    try:
        await cluster.log_in()
        for resource in resources:
            key = Key(resource.metadata.namespace, resource.metadata.name)
            there = await cache.read_fleet(cluster, key)
            if there is not None:
                identity = {name: there["metadata"][name] for name in ("uid", "generation")}
                resource = _amend_resource(resource, identity, status=there.get("status", {}))
            observed, refusal = await read_objects(cluster, key, resource)
            plan = _make_plan(resource, observed, settings, refusal)
            described.append(describe_plan(plan, await _read_children(cluster, plan)))
    finally:
        await cluster.close()
    return described


def _make_plan(
    resource: "LLMDeployment", observed: "Observed", settings: "Settings", refusal: tuple[str, str] | None = None
) -> "Plan":
    """The plan of an operator that has just started, which no engine has answered."""
    from dataclasses import replace
    from datetime import UTC, datetime

    from paternoster_operator.fleet import Fleet
    from paternoster_operator.observe.observer import add_signals
    from paternoster_operator.observed import ObservedKeys
    from paternoster_operator.plan.plan import make_plan

    fleet = Fleet.from_status(resource)
    roots = ("unknown",)  # values of Secrets are not printed
    keys = ObservedKeys(roots, roots if settings.gateway_url is not None else ())
    observed = replace(observed, at=datetime.now(UTC), names=tuple(resource.served_names), refusal=refusal, keys=keys)
    return make_plan(resource, add_signals(observed, resource, fleet.readers, {}, 0.0), fleet.memory, settings)


async def _read_children(cluster: Any, plan: "Plan") -> "Found":
    """Read the children of ``plan`` that are there, by kind."""
    from paternoster_operator.cluster.port import ForeignObject

    found: dict[str, Any] = {}
    changes = plan.changes
    for child in () if changes is None else (*changes.children, *changes.superfluous):
        try:
            found[child["kind"]] = await cluster.check_owner(child)
        except ForeignObject as foreign:
            found[child["kind"]] = str(foreign)
    return found
