"""What an engine is started with: one model gives ``paternoster serve`` its flags and a container its args."""

from typing import ClassVar, Self

from pydantic import model_validator

from paternoster_contract.settings.http_limits import HttpLimits
from paternoster_contract.settings.memory import MemorySettings
from paternoster_contract.settings.model import ModelSettings
from paternoster_contract.settings.removed import REMOVED_FLAGS
from paternoster_contract.settings.scheduling import CapacitySettings
from paternoster_contract.settings.server import ServerSettings
from paternoster_contract.settings.tenants import ClientSettings, TenantSettings


class EngineArgs(ModelSettings, ServerSettings, CapacitySettings, MemorySettings, ClientSettings, HttpLimits):
    """Start-up settings of one engine, with the limits of its HTTP ports; fixed for the life of the process."""

    removed = REMOVED_FLAGS
    flag_order: ClassVar = (
        *HttpLimits.model_fields,
        "model", "served_model_name", "host", "port", "admin_port", "api_keys", "admin_keys", "identity_header",
        "dtype", "quantization", "device", "threads", "tensor_parallel_size", "batch_invariant", "max_num_seqs",
        "live_cap", "max_model_len", "max_batched_tokens", "token_budget", "block_size", "kv_cache_memory",
        "gpu_memory_utilization", "watermark_percent", "max_queued_requests", "parse_special_tokens", "prefix_cache",
        "cache_isolation", "order", "min_priority", "max_priority", "drain_timeout", "vllm_metrics",
    )  # fmt: skip
    """Another order of a container's args is another pod template, which restarts every pod: new settings go last."""

    field_order: ClassVar = (
        "chat_template", "tool_parser", "tool_template", "reasoning_parser", "generation_config", "task", "pooling",
        "matryoshka", "dtype", "quantization", "batch_invariant", "block_size", "kv_cache_memory", "kv_cache_dtype",
        "max_batched_tokens", "max_queued_requests", "parse_special_tokens", "disable_any_whitespace", "order",
        "min_priority", "max_priority", "vllm_metrics", "prefill_first", "await_prefix", "admission",
        "speculative", "draft_model", "priority_aging", "pause_lower_classes", "reserved_slots", "watermark_percent",
        "gpu_memory_utilization", "preemption", "swap_memory", *TenantSettings.model_fields, *HttpLimits.model_fields,
    )  # fmt: skip
    """Settings whose fields and refusals come first in the CRD."""

    @model_validator(mode="after")
    def _check_kv_events(self) -> Self:
        if self.kv_events_config is not None and self.kv_events_config.publishes and not self.prefix_cache:
            raise ValueError("kv_events_config enables events: must be left out with prefix_cache False")
        return self

    @model_validator(mode="after")
    def _check_adapters(self) -> Self:
        if self.max_adapter_memory and self.tensor_parallel_size > 1:
            raise ValueError(
                f"max_adapter_memory is {self.max_adapter_memory}: must be 0 with tensor_parallel_size "
                f"{self.tensor_parallel_size}"
            )
        return self

    @model_validator(mode="after")
    def _check_draft(self) -> Self:
        drafts = self.speculative == "draft"
        if drafts and self.draft_model is None:
            raise ValueError("speculative is 'draft': must be 'auto', 'off', 'grammar' or 'ngram' without draft_model")
        if self.draft_model is not None and not drafts:
            raise ValueError(
                f"draft_model is {self.draft_model!r}: must be left out with speculative {self.speculative!r}"
            )
        if drafts and self.tensor_parallel_size > 1:
            raise ValueError(f"tensor_parallel_size is {self.tensor_parallel_size}: must be 1 with speculative 'draft'")
        return self
