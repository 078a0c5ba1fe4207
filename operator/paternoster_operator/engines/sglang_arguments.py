"""The settings of an engine as SGLang's flags, and the fields that SGLang cannot honour."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paternoster_contract.http import paths
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.engines.adapter import Actuator, BoundPort, Capabilities, Continuation, Launch, RuntimeType
from paternoster_operator.engines.arguments import (
    find_owned,
    list_refusals,
    map_owned_flags,
    replace_flags,
    write_flags,
)

REFUSALS = list_refusals(RuntimeType.SGLANG, "SGLang")
"""Fields that mean nothing to SGLang, or something else."""

OWNED = map_owned_flags(RuntimeType.SGLANG)
"""Flags that a field sets."""
OPERATORS: Mapping[str, str] = {
    "host": "the operator sets it",
    "port": "the operator sets it",
    "enable-metrics": "the operator sets it",
    "pp-max-micro-batch-size": "the operator sets it live",
    "pipeline-parallel-size": "the operator's live cap counts one stage",
    "pp-size": "the operator's live cap counts one stage",
    "data-parallel-size": "the operator adds replicas, and reads one scheduler",
    "dp-size": "the operator adds replicas, and reads one scheduler",
    "api-key": "gateways check clients' keys",
    "admin-api-key": "the operator sends no key",
    "config": "a file could set any other flag",
}
"""Flags that no field sets and none may."""


class SglangKind:
    """SGLang, whose live cap ``set_internal_state`` moves."""

    type = RuntimeType.SGLANG
    actuator = Actuator.INTERNAL_STATE
    health_path = paths.HEALTH
    capabilities = Capabilities(
        live_cap=True, token_budget=False, queue_limit=False, step_costs=False, drain=False, text_chains=False,
        continuation=Continuation.NONE,
    )  # fmt: skip
    finishes_requests = True
    inherits_sockets = False
    refusals = REFUSALS

    def launch(self, settings: EngineArgs, args: Sequence[str] = ()) -> Launch:
        flags = write_flags(settings, RuntimeType.SGLANG)
        env = {"HF_HUB_OFFLINE": "1"}
        return Launch(["python3", "-m", "sglang.launch_server"], [*flags, "--enable-metrics", *args], env)

    def start_locally(self, launch: Launch, host: str, port: BoundPort, admin: BoundPort | None) -> Launch:
        return replace(launch, args=replace_flags(launch.args, port=port.number, host=host))

    def find_owned_flags(self, args: Sequence[str]) -> list[str]:
        return find_owned(args, OWNED, OPERATORS)
