"""Tiny models with adapters that peft made: files for the engine, and peft itself as the oracle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.adapters.lora_adapter import LoraAdapter, open_adapter
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.checkpoints.safetensors_checkpoint import SafetensorsCheckpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.layers.parts import Quantization
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.draft_model import DraftModel
from paternoster_engine.runner.kv_pool import HostKVCache, KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.step_input import attention_order, host_step
from paternoster_engine.sampling.sampler import Sampler

CPU = torch.device("cpu")
VOCAB, BLOCK_SIZE, NUM_BLOCKS = 320, 8, 64
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "num_hidden_layers": 3, "max_position_embeddings": 512, "initializer_range": 0.15,
    "tie_word_embeddings": False, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
WHOLE_TILES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
}  # fmt: skip
"""Sizes that the native products have."""
ODD: dict[str, Any] = {
    "hidden_size": 60, "intermediate_size": 88, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


def save_llama(folder: Path, sizes: dict[str, Any], seed: int = 0) -> Path:
    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(**SIZES, **sizes)).save_pretrained(folder)
    return folder


def save_phi3(folder: Path) -> Path:
    """Matrices of queries, keys and values are one in its files."""
    torch.manual_seed(0)
    sizes = {name: value for name, value in WHOLE_TILES.items() if name != "head_dim"}
    Phi3ForCausalLM(Phi3Config(**SIZES, **sizes)).save_pretrained(folder)
    return folder


def save_adapter(model: Path, folder: Path, *, seed: int = 1, size: float = 0.3, **settings: Any) -> Path:
    """An adapter of random numbers, by peft's own hand."""
    torch.manual_seed(seed)
    values = {"r": 8, "lora_alpha": 12, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **settings}
    wrapped = get_peft_model(AutoModelForCausalLM.from_pretrained(model), LoraConfig(**values))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, size if "lora_B" in name else parameter.shape[1] ** -0.5)
    wrapped.save_pretrained(str(folder))
    return folder


def open_oracle(model: Path, adapter: Path | None) -> Any:
    """The model of transformers, with peft's adapter."""
    base: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    base.eval()
    return base if adapter is None else PeftModel.from_pretrained(base, adapter).eval()


def merge_weights(model: Path, adapter: Path) -> Any:
    return open_oracle(model, adapter).merge_and_unload()


class AdaptedModel:
    """A decoder of ours with requests of any adapters."""

    def __init__(
        self,
        folder: Path | str,
        dtype: torch.dtype = torch.float32,
        *,
        invariant: bool = False,
        quantization: Quantization = "auto",
        layers_one_by_one: bool = False,
    ) -> None:
        """``folder``: of safetensors, or an address."""
        checkpoint: Checkpoint
        checkpoint = (
            SafetensorsCheckpoint(folder) if isinstance(folder, Path) else open_checkpoint(resolve_source(folder))
        )
        self.config, self.dtype = checkpoint.config, dtype
        self.model = Decoder(
            checkpoint.config, checkpoint.get_tensor, dtype, CPU, invariant=invariant, quantization=quantization
        )
        self.in_one_call = self.model._native_layers is not None and not layers_one_by_one
        if layers_one_by_one:
            self.model._native_layers = None

    def read(self, path: Path) -> LoraAdapter:
        return open_adapter(path, 2**30, config=self.config, dtype=self.dtype, device=CPU).read()

    @torch.inference_mode()
    def logits(self, *sequences: tuple[Sequence[int], LoraAdapter | None]) -> torch.Tensor:
        """Logits after the last token of each prompt, ``[sequences, vocab]``, all in one step."""
        blocks = 16
        cache = allocate_kv_cache(
            KVPoolShape(1 + blocks * len(sequences), 32, 0), self.config, self.dtype, CPU, wait=True
        )
        scheduled = []
        for number, (prompt, adapter) in enumerate(sequences):
            spec = RequestSpec(str(number), list(prompt), SamplingParams(max_tokens=1), adapter=adapter)
            table = BlockTable(list(range(1 + number * blocks, 1 + (number + 1) * blocks)))
            scheduled.append(ScheduledRequest(Request(spec, block_table=table), 0, len(prompt), samples=True))
        order = attention_order(scheduled)
        rows = self.model.forward(host_step(order).on_device(cache[0], self.model.plan_attention), cache)
        return rows[[order.index(item) for item in scheduled]]

    def generate(
        self, calls: Sequence[tuple[Sequence[int], LoraAdapter | None]], max_tokens: int = 12, **settings: Any
    ) -> list[list[int]]:
        """Greedy tokens of each, all in one queue."""
        values = {
            "max_num_seqs": 16, "max_batched_tokens": 64, "max_model_len": 256, "block_size": BLOCK_SIZE,
            "num_blocks": NUM_BLOCKS, "prefix_cache": False, **settings,
        }  # fmt: skip
        config = SchedulerConfig(**values)
        cache = allocate_kv_cache(KVPoolShape(config.num_blocks, BLOCK_SIZE, 0), self.config, self.dtype, CPU)
        host = HostKVCache(config.host_blocks, cache) if config.host_blocks else None
        runner = ModelRunner(self.model, cache, Sampler(self.config.vocab_size, CPU), host)
        drafter = None
        if config.speculative == "draft":
            # It reads no adapters, so that some of what it proposes is wrong.
            beside = allocate_kv_cache(KVPoolShape(config.num_blocks, BLOCK_SIZE, 0), self.config, self.dtype, CPU)
            drafter = DraftModel(self.model, beside, Sampler(self.config.vocab_size, CPU))
        self.engine = Engine(Scheduler(config, drafter=drafter), runner)
        requests = [
            Request(
                RequestSpec(
                    str(number),
                    list(prompt),
                    SamplingParams(max_tokens=max_tokens, temperature=0.0),
                    adapter=adapter,
                    cache_scope=b"" if adapter is None else adapter.digest,
                )
            )
            for number, (prompt, adapter) in enumerate(calls)
        ]
        self.engine.scheduler.add(*requests)
        while self.engine.scheduler.has_work:
            self.engine.step()
        assert all(request.finish_reason == "length" for request in requests)
        return [request.output for request in requests]


def draw_prompt(length: int, seed: int) -> list[int]:
    return torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
