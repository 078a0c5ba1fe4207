"""What the scheduler is built with."""

from dataclasses import dataclass
from typing import Literal

Mode = Literal["continuous", "static"]


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Fixed for the life of a scheduler; only the live cap moves."""

    max_num_seqs: int
    """Capacity: sequences that can ever run at once."""
    max_batched_tokens: int
    """Token budget of one step."""
    max_model_len: int
    """Longest prompt plus output, tokens."""
    block_size: int
    """Tokens per KV block."""
    num_blocks: int
    """Blocks that can be handed out; the null block comes on top."""
    watermark_blocks: int = 0
    """Blocks an admission leaves free for those that run already."""
    max_queued_requests: int = 1024
    """Waiting requests above which new ones are refused."""
    prefix_cache: bool = True
    """Share blocks between requests with equal prefixes."""
    mode: Mode = "continuous"
    """continuous: admit at every step; static: only when nothing runs."""
    force_preempt_every: int = 0
    """Preempt one running request every so many steps; 0 is never. For tests and chaos runs."""

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_batched_tokens", "max_model_len", "block_size", "num_blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: must be at least 1")
        for name in ("watermark_blocks", "max_queued_requests", "force_preempt_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: must be at least 0")
