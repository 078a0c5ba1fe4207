"""Our own engine: ``/stats`` and the admin API are the contract themselves."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import ValidationError

from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.http import paths
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.stats import EngineStats
from paternoster_operator.engines.adapter import (
    Actuator,
    BoundPort,
    Capabilities,
    Continuation,
    Launch,
    LimitsCall,
    Refusal,
    RuntimeType,
    StatsRequest,
    StatsUnavailable,
)
from paternoster_operator.engines.answers import check_values
from paternoster_operator.engines.arguments import replace_flags

LONGEST_STATS = 128 * 2**10
"""Bytes of ``/stats``."""


class PaternosterKind:
    """The engine of this project."""

    type = RuntimeType.PATERNOSTER
    actuator = Actuator.ADMIN_API
    health_path = paths.HEALTH
    capabilities = Capabilities(
        live_cap=True, token_budget=True, queue_limit=True, step_costs=True, drain=True, text_chains=True,
        continuation=Continuation.EXACT,
    )  # fmt: skip
    finishes_requests = True
    inherits_sockets = True
    refusals: Sequence[Refusal] = ()

    def launch(self, settings: EngineArgs, args: Sequence[str] = ()) -> Launch:
        return Launch(["paternoster", "serve"], [*settings.to_flags(), *args])

    def start_locally(self, launch: Launch, host: str, port: BoundPort, admin: BoundPort | None) -> Launch:
        operators = {} if admin is None else {"admin_port": admin.number, "admin_fd": admin.socket}
        flags = replace_flags(launch.args, port=port.number, fd=port.socket, **operators, host=host)
        return replace(launch, args=flags)

    def find_owned_flags(self, args: Sequence[str]) -> list[str]:
        """None: a rule refuses ``args`` of any kind."""
        return []


class PaternosterAdapter:
    """It answers with the contract's own documents."""

    kind = PaternosterKind()
    without_limits = None
    stats_requests = (StatsRequest(paths.STATS, LONGEST_STATS),)

    def parse_stats(self, answers: Sequence[bytes], now: float) -> EngineStats:
        check_values(answers[0], "/stats")
        try:
            return EngineStats.model_validate_json(answers[0])
        except ValidationError as error:
            raise StatsUnavailable.from_validation(error) from None

    def limits_call(self, limits: LiveConfigPatch) -> LimitsCall | None:
        return LimitsCall("PATCH", paths.ADMIN_CONFIG, limits.model_dump(exclude_none=True))
