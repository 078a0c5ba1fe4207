"""What one tenant may take of the engine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """A tenant's weight and quotas, as its requests bring them."""

    weight: float = 1.0
    """Share of the engine relative to other tenants."""
    max_queued: int = 0
    """Waiting requests above which new ones are refused; 0 is no limit."""
    max_running: int = 0
    """Sequences that run at once, above which others wait; 0 is no limit."""
    tokens_per_second: float = 0.0
    """Prompt and output tokens; 0 is no limit."""
    token_burst: float = 0.0
    """Tokens it may use at once after it was quiet; 0 is ten seconds' worth."""
