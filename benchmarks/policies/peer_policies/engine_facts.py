"""What a peer has of the engines before they serve: start-up settings, and what profiling them has shown."""

from dataclasses import dataclass

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_simulator.profile import Profile
from paternoster_simulator.settings import FleetSettings


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine of the fleet. Times in seconds, KV in tokens."""

    max_num_seqs: int
    max_batched_tokens: int
    fixed_seconds: float
    """A step that does nothing."""
    per_prefill_token_seconds: float
    per_decode_sequence_seconds: float
    per_kv_token_seconds: float
    per_prefill_pair_seconds: float
    """For each pair of prompt token and token of its context."""
    ttft_seconds: float
    """Objective of the fleet."""
    itl_seconds: float
    """Objective of the fleet."""

    @classmethod
    def of(cls, spec: LLMDeploymentSpec, profile: Profile) -> "EngineFacts":
        """What the manifest says, else the profile's."""
        settings = FleetSettings.from_spec(spec, profile)
        objective = settings.objective or profile.objective
        return cls(
            max_num_seqs=settings.max_num_seqs or profile.max_num_seqs,
            max_batched_tokens=settings.max_batched_tokens or profile.max_batched_tokens,
            fixed_seconds=profile.step.fixed_seconds,
            per_prefill_token_seconds=profile.step.per_prefill_token_seconds,
            per_decode_sequence_seconds=profile.step.per_decode_sequence_seconds,
            per_kv_token_seconds=profile.step.per_kv_token_seconds,
            per_prefill_pair_seconds=profile.step.per_prefill_pair_seconds,
            ttft_seconds=objective.ttft_ms / 1000,
            itl_seconds=objective.itl_ms / 1000,
        )
