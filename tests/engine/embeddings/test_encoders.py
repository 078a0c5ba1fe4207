"""Encoders' hidden states, vectors and scores: those that transformers has for the same weights."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from tests.engine.embeddings import tiny_encoders as tiny
from torch.nn import functional

from paternoster_engine.core.batch import Batch, ScheduledRequest
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.encoders.checkpoint import EncoderCheckpoint
from paternoster_engine.model.encoders.encoder import Encoder, TextBatch
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.pooling_runner import EncoderRunner

CPU = torch.device("cpu")
LENGTHS = [1, 2, 2, 3, 7, 7, 7, 19, 40, 44]


def texts(offset: int = 5) -> list[list[int]]:
    generator = Random(7)
    return [[generator.randrange(offset, 60) for _ in range(length)] for length in LENGTHS]


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Encoder:
    checkpoint = EncoderCheckpoint(resolve_source(folder.as_uri()))
    return Encoder(checkpoint.config, checkpoint.get_tensor, dtype, CPU)


def batch(prompts: list[list[int]], second: list[int] | None = None) -> TextBatch:
    """``second``: where the second text of each begins."""
    ids = [i for prompt in prompts for i in prompt]
    positions = [p for prompt in prompts for p in range(len(prompt))]
    starts = second or [len(prompt) for prompt in prompts]
    types = [int(p >= start) for prompt, start in zip(prompts, starts, strict=True) for p in range(len(prompt))]
    return TextBatch(torch.tensor(ids), torch.tensor(positions), torch.tensor(types), [len(p) for p in prompts])


@pytest.fixture(scope="module", params=tiny.MODELS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Encoder]:
    theirs = tiny.make(request.param)
    return theirs, load(tiny.save(theirs, tmp_path_factory.mktemp("encoder")))


@torch.inference_mode()
def test_hidden_states_are_those_of_transformers(pair: tuple[Any, Encoder]) -> None:
    theirs, ours = pair
    prompts = texts()
    hidden = ours.forward(batch(prompts)).split([len(p) for p in prompts])
    for prompt, found in zip(prompts, hidden, strict=True):
        expected = theirs(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt))).last_hidden_state[0]
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_a_text_has_the_same_vector_alone_and_among_others(pair: tuple[Any, Encoder]) -> None:
    _, ours = pair
    prompts = texts()
    together = ours.compute_vectors(batch(prompts))
    for prompt, found in zip(prompts, together, strict=True):
        torch.testing.assert_close(found, ours.compute_vectors(batch([prompt]))[0], atol=1e-5, rtol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("head", [False, True], ids=["vectors", "scores"])
def test_products_in_bfloat16_are_summed_up_in_float32(head: bool, tmp_path: Path) -> None:
    folder = tiny.save(tiny.make("bert", head=head), tmp_path)
    exact, short = (load(folder, dtype).compute_vectors(batch(texts())) for dtype in (torch.float32, torch.bfloat16))
    assert short.dtype == torch.float32
    assert not torch.equal(short, exact)
    assert not torch.equal(short, short.bfloat16().float()), "vectors themselves are rounded"
    torch.testing.assert_close(short, exact, atol=0.02, rtol=0.02)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["bert", "roberta"])
@pytest.mark.parametrize(
    ("field", "pool"),
    [
        ("pooling_mode_mean_tokens", lambda hidden: hidden.mean(0)),
        ("pooling_mode_cls_token", lambda hidden: hidden[0]),
        ("pooling_mode_lasttoken", lambda hidden: hidden[-1]),
    ],
)
@pytest.mark.parametrize("normalized", [True, False])
def test_pooling_is_as_the_files_say(name: str, field: str, pool: Any, normalized: bool, tmp_path: Path) -> None:
    theirs = tiny.make(name)
    tiny.write_modules(tiny.save(theirs, tmp_path), field, normalized=normalized)
    ours, prompts = load(tmp_path), texts()
    for prompt, found in zip(prompts, ours.compute_vectors(batch(prompts)), strict=True):
        expected = pool(theirs(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt))).last_hidden_state[0])
        expected = functional.normalize(expected, dim=0) if normalized else expected
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta"])
def test_scores_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = tiny.make(name, head=True)
    ours = load(tiny.save(theirs, tmp_path))
    assert ours.config.pooling.scores
    prompts = [prompt for prompt in texts() if len(prompt) > 2]
    second = [len(prompt) // 2 for prompt in prompts]
    if theirs.config.type_vocab_size == 1:
        second = [len(prompt) for prompt in prompts]
    scores = ours.compute_vectors(batch(prompts, second))
    for prompt, start, found in zip(prompts, second, scores, strict=True):
        types = torch.tensor([[int(p >= start) for p in range(len(prompt))]])
        logits = theirs(torch.tensor([prompt]), token_type_ids=types, attention_mask=torch.ones(1, len(prompt))).logits
        torch.testing.assert_close(found, torch.sigmoid(logits[0]), atol=1e-4, rtol=1e-4)
    assert len({round(float(score), 3) for score in scores}) > 3


def test_a_token_that_is_nan_corrupts_its_text_alone(tmp_path: Path) -> None:
    """Among texts of the same length, which attention takes together."""
    model = load(tiny.save(tiny.make("bert"), tmp_path))
    clean = [[9, 10, 11], [9, 12, 11]]
    requests = [
        Request(RequestSpec(str(i), prompt, SamplingParams(max_tokens=0)))
        for i, prompt in enumerate([[9, 50, 11], *clean])
    ]
    scheduled = tuple(ScheduledRequest(request, 0, 3, samples=True) for request in requests)
    expected = model.compute_vectors(batch(clean))
    model._words[50] = float("nan")
    result = EncoderRunner(model).execute(Batch(1, scheduled))
    assert result.corrupted == {requests[0]}
    for request, vector in zip(requests[1:], expected, strict=True):
        torch.testing.assert_close(torch.tensor(result.vectors[request]), vector)
