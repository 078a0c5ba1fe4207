"""How the rotary embedding of a model that learnt on short texts is made to reach further.

Each kind turns the frequencies of the plain embedding into others, as the models' own reference does it
(``modeling_rope_utils`` of transformers; ``llama_rope_scaling_type`` and ``rope_freqs`` of llama.cpp for GGUF).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # A server says that it loads before torch is there, which takes seconds to import.
    import torch

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields

LONGEST_ORIGINAL = 2**21
"""Tokens."""
KINDS = "default, dynamic, linear, llama3, longrope, yarn"


class RopeScaling(ABC):
    """One kind, with its numbers."""

    __slots__ = ()
    amplitude: float
    """What cosines and sines are multiplied with."""

    @abstractmethod
    def scale_frequencies(self, frequencies: "torch.Tensor", theta: float) -> "torch.Tensor":
        """Radians a token from those of the plain embedding with base ``theta``, ``[rotated / 2]`` float32."""

    def find_reach(self, context: int) -> int:
        """Tokens that it is good for in a model whose file says ``context``."""
        return context


@dataclass(frozen=True, slots=True)
class LinearScaling(RopeScaling):
    """Positions are as far apart as if there were ``factor`` times fewer (arXiv 2306.15595)."""

    factor: float
    amplitude: float = 1.0

    def scale_frequencies(self, frequencies: "torch.Tensor", theta: float) -> "torch.Tensor":
        return frequencies / self.factor


@dataclass(frozen=True, slots=True)
class Divided(RopeScaling):
    """Each frequency has a divisor of its own: what a GGUF file has for Llama 3.1 and later, and LongRoPE."""

    divisors: tuple[float, ...]
    amplitude: float = 1.0
    longest: int | None = None
    """Tokens that the divisors are for, where it is not the whole context."""

    def scale_frequencies(self, frequencies: "torch.Tensor", theta: float) -> "torch.Tensor":
        return frequencies / frequencies.new_tensor(self.divisors)

    def find_reach(self, context: int) -> int:
        return context if self.longest is None else min(context, self.longest)


@dataclass(frozen=True, slots=True)
class Llama3(RopeScaling):
    """Llama 3.1 and later: slow frequencies are divided by ``factor``, fast ones stay, those between blend."""

    factor: float
    low: float
    high: float
    """Turns within ``original`` tokens below which a frequency is slow, and above which it is fast."""
    original: int
    amplitude: float = 1.0

    def scale_frequencies(self, frequencies: "torch.Tensor", theta: float) -> "torch.Tensor":
        wavelengths = 2 * math.pi / frequencies
        slow = (frequencies / self.factor).where(wavelengths > self.original / self.low, frequencies)
        share = (self.original / wavelengths - self.low) / (self.high - self.low)
        blended = (1 - share) * slow / self.factor + share * slow
        between = (wavelengths >= self.original / self.high) & (wavelengths <= self.original / self.low)
        return blended.where(between, slow)


@dataclass(frozen=True, slots=True)
class Yarn(RopeScaling):
    """YaRN (arXiv 2309.00071): as linear below ``slow`` turns within ``original`` tokens, plain above ``fast``."""

    factor: float
    original: int
    fast: float
    slow: float
    amplitude: float
    whole: bool = True
    """Bounds are whole dimensions."""

    def scale_frequencies(self, frequencies: "torch.Tensor", theta: float) -> "torch.Tensor":
        size = 2 * len(frequencies)
        low, high = (self._find_dimension(turns, size, theta) for turns in (self.fast, self.slow))
        if self.whole:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, size - 1)
        if low == high:
            high += 0.001
        plain = 1 - ((frequencies.new_tensor(range(len(frequencies))) - low) / (high - low)).clamp(0, 1)
        return frequencies / self.factor * (1 - plain) + frequencies * plain

    def find_reach(self, context: int) -> int:
        # As vLLM has it: the stretched length of a file is in its rope_parameters alone.
        return max(context, int(self.original * self.factor))

    def _find_dimension(self, turns: float, size: int, theta: float) -> float:
        """That turns so often within the original context."""
        return size * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(theta))


def from_hf(rope: Fields, context: int) -> RopeScaling | None:
    """Read ``rope_parameters``, or ``rope_scaling``; ``context``: ``max_position_embeddings``.

    Raises :class:`UnsupportedModelError` for a kind that is not built in.
    """
    kind = rope.read_text("rope_type", default=rope.read_text("type", default="default"))
    # Dynamic scaling changes nothing up to the model's own context, which is what is served.
    if kind in ("default", "dynamic"):
        return None
    if kind not in ("linear", "llama3", "yarn", "longrope", "su"):
        raise UnsupportedModelError(f"rotary embedding scaling is {kind!r}: must be one of {KINDS}")
    original = rope.read_integer("original_max_position_embeddings", LONGEST_ORIGINAL, default=context)
    if kind in ("longrope", "su"):
        return _long_rope(rope, original, context)
    factor = rope.read_positive("factor")
    if kind == "linear":
        return LinearScaling(factor)
    if kind == "llama3":
        low, high = rope.read_positive("low_freq_factor"), rope.read_positive("high_freq_factor")
        if high <= low:
            raise rope.describe_refusal("high_freq_factor", high, f"above low_freq_factor, which is {low}")
        return Llama3(factor, low, high, original)
    fast, slow = rope.read_positive("beta_fast", default=32.0), rope.read_positive("beta_slow", default=1.0)
    amplitude = rope.read_positive("attention_factor", default=None)
    if amplitude is None:
        above, below = rope.read_positive("mscale", default=None), rope.read_positive("mscale_all_dim", default=None)
        amplitude = _find_amplitude(factor)
        if above is not None and below is not None:
            amplitude = _find_amplitude(factor, above) / _find_amplitude(factor, below)
    whole = rope.read_flag("truncate", default=True)
    return Yarn(factor, original, fast, slow, amplitude, whole)


def _long_rope(rope: Fields, original: int, context: int) -> Divided:
    """LongRoPE (arXiv 2402.13753), as far as the model's short divisors reach.

    Beyond, all keys would have to be rotated anew by the long ones, those that other requests share too.
    """
    divisors = rope.read_positives("short_factor")
    amplitude = rope.read_positive("attention_factor", default=None)
    if amplitude is None:
        factor = context / original
        amplitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return Divided(tuple(divisors), amplitude, original)


def from_gguf(
    fields: Fields, divisors: Sequence[float], context: int, *, long_rope: bool = False
) -> RopeScaling | None:
    """Read keys ``rope.scaling.*``; ``divisors``: ``rope_freqs.weight``, or LongRoPE's short ones; empty for none."""
    key = "rope.scaling"
    kind = fields.read_text(f"{key}.type", default="none")
    if divisors:
        if kind != "none":
            raise fields.describe_refusal(
                f"{key}.type", kind, "'none' beside rope_freqs.weight or rope_factors_short.weight"
            )
        if not all(0 < divisor < math.inf for divisor in divisors):
            raise fields.describe_refusal("rope_freqs.weight", list(divisors), "finite numbers above 0")
        if not long_rope:
            return Divided(tuple(divisors))
        original = fields.read_integer(f"{key}.original_context_length", LONGEST_ORIGINAL, default=None)
        return Divided(tuple(divisors), fields.read_positive(f"{key}.attn_factor", default=1.0), original)
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise UnsupportedModelError(f"rotary embedding scaling is {kind!r}: must be one of none, linear, yarn")
    factor = fields.read_positive(f"{key}.factor")
    if kind == "linear":
        return LinearScaling(factor)
    original = fields.read_integer(f"{key}.original_context_length", LONGEST_ORIGINAL, default=context)
    amplitude = fields.read_positive(f"{key}.attn_factor", default=1.0) * _find_amplitude(factor)
    fast = fields.read_positive(f"{key}.yarn_beta_fast", default=32.0)
    return Yarn(factor, original, fast, fields.read_positive(f"{key}.yarn_beta_slow", default=1.0), amplitude)


def _find_amplitude(factor: float, scale: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
