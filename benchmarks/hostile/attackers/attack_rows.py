"""Which attacks are measured, how many attackers each has, and whom of the well-behaved tenant's calls each is on."""

from dataclasses import dataclass

from hostile.shared_fleets import CHAT, EMBEDDING


@dataclass(frozen=True)
class AttackRow:
    """One line of the table."""

    name: str
    kind: str
    attackers: int
    model: str = CHAT
    """That the well-behaved client calls meanwhile."""
    token_budget: int | None = None
    """Budget of a step of that model's engine; None for what it starts with."""


ROWS = (
    AttackRow("body of 1.4 million invalid parts (2)", "invalid parts", 2),
    AttackRow("bodies of 4 MiB of all kinds (3)", "large bodies", 3),
    AttackRow("bodies of 4 MiB held open (80)", "held bodies", 80),
    AttackRow("requests to a sleeping fleet (3,840)", "held requests", 3840),
    AttackRow("answers read slowly (64)", "unread answers", 64),
    AttackRow("queue kept full (1,200)", "full queue", 1200),
    AttackRow("n=16 x 512 tokens (2)", "16 choices", 2),
    AttackRow("n=64 x 128 tokens (2)", "64 choices", 2),
    AttackRow("KV cache kept full (16)", "full KV cache", 16),
    AttackRow("bodies in chunks of one byte (4)", "single bytes sent", 4),
    AttackRow("answers in chunks of one byte (4)", "single bytes answered", 4),
    AttackRow("answers in chunks of 32 bytes (4)", "small chunks answered", 4),
    AttackRow("answers after 2,000 103s (4)", "early hints", 4),
    AttackRow("prompts of 100 kB, refused (4)", "refused prompts", 4),
    AttackRow("prompts of 2,000 tokens that fit (4)", "long prompts", 4),
    AttackRow("the same, maxRunning 1, budget 64 (4)", "capped long prompts", 4, token_budget=64),
    AttackRow("a new schema of 40 properties each (4)", "new schemas", 4),
    AttackRow("long answers (4)", "long answers", 4),
    AttackRow("40 kB of text that a grammar forces (1)", "forced text", 1),
    AttackRow("1 kB of it, proposed (1)", "forced and proposed text", 1),
    AttackRow("embeddings of 256 x 125 tokens (2)", "many texts", 2, EMBEDDING),
    AttackRow("headers of 3 MiB (4)", "header floods", 4),
    AttackRow("journals without an end (8)", "endless journal", 8),
    AttackRow("journals of 1 MiB before no answer (400)", "held journal", 400),
    AttackRow("frames without an end (64)", "endless frame", 64),
    AttackRow("streams with journals of 1 MiB (400)", "long journal", 400),
    AttackRow("answers whose heads have 800 kB (400)", "long head", 400),
)
