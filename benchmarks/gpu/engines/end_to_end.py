"""Prefill and decode of whole engines, beside what the same GPU's memory and matrix units allow."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from gpu.budget import Budget, Ceilings
from gpu.engines.setting import Limits, Setting, forced, random_model
from paternoster_engine.core.request import Request
from paternoster_engine.engine import Engine
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.runner.kv_pool import kv_block_bytes

WARM_UP = 3
"""Steps of each batch before those that are timed."""


@dataclass(frozen=True, slots=True)
class Load:
    """How a model is measured."""

    config: ModelConfig
    batches: Sequence[int]
    prompt: int
    """Tokens of each prompt."""
    steps: int
    """Decode steps timed at each batch."""


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """One row of the table."""

    model: str
    phase: str
    """``prefill`` or ``decode``."""
    batch: int
    context: float
    """Mean tokens of a sequence while it was measured."""
    milliseconds: float
    """Time of a decode step, the median; of the whole prefill."""
    tokens_per_second: float
    of_ceiling: float | None
    """Decode: time to read weights, keys and values once, over the time taken; prefill: share of the product's rate."""
    busy: float | None
    """Share of a decode step in which the GPU computes; None where there is none, and for prefill."""


def measure(load: Load, device: torch.device, ceilings: Ceilings | None, budget: Budget) -> Iterator[EndToEnd]:
    """A prefill of the largest batch, then decode steps as the batch shrinks; bfloat16.

    ``ceilings``: those of this GPU; None where there is none.
    """
    config, dtype = load.config, torch.bfloat16
    rows = max(load.batches)
    room = len(load.batches) * (WARM_UP + load.steps) + 2
    length = load.prompt + room
    if not budget.allows(config.name):
        return
    model = random_model(config, dtype, device)
    limits = Limits(rows, max(8192, rows), length, rows * (length + 32))
    setting = Setting(model, dtype, device, limits)
    engine = setting.engine()
    requests = [forced(f"r{i}", _prompt(i, load.prompt, config.vocab_size), room) for i in range(rows)]
    # A short prompt first: kernels are compiled, and libraries have their workspaces.
    _warm(setting, config.vocab_size)
    seconds = _prefill(engine, requests)
    tokens = rows * load.prompt
    flops = prefill_flops(model_bytes(setting), config, rows, load.prompt)
    share = None if ceilings is None else flops / ceilings.flops_per_second / seconds
    yield EndToEnd(config.name, "prefill", rows, load.prompt, seconds * 1e3, tokens / seconds, share, None)
    for batch in sorted(load.batches, reverse=True):
        if not budget.allows(f"{config.name} decode at batch {batch}"):
            return
        for request in requests[batch:]:
            engine.scheduler.abort(request.request_id)
        del requests[batch:]
        step_seconds = _decode(engine, load.steps)
        context = statistics.mean(request.num_tokens for request in requests) - load.steps / 2
        moved = model_bytes(setting) + batch * context * kv_block_bytes(config, 1, dtype)
        step = statistics.median(step_seconds)
        share = None if ceilings is None else moved / ceilings.bytes_per_second / step
        busy = _replay_seconds(setting, batch) / step if device.type == "cuda" else None
        yield EndToEnd(config.name, "decode", batch, context, step * 1e3, batch / step, share, busy)


def model_bytes(setting: Setting) -> int:
    """Bytes of all matrices that a step multiplies with."""
    linears = setting.model.iterate_linears()
    return sum(linear.in_features * linear.out_features for linear in linears) * setting.dtype.itemsize


def prefill_flops(matrix_bytes: int, config: ModelConfig, rows: int, length: int) -> float:
    """Floating-point operations of ``rows`` prompts of ``length`` in bfloat16; only last tokens are projected."""
    head = config.vocab_size * config.hidden_size
    products = 2 * rows * (length * (matrix_bytes / 2 - head) + head)
    # Two products of half a square each, in every head of every layer.
    return products + 2 * rows * config.num_layers * config.num_heads * config.head_dim * length * length


def _prompt(number: int, length: int, vocab: int) -> list[int]:
    return [(number * 7919 + i * 31) % vocab for i in range(length)]


def _warm(setting: Setting, vocab: int) -> None:
    engine = setting.engine()
    engine.scheduler.add(forced("warm", _prompt(0, 16, vocab), 2))
    while engine.scheduler.has_work:
        engine.step()


def _prefill(engine: Engine, requests: Sequence[Request]) -> float:
    for request in requests:
        engine.scheduler.add(request)
    began = time.perf_counter()
    while any(request.prefilling for request in requests):
        engine.step()
    return time.perf_counter() - began


def _decode(engine: Engine, steps: int) -> list[float]:
    """Seconds of each step, its tokens read back."""
    for _ in range(WARM_UP):
        engine.step()
    step_seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        engine.step()
        step_seconds.append(time.perf_counter() - began)
    return step_seconds


def _replay_seconds(setting: Setting, batch: int) -> float:
    """Device time of the captured step alone: replays one after another, without the host between them."""
    count = 10
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        setting.graphs.replay(batch)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / count
