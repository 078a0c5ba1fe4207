"""Plan the loads and unloads of adapters (LoRA) for each engine, from what it reports. Pure.

An example: a fleet wants ``sql`` and ``chat``; an engine reports ``sql`` of another version, and ``old``. The changes
are loads of ``sql``, in place, and of ``chat``, and the unload of ``old``. Nothing is planned for what an engine loads
already, a load that failed is tried again after :data:`RETRY_SECONDS`, and what somebody loaded by the admin API, which
has no version, stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paternoster_contract.admin import LoadLoraAdapter, UnloadLoraAdapter
from paternoster_contract.stats import LoraAdapterStats
from paternoster_operator.api.types.adapter import ModelAdapter

RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LoraChanges:
    """Calls for one engine."""

    loads: Sequence[LoadLoraAdapter] = ()
    unloads: Sequence[UnloadLoraAdapter] = ()


def plan_lora_changes(desired: Sequence[ModelAdapter], seen: Sequence[LoraAdapterStats], now: float) -> LoraChanges:
    """Plan the calls that bring an engine that reports ``seen`` to ``desired``.

    ``now`` is the engine's, as its times of failures are.
    """
    reports = {report.name: report for report in seen}
    names = {adapter.name for adapter in desired}
    loads = [
        LoadLoraAdapter(
            lora_name=adapter.name,
            lora_path=adapter.source,
            lora_digest=adapter.digest,
            lora_version=adapter.version,
            load_inplace=True,
            wait=False,
        )
        for adapter in desired
        if _needs_load(adapter, reports.get(adapter.name), now)
    ]
    unloads = [name for name, report in reports.items() if report.version and name not in names]
    return LoraChanges(loads, [UnloadLoraAdapter(lora_name=name) for name in unloads])


def _needs_load(adapter: ModelAdapter, report: LoraAdapterStats | None, now: float) -> bool:
    if report is None or report.version != adapter.version:
        return True
    failed = bool(report.fault) and not report.loading
    return failed and now - (report.failed_at or 0.0) >= RETRY_SECONDS


def find_loaded(desired: Sequence[ModelAdapter], seen: Sequence[LoraAdapterStats]) -> list[str]:
    """Names of ``desired`` that the engine answers for, by whatever version, in order."""
    ready = {report.name for report in seen if report.ready}
    return [adapter.name for adapter in desired if adapter.name in ready]


def is_settled(adapter: ModelAdapter, seen: Sequence[LoraAdapterStats]) -> bool:
    """Whether the engine has loaded this version, or failed to."""
    return any(
        report.name == adapter.name and report.version == adapter.version and (bool(report.fault) or not report.loading)
        for report in seen
    )
