"""The engine's tokens on a device against those of the references on the host, in float32."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from gpu.engines.random_weights import random_weights
from gpu.engines.setting import Limits, Setting, forced, run
from gpu.engines.tiny_models import tiny_models
from paternoster_engine.core.request import Request
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.decoder import Decoder

LIMITS = Limits(max_num_seqs=8, max_batched_tokens=128, max_model_len=256, pool_tokens=4096)
LENGTHS = (1, 5, 31, 32, 33, 64, 90, 140)
NEAR_TIE = 1e-3
"""Log probabilities so close may change places between two orders of the same sums."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One model and one way of sampling."""

    name: str
    requests: int
    same: int
    """Requests with all the host's tokens."""
    near_ties: int
    """Requests that first part from the host's tokens where two are as likely."""

    @property
    def passed(self) -> bool:
        return self.same + self.near_ties == self.requests


def verdicts(device: torch.device, tokens: int, load: Callable[[torch.device], Decoder] | None) -> Iterator[Verdict]:
    """``tokens`` a request, with random weights of each family, then with those that ``load`` puts on a device, if any.

    All in float32.
    """
    torch.set_float32_matmul_precision("highest")
    models: dict[str, Callable[[torch.device], Decoder]]
    models = {config.name: partial(_random, config) for config in tiny_models()}
    if load is not None:
        models["SmolLM2-135M-Instruct"] = load
    host = torch.device("cpu")
    for name, make in models.items():
        expecting = Setting(make(host), torch.float32, host, LIMITS)
        tested = Setting(make(device), torch.float32, device, LIMITS)
        for kind, params in (("greedy", {}), ("sampled", {"temperature": 0.8, "top_p": 0.95})):
            # With log probabilities, the host's requests also show what was as likely.
            expected = _requests(expecting, tokens, captured=False, logprobs=5, **params)
            got = _requests(tested, tokens, captured=True, **params)
            yield _compare(f"{name}, {kind}", expected, got)


def _random(config: ModelConfig, device: torch.device) -> Decoder:
    """Make weights that are the same on every device: they are drawn on the host."""
    drawn = random_weights(config, torch.float32, torch.Generator().manual_seed(11), spread=3.0)
    return Decoder(config, drawn, torch.float32, device)


def _requests(setting: Setting, tokens: int, *, captured: bool, **params: Any) -> list[Request]:
    vocab = setting.config.vocab_size
    prompts = [[(31 * length + 7 * i) % vocab for i in range(length)] for length in LENGTHS]
    requests = [forced(f"r{i}", prompt, tokens, **params) for i, prompt in enumerate(prompts)]
    run(setting.engine(captured=captured), requests)
    return requests


def _compare(name: str, expected: list[Request], got: list[Request]) -> Verdict:
    same = near = 0
    for host, other in zip(expected, got, strict=True):
        if host.output == other.output:
            same += 1
            continue
        if not host.params.greedy:
            continue
        parted = next(i for i, pair in enumerate(zip(host.output, other.output, strict=True)) if pair[0] != pair[1])
        parted_logprobs = host.logprobs[parted]
        likelihood = dict(parted_logprobs.top)
        token = other.output[parted]
        near += token in likelihood and abs(parted_logprobs.logprob - likelihood[token]) < NEAR_TIE
    return Verdict(name, len(expected), same, near)
