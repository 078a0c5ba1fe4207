"""Reads cluster, names, keys, engines and gateways of one fleet, and puts them together into :class:`Observed`."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from paternoster_contract.stats import EngineStats
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.autoscaling.decision import REPLICAS
from paternoster_operator.autoscaling.observation import Observation
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.windows import SignalWindows
from paternoster_operator.cluster.foreign_fields import describe_foreign_fields
from paternoster_operator.cluster.port import Cluster, ClusterError, Key, WatchFailed
from paternoster_operator.keys.fleet_keys import FleetKeys
from paternoster_operator.names.directory import Directory
from paternoster_operator.observe.engine_checks import EngineChecks
from paternoster_operator.observe.pod_events import EventReader
from paternoster_operator.observed import Observed, ObservedKeys
from paternoster_operator.plausible import Refusal, find_implausible
from paternoster_operator.pods.view import EngineAddress, PodView
from paternoster_operator.report.engine_facts import complete_stats
from paternoster_operator.report.model_fetch import merge_progress
from paternoster_operator.report.startup import StartupTimes
from paternoster_operator.scrape import Scraper, count_routing, held_by_fleet, idle_by_fleet, requests_by_gateway

_OTHER_CHILDREN = ("Service", "PodDisruptionBudget", "NetworkPolicy")
"""Those that a watch reports beside the Deployment."""
STEADY_SECONDS = 300.0
"""Length of a run after which the ends before it no longer count."""
LOOP_ENDS = 3
"""Ends within such runs from which an engine that has served is taken to end again and again."""
NO_CALLS: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class ServedPods:
    """Which pods of a fleet have served, and how often each had ended when it last ran for long."""

    _steady_ends: dict[str, int] = field(default_factory=dict)
    """Its ends as of its last run of :data:`STEADY_SECONDS`, or else as of when it served first, by the pod's name."""
    _served_ends: dict[str, int] = field(default_factory=dict)
    """The same as of the last run in which it served."""

    def mark_pods(self, observed: Observed) -> Observed:
        """``observed`` with what is remembered of its pods."""
        names = {pod.name for pod in observed.pods}
        self._steady_ends, self._served_ends = (
            {name: ends for name, ends in before.items() if name in names}
            for before in (self._steady_ends, self._served_ends)
        )
        for pod in observed.pods:
            lasted = 0.0 if pod.ended is None else pod.ended.lasted_seconds or 0.0
            if pod.ready:
                self._served_ends[pod.name] = pod.ends
                if pod.name not in self._steady_ends or pod.has_run_since(STEADY_SECONDS, observed.time):
                    self._steady_ends[pod.name] = pod.ends
            elif pod.name not in self._served_ends and lasted >= STEADY_SECONDS:  # another operator saw it serve
                self._steady_ends[pod.name] = self._served_ends[pod.name] = pod.ends - 1
        ended = [pod for pod in observed.pods if not pod.ready and pod.ends > self._served_ends.get(pod.name, pod.ends)]
        recover = {pod.name for pod in ended if pod.ends - self._steady_ends[pod.name] < LOOP_ENDS}
        return observed.with_fields(
            {
                pod.name: {
                    "has_served": pod.name in self._served_ends,
                    "served_in_this_run": self._served_ends.get(pod.name) == pod.ends,
                    "recovers": pod.name in recover,
                }
                for pod in observed.pods
            }
        )


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
        names, unnamed = await self._directory.claim_names(resource)
        starts_unnamed = unnamed is not None and self._directory.may_start_unnamed(resource)
        objects, refusal = await read_objects(self._cluster, key, resource)
        refusal = refusal or (None if starts_unnamed else unnamed)
        if unwatched is not None:
            refusal = (WatchFailed.reason, f"{unwatched.message}; replicas and limits stay as they are")
        observed = replace(
            objects,
            at=self._wall(),
            names=names,
            unnamed=unnamed,
            starts_unnamed=starts_unnamed,
            refusal=refusal,
            routes_share=self._routes_share(key),
            keys=ObservedKeys(admin=before.keys.admin),
        )
        if observed.may_change(resource.spec):
            observed = replace(observed, keys=await self._read_keys(resource, before.keys))
        fetching = observed.fetching if resource.spec.model.remote else ()
        (stats, faults, failed_calls), gateways, downloads = await asyncio.gather(
            self._scraper.read_engines(_admin_urls(observed.answering), observed.adapters, observed.keys.admin),
            self._scraper.read_gateways(resource.metadata.uid),
            self._scraper.read_downloads(_admin_urls(fetching)),
        )
        progress = {pod.name: pod.download for pod in before.pods}
        observed = observed.with_fields(
            {pod: {"download": merge_progress(status, progress.get(pod))} for pod, status in downloads.items()}
        )
        observed = await readers.events.add_events(observed, self._cluster, key, self._clock())
        observed = readers.served_pods.mark_pods(observed)
        observed = await readers.checks.add_faults(
            observed, resource, self._scraper.ask_engine, self._keys.gateway_keys, self._clock()
        )
        now = self._clock()
        engines, refused = _judge_reports(observed, resource, stats, readers.windows, now)
        unread = {pod: Refusal("form", fault) for pod, fault in faults.items() if pod not in {*stats, *failed_calls}}
        answering = [pod.name for pod in observed.answering]
        observed = replace(
            observed,
            engines=engines,
            refused=unread | refused,
            cap_faults=before.cap_faults.observe(faults, before.engines, stats, answering),
            gateways=gateways,
            num_routing=count_routing(gateways, names, resource.metadata.uid),
        )
        return add_signals(observed, resource, readers, targets, now, failed_calls)

    async def _read_keys(self, resource: LLMDeployment, before: ObservedKeys) -> ObservedKeys:
        found = ObservedKeys(admin=before.admin)
        try:
            roots = await self._keys.read_roots()
            found = replace(found, admin_roots=roots.admin, gateway_roots=roots.gateway)
            found = replace(found, admin=await self._keys.admin_keys(resource, roots))
        except ClusterError as error:
            return replace(found, fault=error)
        try:
            clients = await self._keys.client_keys(resource)
        except ClusterError as error:
            return replace(found, client_fault=error)
        return replace(found, client_fault=clients.fault)


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


def _admin_urls(pods: Iterable[PodView]) -> dict[str, str]:
    return {pod.name: pod.admin_url for pod in pods if pod.admin_url is not None}


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
    readers.startup.observe(observed.pods, engines)
    serving = observed.list_counted(lambda pod: pod in engines or windows.has_recent_sample(pod, now))
    observation = Observation(
        now=now,
        replicas=_find_replicas(observed, resource, targets),
        engines=engines,
        serving=serving,
        pending=[pod.name for pod in observed.pending],
        draining=[pod.name for pod in observed.pods if pod.name not in serving and pod not in observed.pending],
        held=held_by_fleet(observed.gateways).get(uid, 0),
        idle_seconds=idle_by_fleet(observed.gateways).get(uid),
        startup_seconds=readers.startup.average,
        # An engine that did not answer is no reason to lose the cap that was found for it.
        live_cap=resource.status.get("concurrency", {}).get("target") or None,
        gateway_requests=requests_by_gateway(observed.gateways, uid),
        refused_reports=tuple(f"{pod}: {refusal}" for pod, refusal in sorted(observed.refused.items())),
        failed_calls=failed_calls,
    )
    window_seconds = resource.spec.concurrency.window_seconds
    windows.observe(observation, window_seconds)
    samples = {pod.name: windows.latest_sample(pod.name) for pod in observed.answering}
    return replace(
        observed,
        observation=observation,
        signals=windows.summarize_signals(window_seconds),
        samples={pod: sample for pod, sample in samples.items() if sample is not None},
        startup=readers.startup.to_document(),
    )


def _find_replicas(observed: Observed, resource: LLMDeployment, targets: Mapping[str, int]) -> int:
    """Replicas decided last; before that those of the Deployment, which later may be older than the decision."""
    deployment = observed.deployment
    if observed.is_target and deployment is not None:
        return deployment.spec_replicas
    if REPLICAS in targets:
        return targets[REPLICAS]
    if deployment is None:
        return ScalingPolicy.from_spec(resource.spec, observed.at).start_replicas
    return max(deployment.spec_replicas - len(observed.drained), 0)
