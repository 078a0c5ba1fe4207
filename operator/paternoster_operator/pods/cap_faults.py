"""Why the live cap that an engine reports is not what holds, by pod: gateways hold it then. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from paternoster_contract.stats import EngineStats, Unreported

T = TypeVar("T")
MOST_CALLS = 3
"""Calls that may set one live cap before it counts as one that no call moves: a step may delay the first."""
STEADY_REPORTS = 3
"""Reports in turn with one live cap before more that run are beyond it: what runs may be counted before the cap is."""


@dataclass(frozen=True, slots=True)
class CapFaults:
    """What was seen of the engines of one fleet; of each pod until it is gone."""

    answers: Mapping[str, str] = field(default_factory=dict)
    """What was wrong with the last answer, until the engine reports limits."""
    calls: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The live cap that calls set and the engine does not report, and how many calls there were."""
    steady: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The live cap that the engine reports, and in how many reports in turn."""
    exceeded: Mapping[str, str] = field(default_factory=dict)
    """What ran beyond a live cap that the engine reported."""

    @property
    def by_pod(self) -> Mapping[str, str]:
        refused = {
            pod: f"the live cap is not {cap} after {calls} calls that set it"
            for pod, (cap, calls) in self.calls.items()
            if calls >= MOST_CALLS
        }
        return {**refused, **self.exceeded, **self.answers}

    def observe(
        self,
        faults: Mapping[str, str],
        before: Mapping[str, EngineStats],
        reports: Mapping[str, EngineStats],
        pods: Collection[str],
    ) -> "CapFaults":
        """After the answers of ``pods``: ``faults`` of some, ``reports`` of others, none of the rest.

        One that reports without limits has a fault, too. ``before``: their reports until then.
        """
        silent = {pod: text for pod, text in self.answers.items() if pod in pods and pod not in reports}
        answers = {**silent, **faults}
        steady, exceeded = _of_pods(self.steady, pods), _of_pods(self.exceeded, pods)
        for pod, report in reports.items():
            if Unreported.LIMITS in report.unreported:
                continue
            cap, count = steady.get(pod, (report.live_cap, 0))
            steady[pod] = report.live_cap, count + 1 if report.live_cap == cap else 1
            # What ran when the cap was cut may go on.
            most = max(report.live_cap, before[pod].running if pod in before else report.running)
            if steady[pod][1] >= STEADY_REPORTS and report.running > most:
                exceeded[pod] = f"{report.running} requests run where it reports a live cap of {report.live_cap}"
        return CapFaults(answers, _of_pods(self.calls, pods), steady, exceeded)

    def count_calls(self, caps: Mapping[str, int]) -> "CapFaults":
        """Count one call for each of the live ``caps``, by pod; the engines of all other pods report theirs."""
        calls = {}
        for pod, cap in caps.items():
            last, count = self.calls.get(pod, (cap, 0))
            calls[pod] = cap, count + 1 if cap == last else 1
        return replace(self, calls=calls)


def _of_pods(values: Mapping[str, T], pods: Collection[str]) -> dict[str, T]:
    return {pod: value for pod, value in values.items() if pod in pods}
