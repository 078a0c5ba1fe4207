"""What the serving engines of a fleet have in common, from their last reports. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from pydantic.alias_generators import to_camel

from paternoster_contract.default_parameters import DefaultParameters
from paternoster_contract.stats import EngineStats, Unreported
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.engines.adapter import Actuator, Capabilities, Continuation, EngineKind
from paternoster_operator.report.gateway_cap import GatewayCap

_OF_THE_CAP = {"live_cap"}
"""Capabilities of gateways in place of an engine."""
_OF_STEPS = {"step_costs"}
"""Capabilities of an engine whose steps are measured."""


def describe_engine(
    kind: EngineKind, version: str, actuator: Actuator, unreported: Sequence[Unreported] = ()
) -> dict[str, Any]:
    """``status.engine``: which engine it is, and what the operator can do with it by way of ``actuator``.

    An empty ``version`` is written, too: the API server would add it, and each look would find a status that differs.
    """
    able = {field.name for field in fields(Capabilities) if getattr(kind.capabilities, field.name) is True}
    if kind.capabilities.continuation is not Continuation.NONE:
        able.add(f"{kind.capabilities.continuation}_continuation")
    able |= {f"no_continuation_of_{name}" for name in kind.capabilities.not_continued}
    if actuator is not kind.actuator:
        able = _OF_THE_CAP if actuator is Actuator.GATEWAY else set()
    if Unreported.STEPS in unreported:
        able -= _OF_STEPS
    capabilities = sorted(map(to_camel, able))
    return {"type": str(kind.type), "version": version, "actuator": str(actuator), "capabilities": capabilities}


def complete_stats(stats: EngineStats, restarts: int, resource: LLMDeployment) -> EngineStats:
    """``stats`` with what its engine does not report and the operator has; a restart begins another instance."""
    completed: dict[str, Any] = {} if stats.instance else {"instance": f"start {restarts}"}
    if Unreported.LIMITS in stats.unreported:
        others = tuple(name for name in stats.unreported if name is not Unreported.LIMITS)
        capacity, held = resource.spec.engine.max_num_seqs, GatewayCap.from_status(resource.status)
        live_cap = capacity if held is None else min(held.max_in_flight, capacity)
        completed |= {"capacity": capacity, "live_cap": live_cap, "unreported": others}
    return stats.model_copy(update=completed) if completed else stats


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The smallest of each where engines differ; 0 where no engine reports it."""

    capacity: int = 0
    """``max_num_seqs``: no live cap can be above it."""
    lowest_live_cap: int = 0
    highest_live_cap: int = 0
    token_capacity: int = 0
    """``max_batched_tokens``; 0 where an engine has no live token budget."""
    token_budget: int = 0
    kv_blocks: int = 0
    kv_block_size: int = 0
    """Tokens of a block."""
    max_model_len: int = 0
    """Longest prompt plus output, tokens."""
    version: str = ""
    """Version of the engine's program; empty where engines differ."""
    default_parameters: DefaultParameters | None = None
    """Sampling settings on which all agree; None where none reports any."""

    @classmethod
    def from_reports(cls, reports: Sequence[EngineStats]) -> Self:
        if not reports:
            return cls()
        return cls(
            capacity=min(report.capacity for report in reports),
            lowest_live_cap=min(report.live_cap for report in reports),
            highest_live_cap=max(report.live_cap for report in reports),
            token_capacity=min(report.max_batched_tokens for report in reports),
            token_budget=min(report.token_budget for report in reports),
            kv_blocks=min(report.kv_blocks for report in reports),
            kv_block_size=min(report.kv_block_size for report in reports),
            max_model_len=min(report.max_model_len for report in reports),
            version=versions.pop() if len(versions := {report.engine_version for report in reports}) == 1 else "",
            default_parameters=DefaultParameters.find_common(report.default_parameters for report in reports),
        )
