"""Qwen3 (arXiv 2505.09388): a Llama that norms each query and each key before it rotates them."""

from collections.abc import Callable

import torch

from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.llama import Llama
from paternoster_engine.parallel.ranks import ALONE, Ranks
from paternoster_kernels import pick, pick_invariant


class Qwen3(Llama):
    """Dense models; one weight a layer for all query heads and one for all key heads, whole on every rank."""

    def __init__(
        self,
        config: ModelConfig,
        tensor: Callable[[str], torch.Tensor],
        dtype: torch.dtype,
        device: torch.device,
        ranks: Ranks = ALONE,
        *,
        invariant: bool = False,
        int8: bool = False,
    ) -> None:
        """As :class:`Llama`."""
        super().__init__(config, tensor, dtype, device, ranks, invariant=invariant, int8=int8)

        def load(layer: int, name: str) -> torch.Tensor:
            return tensor(f"model.layers.{layer}.self_attn.{name}.weight").to(device=device, dtype=dtype)

        self._head_norms = [(load(i, "q_norm"), load(i, "k_norm")) for i in range(config.num_layers)]
        self._head_norm = (pick_invariant if invariant else pick)("head_norm", device)

    def _in_one_call(self) -> None:
        """No native operation has the norms of heads."""

    def _project(self, layer: int, hidden: torch.Tensor) -> torch.Tensor:
        qkv = super()._project(layer, hidden)
        self._head_norm(qkv, *self._head_norms[layer], self.config.num_kv_heads, self.config.rms_norm_eps)
        return qkv
