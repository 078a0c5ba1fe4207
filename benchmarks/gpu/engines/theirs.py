"""One load through this engine and through transformers, static and continuous batching: output tokens/s."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpu.budget import Budget
from gpu.engines.setting import Limits, Setting, forced, random_model, run
from paternoster_engine.model.config import ModelConfig

HOST_BLOCKS = 64
"""Blocks of transformers' cache on a CPU: enough for the few short requests of the tiny model."""


@dataclass(frozen=True, slots=True)
class Work:
    """Prompts, and how many tokens each answer is forced to have."""

    prompts: Sequence[list[int]]
    lengths: Sequence[int]

    @classmethod
    def draw(cls, requests: int, longest_prompt: int, longest_answer: int, vocab: int) -> "Work":
        """Lengths uniform from an eighth of the longest on; always the same ones."""
        pick = random.Random(64)
        prompts = [
            [pick.randrange(vocab) for _ in range(pick.randint(longest_prompt // 8, longest_prompt))]
            for _ in range(requests)
        ]
        return cls(prompts, [pick.randint(longest_answer // 8, longest_answer) for _ in range(requests)])

    @property
    def tokens(self) -> int:
        return sum(self.lengths)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens that were asked for, over the time until the last one."""

    model: str
    system: str
    tokens_per_second: float | None
    note: str | None = None
    """Why there is no figure."""


def compare(config: ModelConfig, work: Work, device: torch.device, budget: Budget) -> Iterator[Throughput]:
    """This engine first; whatever of transformers is there, as long as ``budget`` lasts. All in bfloat16."""
    systems: dict[str, Callable[[ModelConfig, Work, torch.device], float]] = {
        "paternoster": ours,
        "transformers, continuous batching": continuous,
        "transformers, static": static,
    }
    for name, seconds_of in systems.items():
        if not budget.allows(f"{config.name} by {name}"):
            return
        try:
            yield Throughput(config.name, name, work.tokens / seconds_of(config, work, device))
        except Exception as raised:
            yield Throughput(config.name, name, None, f"{type(raised).__name__}: {raised}")
        finally:
            if device.type == "cuda":
                torch.cuda.empty_cache()


def ours(config: ModelConfig, work: Work, device: torch.device) -> float:
    """Seconds for ``work``, after a short request that compiles."""
    longest = max(map(len, work.prompts)) + max(work.lengths)
    rows = len(work.prompts)
    limits = Limits(rows, max(8192, rows), longest, rows * (longest + 32))
    setting = Setting(random_model(config, torch.bfloat16, device), torch.bfloat16, device, limits)
    run(setting.engine(), [forced("warm", work.prompts[0], 2)])
    requests = [
        forced(f"r{i}", prompt, length)
        for i, (prompt, length) in enumerate(zip(work.prompts, work.lengths, strict=True))
    ]
    seconds = _seconds(lambda: run(setting.engine(), requests), device)
    if [len(request.output) for request in requests] != list(work.lengths):
        raise RuntimeError("answers do not have the lengths that were forced")
    return seconds


def static(config: ModelConfig, work: Work, device: torch.device) -> float:
    """Seconds of one padded batch, which runs until its longest answer is there."""
    model = _transformers_model(config, device)
    width = max(map(len, work.prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in work.prompts], device=device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in work.prompts], device=device)

    def generate(tokens: int) -> None:
        model.generate(ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, eos_token_id=None)

    generate(2)
    return _seconds(lambda: generate(max(work.lengths)), device)


def continuous(config: ModelConfig, work: Work, device: torch.device) -> float:
    """Seconds from the first request handed in to the last answer; each has its own length."""
    from transformers import GenerationConfig

    model = _transformers_model(config, device)
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=max(work.lengths))
    with model.continuous_batching_context_manager(
        generation_config=generation, block=True, timeout=5, **_cache_size(device)
    ) as manager:
        _collect(manager, [work.prompts[0]], [2])
        return _seconds(lambda: _collect(manager, work.prompts, work.lengths), device)


def _cache_size(device: torch.device) -> dict[str, Any]:
    """It takes most of a device's free memory for its cache: a GPU's is ours, a host's is not."""
    if device.type == "cuda":
        return {}
    from transformers import ContinuousBatchingConfig

    return {"continuous_batching_config": ContinuousBatchingConfig(num_blocks=HOST_BLOCKS, max_batch_tokens=64)}


def _collect(manager: Any, prompts: Sequence[list[int]], lengths: Sequence[int]) -> None:
    for prompt, length in zip(prompts, lengths, strict=True):
        manager.add_request(prompt, max_new_tokens=length)
    finished = tokens = 0
    while finished < len(prompts):
        result = manager.get_result(timeout=1)
        if result is None:
            if not manager.is_running():
                raise RuntimeError("continuous batching stopped before the last answer")
        elif result.is_finished():
            finished += 1
            tokens += len(result.generated_tokens)
    if tokens != sum(lengths):
        raise RuntimeError(f"{tokens} tokens were generated: {sum(lengths)} were asked for")


def _transformers_model(config: ModelConfig, device: torch.device) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    theirs = AutoConfig.for_model(
        config.architecture,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.context_length,
        tie_word_embeddings=config.tied_embeddings,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(theirs).to(torch.bfloat16)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model.eval()


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began
