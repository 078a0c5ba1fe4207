"""One model on one device with engines over it."""

from dataclasses import dataclass
from typing import Any

import torch

from gpu.engines.random_weights import random_weights
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.runner.cuda.graph_runner import GraphRunner
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache, kv_block_bytes
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling.device_sampler import DeviceSampler

BLOCK_SIZE = 32


@dataclass(frozen=True, slots=True)
class Limits:
    """What engines over a model are made for."""

    max_num_seqs: int
    max_batched_tokens: int
    max_model_len: int
    pool_tokens: int
    """Tokens that the KV pool holds."""


def random_model(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Decoder:
    """Weights made on ``device`` itself: there are gigabytes of them."""
    weights = random_weights(config, dtype, torch.Generator(device).manual_seed(11))
    return Decoder(config, weights, dtype, device)


class Setting:
    """A model, its KV pool and its captured decode steps; each engine starts with an empty pool."""

    def __init__(self, model: Decoder, dtype: torch.dtype, device: torch.device, limits: Limits) -> None:
        self.model = model
        self.config = model.config
        self.limits = limits
        self.dtype = dtype
        memory = -(-limits.pool_tokens // BLOCK_SIZE) * kv_block_bytes(self.config, BLOCK_SIZE, dtype)
        shape = KVPoolShape.fit_memory(self.config, BLOCK_SIZE, dtype, memory)
        self._num_blocks = shape.num_blocks
        cache = allocate_kv_cache(shape, self.config, dtype, device)
        self.plain = ModelRunner(model, cache, DeviceSampler(device))
        self.graphs = GraphRunner(self.plain, model, cache, limits.max_num_seqs, limits.max_model_len)

    def engine(self, *, captured: bool = True) -> Engine:
        """Prompts are computed before any request decodes, so that each kind of step is timed by itself.

        With ``captured`` steps are graphs, each planned while the one before it runs, as a server on CUDA does; else
        they are the plain runner's.
        """
        limits = self.limits
        config = SchedulerConfig(
            max_num_seqs=limits.max_num_seqs,
            max_batched_tokens=limits.max_batched_tokens,
            max_model_len=limits.max_model_len,
            block_size=BLOCK_SIZE,
            num_blocks=self._num_blocks,
            max_queued_requests=4096,
            prefix_cache=False,
            overlap=captured,
            prefill_first=True,
        )
        return Engine(Scheduler(config), self.graphs if captured else self.plain)


def forced(name: str, prompt: list[int], tokens: int, **params: Any) -> Request:
    """A request for exactly ``tokens`` tokens; greedy unless ``params`` say otherwise."""
    chosen = SamplingParams(max_tokens=tokens, ignore_eos=True, **{"temperature": 0.0, **params})
    return Request(RequestSpec(name, prompt, chosen, seed=len(prompt)))


def run(engine: Engine, requests: list[Request]) -> None:
    """All of them from their arrival at once to the last token."""
    for request in requests:
        engine.scheduler.add(request)
    while engine.scheduler.has_work:
        engine.step()
