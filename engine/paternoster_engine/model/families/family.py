"""What a family is described by."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.fields import Fields
from paternoster_engine.model.weights.stored import LazyTensor


class Files(Protocol):
    """Tensors of a folder's files by their own names."""

    def has_tensor(self, name: str) -> bool: ...

    def read_part(self, name: str, index: int) -> torch.Tensor:
        """``tensor[index]`` of a tensor whose first dimension is of experts; raises :class:`ModelError`."""
        ...


Describe = Callable[[ModelConfig, Fields], ModelConfig]
"""Completes a config, which has the fields that all families have, by the family's own."""


def as_it_is(config: ModelConfig, fields: Fields) -> ModelConfig:
    """For a family without fields of its own."""
    return config


@dataclass(frozen=True, slots=True)
class Family:
    """One family; the defaults are Llama's."""

    from_hf: Describe = as_it_is
    """Description by the fields of a ``config.json``."""
    from_gguf: Describe | None = as_it_is
    """Description by the fields of a GGUF file; None where such files are not read."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The decoder's names of a layer's parts -> the files', where they differ."""
    fused: Mapping[str, str] = field(default_factory=dict)
    """The decoder's names of matrices -> the one they are stored in, below each other in the decoder's order."""
    expert: Callable[[Files, str], LazyTensor | None] | None = None
    """Reads a part of an expert from safetensors that hold it in another way; None for a part they hold as it is."""
    norm_offset: float = 0.0
    """Added to the norms of safetensors files; GGUF files have the sum."""
    interleaved: bool = False
    """Whether GGUF files have the rows of queries and keys in pairs, as llama.cpp rotates them."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of fields that a ``config.json`` may leave out, as transformers has them."""


def stored_name(family: Family, name: str) -> str:
    """The file's name of the tensor that the decoder calls ``name``, or of the one that it is a part of."""
    if not name.startswith("model.layers."):
        return name
    parts = (family.fused.get(part, family.names.get(part, part)) for part in name.split("."))
    return ".".join(parts)


def rows_of(config: ModelConfig, family: Family, name: str) -> slice | None:
    """The rows of ``name`` in the tensor it is stored in; None where that is all of it.

    The last part has what is left, so that a tensor that is too long is of a wrong shape.
    """
    part = name.split(".")[-2] if "." in name else name
    if part not in family.fused:
        return None
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "q_proj": slice(0, queries),
        "k_proj": slice(queries, queries + keys),
        "v_proj": slice(queries + keys, None),
        "gate_proj": slice(0, config.intermediate_size),
        "up_proj": slice(config.intermediate_size, None),
    }[part]
