"""What one tenant may use, and what its requests may ask for."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from paternoster_contract.flags import Settings
from paternoster_contract.limits import MAX_PRIORITY, MIN_PRIORITY
from paternoster_contract.settings.row import NO_TENANTS, OtherEngines, SpecField, add_note, refuse_rest


def _parse_weights(value: object) -> object:
    """``name=weight,name=weight`` as a mapping; raises ``ValueError`` for what no flag could say."""
    if isinstance(value, str):
        pairs = [pair.rpartition("=") for pair in value.split(",") if pair]
        if not all(equals for _, equals, _ in pairs):
            raise ValueError("must be name=weight,name=weight")
        value = {name: weight for name, _, weight in pairs}
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str) or not name or "=" in name or "," in name:
                raise ValueError(f"a tenant's name is {name!r}: must not be empty and have neither '=' nor ','")
    return value


def _check_weights(weights: Mapping[str, float]) -> Mapping[str, float]:
    for name, weight in weights.items():
        if not 0 < weight < math.inf:
            raise ValueError(f"is {weight} for {name!r}: must be above 0")
    return weights


Weights = Annotated[Mapping[str, float], BeforeValidator(_parse_weights), AfterValidator(_check_weights)]
"""Shares by tenant; as text ``name=weight,name=weight``."""


_ONE_CACHE = add_note("Tenant is refused where clients have keys of their own and the prefix cache is on")
_ANY_PRIORITY = OtherEngines(
    refuse_rest("vLLM believes any priority of a request"), refuse_rest("SGLang believes any priority of a request")
)
_Count = Annotated[int, Field(ge=0)]


# fmt: off
class TenantSettings(Settings):
    """What the scheduler holds a tenant to where its key says nothing else."""

    max_queued_per_tenant: Annotated[int, SpecField("engine.tenants.maxQueued"), NO_TENANTS] = Field(
        default=0, ge=0, description="Queued requests above which new ones get 429; 0 for no limit.")
    max_running_per_tenant: Annotated[int, SpecField("engine.tenants.maxRunning"), NO_TENANTS] = Field(
        default=0, ge=0, description="Sequences that run at once, above which others wait; 0 for no limit.")
    tenant_tokens_per_second: Annotated[
        float, SpecField("engine.tenants.tokensPerSecond", annotation=_Count), NO_TENANTS] = Field(
        default=0, ge=0, description="Prompt and output tokens; 0 for no limit.")
    tenant_token_burst: Annotated[float, SpecField("engine.tenants.tokenBurst", annotation=_Count), NO_TENANTS] = Field(
        default=0, ge=0, description="Tokens that may be used at once; 0 for ten seconds' worth.")
    tenant_weights: Annotated[
        Weights, SpecField("engine.tenants.weights", default=[], by_hand=True), NO_TENANTS] = Field(
        default_factory=dict,
        description="order fair-share: shares as name=weight,name=weight; 1 for tenants not named")


class ClientSettings(TenantSettings):
    """With what the server lets clients ask for and share."""

    cache_isolation: Annotated[Literal["tenant", "fleet"],
        SpecField("engine.cacheIsolation", "Who is served from prefixes that a tenant's prompts left: Tenant, that "
                  "tenant alone, as otherwise the time to a first token reveals others' prompts; Fleet, all tenants. "
                  "Without keys there is one tenant.", Literal["Tenant", "Fleet"], "Tenant", str.lower),
        OtherEngines(_ONE_CACHE, _ONE_CACHE, _ONE_CACHE)] = Field(
        default="tenant",
        description="who is served from prefixes that a tenant's prompts left. tenant: that tenant alone, where "
        "identities are known; fleet: everybody")
    min_priority: Annotated[int, SpecField("engine.minPriority"), _ANY_PRIORITY] = Field(
        default=0, ge=MIN_PRIORITY, le=MAX_PRIORITY,
        description="Most urgent class that a request may ask for where its key says nothing else; lower is more "
        "urgent.")
    max_priority: Annotated[int, SpecField("engine.maxPriority"), _ANY_PRIORITY] = Field(
        default=MAX_PRIORITY, ge=MIN_PRIORITY, le=MAX_PRIORITY, description="Least urgent class that it may ask for.")

    @model_validator(mode="after")
    def _check_priorities(self) -> Self:
        if self.min_priority > self.max_priority:
            raise ValueError(
                f"min_priority is {self.min_priority}: must be at most max_priority, which is {self.max_priority}"
            )
        return self
