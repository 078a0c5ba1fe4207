"""The models, made and written once."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from tests.engine.families import tiny_families as tiny

from paternoster_engine.model.checkpoints.checkpoint import Checkpoint

POSITIONS = 100
"""Where answers end, two and a half times the widest window."""
PROMPT = 30


@pytest.fixture(scope="session", params=tiny.MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def theirs() -> Callable[[str], Any]:
    return cache(tiny.make)


@pytest.fixture(scope="session")
def checkpoint_of(
    theirs: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Checkpoint]:
    """Checkpoint of a model's name and a file format."""

    @cache
    def of(name: str, form: str) -> Checkpoint:
        folder = tmp_path_factory.mktemp("model")
        if form == "gguf":
            return tiny.save_gguf(theirs(name), folder / "model.gguf", tiny.GGUF[name])
        return tiny.save(theirs(name), folder)

    return of


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    """Sixteen, of one token up to beyond every window, and lengths around block edges."""
    generator = torch.Generator().manual_seed(1)
    lengths = [PROMPT, 1, 2, 7, 8, 9, 15, 16, 17, 20, 21, 24, 25, 40, 63, 65]
    return [torch.randint(tiny.VOCAB, (length,), generator=generator).tolist() for length in lengths]


@pytest.fixture(scope="session")
def greedy(theirs: Callable[[str], Any], prompts: list[list[int]]) -> Callable[[str], list[int]]:
    """What transformers says after the first prompt, up to ``POSITIONS``."""

    @cache
    def of(name: str) -> list[int]:
        ids = torch.tensor([prompts[0]])
        generated = theirs(name).generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=POSITIONS - PROMPT, do_sample=False,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        output: list[int] = generated[0, PROMPT:].tolist()
        return output

    return of
