"""Qwen3 as a model that embeds: the last token's hidden state, as transformers has it for the same weights."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.engine.embeddings import tiny_encoders as tiny_files
from tests.engine.families import tiny_families as tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch.nn import functional

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.errors import ModelError
from paternoster_engine.runner.pooling_runner import PoolingRunner

END = 310


def write_tokenizer(folder: Path) -> None:
    """Byte-level, with an end of text that it appends, as Qwen3-Embedding's."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {c: i for i, c in enumerate(alphabet)} | {"<|endoftext|>": END}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>"])
    backend.post_processor = processors.TemplateProcessing("$A <|endoftext|>", None, [("<|endoftext|>", END)])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')


@pytest.fixture(scope="module")
def theirs() -> Any:
    return tiny.make("qwen3")


@pytest.fixture(params=["whole", "without a head"])
def folder(request: pytest.FixtureRequest, theirs: Any, tmp_path: Path) -> Path:
    """Folder as its hub has it: with names that lack ``model.``, or saved with its output projection."""
    theirs.save_pretrained(tmp_path)
    if request.param != "whole":
        (weights,) = tmp_path.glob("*.safetensors")
        named = {n.removeprefix("model."): t.clone() for n, t in theirs.state_dict().items() if n.startswith("model.")}
        save_file(named, weights)
    write_tokenizer(tmp_path)
    tiny_files.write_modules(
        tmp_path,
        "pooling_mode_lasttoken",
        config_sentence_transformers={"prompts": {"query": "Find: ", "document": ""}, "default_prompt_name": None},
        sentence_bert_config={"do_lower_case": True},
    )
    return tmp_path


def embed(folder: Path, prompts: list[list[int]], poison: int | None = None, **args: Any) -> list[torch.Tensor]:
    """Their vectors; ``poison``: a token whose row of the embedding is NaN, and whose requests are corrupted."""
    settings = {"threads": 1, "kv_cache_memory": 2**22, "max_num_seqs": 3, "block_size": 8, "dtype": "float32", **args}
    engine, _, model = build_engine(EngineArgs(model=folder.as_uri(), **settings))
    assert model.pooling is not None
    if poison is not None:
        assert isinstance(engine.runner, PoolingRunner)
        engine.runner._model._embedding.weight[poison] = float("nan")
    requests = [Request(RequestSpec(str(i), prompt, SamplingParams(max_tokens=0))) for i, prompt in enumerate(prompts)]
    engine.scheduler.add(*requests)
    while engine.scheduler.has_work:
        engine.step()
        engine.scheduler.check_integrity()
    assert [request.corrupted for request in requests] == [poison in prompt for prompt in prompts]
    return [torch.tensor(list(request.vector)) for request in requests]


def prompts() -> list[list[int]]:
    generator = Random(5)
    shared = [generator.randrange(256) for _ in range(24)]
    plain = [[generator.randrange(256) for _ in range(length)] + [END] for length in (1, 2, 9, 30, 77)]
    return [*plain, [*shared, 5, END], [*shared, 6, END]]


@pytest.mark.parametrize("budget", [16, 512])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_vectors_are_those_of_transformers(folder: Path, theirs: Any, budget: int, prefix_cache: bool) -> None:
    """Also of prompts in pieces, and of those whose beginning is in the cache."""
    prompt_lists = prompts()
    for prompt, found in zip(
        prompt_lists, embed(folder, prompt_lists, max_batched_tokens=budget, prefix_cache=prefix_cache), strict=True
    ):
        with torch.inference_mode():
            hidden = theirs.model(torch.tensor([prompt])).last_hidden_state[0, -1]
        torch.testing.assert_close(found, functional.normalize(hidden, dim=0), atol=1e-4, rtol=1e-4)


def test_the_end_of_text_is_appended(folder: Path) -> None:
    _, tokenizer, model = build_engine(EngineArgs(model=folder.as_uri(), threads=1, kv_cache_memory=2**22))
    assert tokenizer.text_encoding("abc").ids[-1] == END
    assert len(tokenizer.text_encoding("abcdefgh", None, 4)) == 4
    assert tokenizer.text_encoding("abcdefgh", None, 4).ids[-1] == END
    assert model.pooling.prompts["query"] == "Find: "
    assert model.pooling.lower_case


def test_any_decoder_embeds_where_it_is_said(theirs: Any, tmp_path: Path) -> None:
    theirs.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    (found,) = embed(tmp_path, [[5, 6, 7]], task="embed")
    with torch.inference_mode():
        hidden = theirs.model(torch.tensor([[5, 6, 7]])).last_hidden_state[0, -1]
    torch.testing.assert_close(found, functional.normalize(hidden, dim=0), atol=1e-4, rtol=1e-4)


def test_a_model_that_embeds_generates_where_it_is_said(theirs: Any, tmp_path: Path) -> None:
    theirs.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    tiny_files.write_modules(tmp_path, "pooling_mode_lasttoken")
    args = EngineArgs(model=tmp_path.as_uri(), threads=1, kv_cache_memory=2**22, task="generate", dtype="float32")
    engine, _, model = build_engine(args)
    assert model.pooling is None
    request = Request(RequestSpec("r", [5, 6, 7], SamplingParams(max_tokens=4, temperature=0.0)))
    engine.scheduler.add(request)
    while engine.scheduler.has_work:
        engine.step()
    expected = theirs.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=4, do_sample=False, eos_token_id=None)
    assert request.output == expected[0, 3:].tolist()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"pooling": "mean"}, "pooling is 'mean': must be 'last' for a decoder"),
        ({"tensor_parallel_size": 2}, "must be 1 for a model that embeds"),
        ({"preemption": "swap"}, "must be 'recompute' for a model that embeds"),
    ],
)
def test_what_a_decoder_cannot(folder: Path, args: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build_engine(EngineArgs(model=folder.as_uri(), **args))


def test_a_token_that_is_nan_corrupts_its_text_alone(folder: Path) -> None:
    texts = [*prompts(), [7, 3, END], [3, *range(20, 40), END]]
    clean = [prompt for prompt in texts if 3 not in prompt]
    assert len(clean) < len(texts) - 1
    expected = embed(folder, clean)
    found = [vector for prompt, vector in zip(texts, embed(folder, texts, poison=3), strict=True) if 3 not in prompt]
    for vector, other in zip(found, expected, strict=True):
        torch.testing.assert_close(vector, other)
