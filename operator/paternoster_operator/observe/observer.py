"""Reads cluster, names, keys, engines and gateways of one fleet, and puts them together into :class:`Observed`."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from paternoster_contract.stats import EngineStats
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.decision import REPLICAS
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.windows import SignalWindows
from paternoster_operator.cluster.foreign_fields import describe_foreign_fields
from paternoster_operator.cluster.port import Cluster, Key, WatchFailed
from paternoster_operator.keys.fleet_keys import FleetKeys
from paternoster_operator.names.directory import Directory, split_names
from paternoster_operator.observe.engine_checks import EngineChecks
from paternoster_operator.observe.pod_events import EventReader
from paternoster_operator.observe.served_pods import ServedPods
from paternoster_operator.observed import Observed, ObservedKeys
from paternoster_operator.plausible import Refusal, find_implausible
from paternoster_operator.pods.view import EngineAddress
from paternoster_operator.report.engine_facts import complete_stats
from paternoster_operator.report.model_fetch import merge_progress
from paternoster_operator.report.startup import StartupTimes
from paternoster_operator.scrape import Scraper, count_routing, held_by_fleet, idle_by_fleet, requests_by_gateway

_OTHER_CHILDREN = ("Service", "PodDisruptionBudget", "NetworkPolicy")
"""Children that a watch reports beside the Deployment."""
NO_CALLS: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class FleetReaders:
    """Readers of one fleet, with what they keep between two observations; all of it can be learnt again."""

    startup: StartupTimes = field(default_factory=StartupTimes)
    windows: SignalWindows = field(default_factory=SignalWindows)
    events: EventReader = field(default_factory=EventReader)
    served_pods: ServedPods = field(default_factory=ServedPods)
    checks: EngineChecks = field(default_factory=EngineChecks)


class FleetObserver:
    """Changes nothing but what installation and fleet need to have keys and names at all."""

    def __init__(
        self,
        cluster: Cluster,
        scraper: Scraper,
        directory: Directory,
        keys: FleetKeys,
        routes_share: Callable[[Key], int | None],
        clock: Callable[[], float],
        wall: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._scraper = scraper
        self._directory = directory
        self._keys = keys
        self._routes_share = routes_share
        self._clock = clock
        self._wall = wall

    async def observe(
        self, key: Key, resource: LLMDeployment, readers: FleetReaders, before: Observed, targets: Mapping[str, int]
    ) -> Observed:
        """Observe the fleet of ``resource``; ``before`` is what was observed last, ``targets`` are the law's last.

        Raises :class:`ClusterError` where the cluster cannot be read.
        """
        unwatched = self._cluster.find_watch_fault(key.namespace)
        objects, refusal = await read_objects(self._cluster, key, resource)
        claimed, unnamed = await self._directory.claim_names(resource)
        names, adapters = split_names(resource, claimed)
        starts_unnamed = unnamed is not None and self._directory.may_start_unnamed(resource)
        refusal = refusal or (None if starts_unnamed else unnamed)
        if unwatched is not None:
            refusal = (WatchFailed.reason, f"{unwatched.message}; replicas and limits stay as they are")
        observed = replace(
            objects,
            at=self._wall(),
            names=names,
            lora_adapters=adapters if self._directory.is_read else None,
            unnamed=unnamed,
            starts_unnamed=starts_unnamed,
            refusal=refusal,
            routes_share=self._routes_share(key),
            keys=ObservedKeys(admin=before.keys.admin),
        )
        if refusal is None and resource.spec.is_managed:
            observed = replace(observed, keys=await self._keys.observe(resource, before.keys.admin))
        fetching = observed.fetching if resource.spec.model.remote else ()
        answering = {pod.name: pod.admin_url for pod in observed.answering if pod.admin_url is not None}
        (stats, faults, failed_calls), gateways, downloads = await asyncio.gather(
            self._scraper.read_engines(answering, observed.adapters, observed.keys.admin),
            self._scraper.read_gateways(resource.metadata.uid),
            self._scraper.read_downloads({pod.name: pod.admin_url for pod in fetching if pod.admin_url is not None}),
        )
        progress = {pod.name: pod.download for pod in before.pods}
        observed = observed.with_fields(
            {pod: {"download": merge_progress(status, progress.get(pod))} for pod, status in downloads.items()},
            await readers.events.read_events(observed, self._cluster, key, self._clock()),
            readers.served_pods.recall_pods(observed),
            await readers.checks.find_faults(
                observed, resource, self._scraper.ask_engine, self._keys.gateway_keys, self._clock()
            ),
        )
        now = self._clock()
        unread = {pod: Refusal("form", fault) for pod, fault in faults.items() if pod not in {*stats, *failed_calls}}
        cap_faults = before.cap_faults.observe(faults, before.engines, stats, [pod.name for pod in observed.answering])
        engines, refused = _judge_reports(observed, resource, stats, readers.windows, now)
        observed = replace(
            observed, engines=engines, refused=unread | refused, cap_faults=cap_faults, gateways=gateways
        )
        return add_signals(observed, resource, readers, targets, now, failed_calls)


async def read_objects(cluster: Cluster, key: Key, resource: LLMDeployment) -> tuple[Observed, tuple[str, str] | None]:
    """What is there, and why the Deployment that is to be observed is not (reason, message).

    Raises :class:`~paternoster_operator.cluster.port.ClusterError` where the cluster cannot be asked.
    """
    own, target = cluster.get_child(key, "Deployment"), resource.spec.target_ref
    if target is None or own is not None:
        fault = "spec.targetRef must be unset while the operator's own Deployment of the fleet is there"
        children = (own, *(cluster.get_child(key, kind) for kind in _OTHER_CHILDREN))
        foreign = tuple(filter(None, (describe_foreign_fields(child) for child in children if child is not None)))
        observed = replace(Observed.from_cluster(own, cluster.list_pods(key)), foreign_fields=foreign)
        return observed, None if target is None else ("OwnPodsRun", fault)
    found = await cluster.read_target(Key(key.namespace, target.name))
    if found is None:
        fault = f"spec.targetRef names Deployment {target.name}, which is not there"
        return Observed(None, (), is_target=True), ("TargetNotFound", fault)
    engine = EngineAddress(resource.spec.engine.runtime.type, target.port)
    return Observed.from_target(found.deployment, found.pods, engine), None


def _judge_reports(
    observed: Observed, resource: LLMDeployment, stats: Mapping[str, EngineStats], windows: SignalWindows, now: float
) -> tuple[dict[str, EngineStats], dict[str, Refusal]]:
    """The reports that are plausible, and why the others are refused, by pod."""
    plausible, refused = {}, {}
    for pod in [pod for pod in observed.answering if pod.name in stats]:
        sample = complete_stats(stats[pod.name], pod.restarts, resource)
        last, since = windows.latest_sample(pod.name), windows.seconds_since_latest(pod.name, now)
        refusal = find_implausible(sample, last, since, capacity=pod.capacity, queue=pod.queue)
        if refusal is None:
            plausible[pod.name] = sample
        else:
            refused[pod.name] = refusal
    return plausible, refused


def add_signals(
    observed: Observed,
    resource: LLMDeployment,
    readers: FleetReaders,
    targets: Mapping[str, int],
    now: float,
    failed_calls: Mapping[str, str] = NO_CALLS,
) -> Observed:
    """``observed`` with what the law decides by; ``now`` is on the clock of the windows."""
    engines, windows, uid = observed.engines, readers.windows, resource.metadata.uid
    replicas, gateways = _find_replicas(observed, targets), observed.gateways
    held, idle_seconds = held_by_fleet(gateways).get(uid, 0), idle_by_fleet(gateways).get(uid)
    requests, num_routing = requests_by_gateway(gateways, uid), count_routing(gateways, observed.names, uid)
    startup = readers.startup.observe(observed.pods, engines)
    # A late node is no dead one: its pods count while their engines answer.
    serving = [
        pod.name
        for pod in observed.serving
        if not pod.node_silent or pod.name in engines or windows.has_recent_sample(pod.name, now)
    ]
    observation = Observation(
        now=now,
        replicas=replicas,
        engines=engines,
        serving=serving,
        pending=[pod.name for pod in observed.pending],
        draining=[pod.name for pod in observed.pods if pod.name not in serving and pod not in observed.pending],
        held=held,
        idle_seconds=idle_seconds,
        startup_seconds=readers.startup.average,
        # An engine that did not answer is no reason to lose the cap that was found for it.
        live_cap=resource.status.get("concurrency", {}).get("target") or None,
        gateway_requests=requests,
        refused_reports=tuple(f"{pod}: {refusal}" for pod, refusal in sorted(observed.refused.items())),
        failed_calls=failed_calls,
    )
    windows.observe(observation)
    samples = {pod.name: windows.latest_sample(pod.name) for pod in observed.answering}
    return replace(
        observed,
        observation=observation,
        signals=windows.summarize_signals(),
        samples={pod: sample for pod, sample in samples.items() if sample is not None},
        startup=startup,
        num_routing=num_routing,
    )


def _find_replicas(observed: Observed, targets: Mapping[str, int]) -> int | None:
    """Replicas decided last; before that those of the Deployment, which later may be older than the decision."""
    deployment = observed.deployment
    if observed.is_target and deployment is not None:
        return deployment.spec_replicas
    if REPLICAS in targets:
        return targets[REPLICAS]
    if deployment is None:
        return None
    return max(deployment.spec_replicas - len(observed.drained), 0)
