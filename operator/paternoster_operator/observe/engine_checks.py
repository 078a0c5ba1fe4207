"""Health and one request of each replica whose engine is not ours.

A kubelet says that a container is not ready, and not why; and a server that is ready may refuse every request: it has
the model under another name, or wants a key of its own. ``GET /v1/models`` would not find these: llama.cpp answers it
without a key and takes any name, and ``transformers serve`` lists models that it then refuses. So the operator sends
what gateways send: a request, of one token, with their key.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.observed import Observed, PodFields
from paternoster_operator.pods.engine_fault import EngineAnswer, EngineFault, judge_health, judge_request
from paternoster_operator.pods.view import PodView

UNCLEAR_ANSWERS = 3
"""Requests without an answer, after which a replica counts for one that takes them: it may be slow or busy."""
PERSISTS_SECONDS = 2.0
"""Time for which a health path has to be refused before waiting does not help: a kubelet's period of probes."""
REQUESTS: Sequence[tuple[str, dict[str, Any]]] = (
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "."}], "max_tokens": 1}),
    ("/v1/completions", {"prompt": ".", "max_tokens": 1}),
)
"""A model without a chat template answers the second alone."""

AskEngine = Callable[[str, str, Sequence[str], Any], Awaitable[EngineAnswer]]
"""Method, URL, keys, body: see :meth:`paternoster_operator.scrape.Scraper.ask_engine`."""
FindKeys = Callable[[LLMDeployment], Awaitable[Sequence[str]]]


@dataclass(slots=True)
class _Check:
    """What is known of one run of a pod's engine."""

    run: tuple[int, str]
    """Its restarts, and the name of the model in requests."""
    accepted: bool = False
    """Whether it answered a request, or counts for one that does."""
    unclear: int = 0
    unhealthy_since: float | None = None
    """Since when its health path is refused, on the operator's clock."""
    fault: EngineFault | None = None


@dataclass(slots=True)
class EngineChecks:
    """Checks of one fleet's pods."""

    _checks: dict[str, _Check] = field(default_factory=dict)
    """Checks by the pod's name."""

    async def find_faults(
        self, observed: Observed, resource: LLMDeployment, ask_engine: AskEngine, find_keys: FindKeys, clock: float
    ) -> PodFields:
        """Check the engines of the pods of ``observed``; returns faults by their name."""
        pods = [] if observed.is_target else [pod for pod in observed.live if _is_checked(pod)]
        model = resource.served_names[0]
        self._checks = {pod.name: self._find_check(pod, pod.upstream_model or model) for pod in pods}
        checks = [(pod, self._checks[pod.name]) for pod in pods]
        untried = [(pod, check) for pod, check in checks if pod.ready and not check.accepted]
        calls = [_check_health(pod, check, ask_engine, clock) for pod, check in checks if not pod.ready]
        try:
            keys = await find_keys(resource) if untried else ()
            calls += [_check_requests(pod, check, ask_engine, keys) for pod, check in untried]
        except ClusterError:
            pass  # who cannot read keys reports so where it sends them
        await asyncio.gather(*calls)
        return {
            pod.name: {"engine_fault": None if pod.ready and check.accepted else check.fault} for pod, check in checks
        }

    def _find_check(self, pod: PodView, model: str) -> _Check:
        check, run = self._checks.get(pod.name), (pod.restarts, model)
        return check if check is not None and check.run == run else _Check(run)


def _is_checked(pod: PodView) -> bool:
    runs = pod.phase == "Running" and pod.waiting_reason is None and pod.url is not None
    return runs and pod.engine_type is not RuntimeType.PATERNOSTER


async def _check_health(pod: PodView, check: _Check, ask_engine: AskEngine, clock: float) -> None:
    assert pod.url is not None
    path = KINDS[pod.engine_type].health_path
    check.fault = judge_health(path, await ask_engine("GET", pod.url + path, (), None), pod.url)
    if check.fault is None or not check.fault.lasting:
        check.unhealthy_since = None
        return
    if check.unhealthy_since is None:
        check.unhealthy_since = clock
    check.fault = replace(check.fault, lasting=clock - check.unhealthy_since >= PERSISTS_SECONDS)


async def _check_requests(pod: PodView, check: _Check, ask_engine: AskEngine, keys: Sequence[str]) -> None:
    assert pod.url is not None
    model, refusals = check.run[1], []
    for path, body in REQUESTS:
        answer = await ask_engine("POST", pod.url + path, keys, {"model": model, **body})
        fault = judge_request(f"POST {path} for model {model!r}", answer, keyed=bool(keys))
        if fault is None:
            break
        refusals.append(fault)
    else:
        check.fault = refusals[0]
        return
    answered = answer.status is not None and answer.status < 400
    check.unclear += not answered
    check.accepted, check.fault = answered or check.unclear >= UNCLEAR_ANSWERS, None
