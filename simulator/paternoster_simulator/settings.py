"""Everything about a simulated fleet that is neither hardware nor traffic: what the manifest and the gateway say."""

from dataclasses import dataclass

from paternoster_engine.core.config import SchedulerConfig
from paternoster_operator.api.v1alpha1 import DrainMode, LLMDeploymentSpec
from paternoster_simulator.profile import Objective, Profile


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Settings of one fleet. Defaults are those of the API; None takes the profile's value."""

    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    max_model_len: int | None = None
    max_queued_requests: int = 1024
    prefix_cache: bool = False
    """Only of use with a trace that says which prefixes are shared."""
    prefix_routing: bool = False
    """With a prefix cache: route by what replicas hold of a prompt. The gateway routes by requests in flight."""
    published_caches: bool = True
    """Engines publish what they have cached; else the gateway goes by what it sent them, as with other engines."""
    max_held_requests: int = 256
    hold_timeout_seconds: float = 120.0
    drain_timeout_seconds: float = 300.0
    hand_over: bool = True
    """What runs at a replica that is to end goes on at others; else that replica finishes it, or loses it."""
    objective: Objective | None = None
    fast_forward: bool = True
    """Take runs of equal steps at once; off, every step is made for itself, with the same outcome."""

    @classmethod
    def from_spec(cls, spec: LLMDeploymentSpec, profile: Profile, *, prefix_cache: bool = False) -> "FleetSettings":
        """What a manifest says; settings of the engine that it leaves out are the profile's."""
        set_fields, auto = spec.engine.model_fields_set, spec.autoscaling
        hold = spec.admission.hold_timeout_seconds
        if auto is not None and auto.scale_to_zero.enabled:
            # As the operator's routing table has it.
            hold = auto.scale_to_zero.activation_timeout_seconds
        return cls(
            max_num_seqs=spec.engine.max_num_seqs if "max_num_seqs" in set_fields else None,
            max_batched_tokens=spec.engine.max_batched_tokens,
            max_model_len=spec.engine.max_model_len,
            max_queued_requests=spec.engine.max_queued_requests,
            prefix_cache=prefix_cache and spec.engine.prefix_cache,
            max_held_requests=spec.admission.max_held_requests,
            hold_timeout_seconds=hold,
            drain_timeout_seconds=spec.drain.timeout_seconds,
            hand_over=spec.drain.mode is DrainMode.HAND_OVER,
            objective=_read_objective(spec, profile),
        )

    def scheduler_config(self, profile: Profile) -> SchedulerConfig:
        """Configuration that the engine would build; raises ``ValueError`` for numbers that it would refuse."""
        max_num_seqs = self.max_num_seqs or profile.max_num_seqs
        return SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_batched_tokens=self.max_batched_tokens or max(profile.max_batched_tokens, max_num_seqs),
            max_model_len=self.max_model_len or profile.max_model_len,
            block_size=profile.kv_block_size,
            num_blocks=profile.kv_blocks,
            windows=profile.kv_windows,
            watermark_blocks=profile.kv_blocks * profile.watermark_percent // 100,
            max_queued_requests=self.max_queued_requests,
            prefix_cache=self.prefix_cache,
        )


def with_capacity(spec: LLMDeploymentSpec, profile: Profile) -> LLMDeploymentSpec:
    """The spec with the profile's ``engine.maxNumSeqs`` where it has none of its own: the law reads it there."""
    if "max_num_seqs" in spec.engine.model_fields_set:
        return spec
    engine = spec.engine.model_copy(update={"max_num_seqs": profile.max_num_seqs})
    return spec.model_copy(update={"engine": engine})


def _read_objective(spec: LLMDeploymentSpec, profile: Profile) -> Objective:
    """The manifest's objective where it has one, field by field; else the profile's."""
    slo = getattr(spec, "slo", None)
    ttft = getattr(slo, "ttft_p95_milliseconds", None)
    itl = getattr(slo, "itl_p95_milliseconds", None)
    return Objective(ttft_ms=ttft or profile.objective.ttft_ms, itl_ms=itl or profile.objective.itl_ms)
