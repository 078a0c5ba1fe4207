"""Repositories for tests, and attempts without waiting."""

import random

from paternoster_sources.retry import RetryPauses

AT_ONCE = RetryPauses(attempts=3, first=0.0)
"""Without waiting in between."""


def model_files(seed: int = 0, size: int = 300_000) -> dict[str, bytes]:
    """What a repository of a model has, with weights of ``size`` bytes that nothing reads."""
    return {
        "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
        "tokenizer.json": random.Random(seed).randbytes(5000),
        "model.safetensors": random.Random(seed + 1).randbytes(size),
        "README.md": b"words",
        "modeling_llama.py": b"raise SystemExit('remote code')",
        "pytorch_model.bin": b"a pickle",
    }
