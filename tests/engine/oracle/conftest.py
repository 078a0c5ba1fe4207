"""Prompts, the engine as a function of its settings, and what transformers answers."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.oracle.answer_cache import AnswerCache

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.source import ModelSource
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.runner.draft_model import DraftModel
from paternoster_engine.runner.kv_pool import HostKVCache, KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling.sampler import Sampler
from paternoster_kernels.cpu.library import load_library
from paternoster_traces.prompts import default_text

BLOCK_SIZE = 32
MAX_TOKENS = 20
LENGTHS = (1, 2, 5, 12, 20, 31, 32, 33, 47, 63, 64, 65, 90, 95, 96, 97, 127, 128, 129, 200, 256, 300, 420, 600)
EDGES = (0, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 18, 23)
"""Prompts on edges: one in mid-block, all around the first three edges, and the longest, which no step holds."""
GENERATED_TOGETHER = ((0, 8), (8, 12), (12, 19), (19, 22), (22, 23), (23, 24))
"""Prompts of like length, which transformers pads to the longest and runs at once: it is slow one by one."""
NUM_BLOCKS = 270
"""Blocks of a pool in which all prompts have room."""
SAMPLED = {"temperature": 0.8, "top_p": 0.95}
GREEDY = {"temperature": 0.0}

Outputs = list[list[int]]


class OracleEngine:
    """Engines on one model: each call has a scheduler of its own, and a pool as fresh as its prefix cache."""

    def __init__(self, model: Decoder, kv_dtype: torch.dtype = torch.float32) -> None:
        cpu = torch.device("cpu")
        cache = allocate_kv_cache(KVPoolShape(NUM_BLOCKS, BLOCK_SIZE, 0), model.config, kv_dtype, cpu)
        self._model, self._sampler = model, Sampler(model.config.vocab_size, cpu)
        self._runner = ModelRunner(model, cache, self._sampler)
        self._cache = cache

    def scheduler(self, **settings: int | bool | str) -> Scheduler:
        defaults = {
            "max_num_seqs": 32,
            "max_batched_tokens": 512,
            "max_model_len": 1024,
            "block_size": BLOCK_SIZE,
            "num_blocks": NUM_BLOCKS,
            "prefix_cache": False,
        }
        drafter = self._drafter() if settings.get("speculative") == "draft" else None
        return Scheduler(SchedulerConfig(**{**defaults, **settings}), drafter=drafter)

    def _drafter(self) -> DraftModel:
        """Draft model that is the model itself, as if it were a small one."""
        return DraftModel(self._model, [layer.clone() for layer in self._cache], self._sampler, cost=0.02)

    def run(self, scheduler: Scheduler, prompts: list[list[int]], **params: float) -> Outputs:
        """Output tokens of ``prompts``, all submitted at once; seeds are their indices."""
        return [request.output for request in self.requests(scheduler, prompts, **params)]

    def requests(self, scheduler: Scheduler, prompts: list[list[int]], **params: float) -> list[Request]:
        """Run whole requests as :meth:`run` does."""
        requests = [_request(i, prompt, params) for i, prompt in enumerate(prompts)]
        self.play(scheduler, requests)
        return requests

    def run_mixed(
        self, scheduler: Scheduler, prompts: list[list[int]], sampled: int, chosen: Sequence[int] | None = None
    ) -> Outputs:
        """Run with every other request greedy; ``sampled``: 0 or 1, the first that is not.

        ``chosen``: indices of the prompts that run; all of them where it is left out.
        """
        requests = _mixed(prompts, sampled, chosen)
        self.play(scheduler, requests)
        return [request.output for request in requests]

    def play(self, scheduler: Scheduler, requests: Sequence[Request]) -> None:
        """Submit all of ``requests`` at once and run until the last has ended."""
        engine = Engine(scheduler, self._swapping(scheduler.config.host_blocks))
        for request in requests:
            scheduler.add(request)
        while scheduler.has_work:
            engine.step()
        scheduler.check_integrity()
        assert scheduler.pool.num_used == 0

    def _swapping(self, host_blocks: int) -> ModelRunner:
        """The runner, with so much room to swap to."""
        return ModelRunner(self._model, self._cache, self._sampler, HostKVCache(host_blocks, self._cache))

    def run_alone(self, prompts: list[list[int]], sampled: int, chosen: Sequence[int]) -> Outputs:
        """Run as :meth:`run_mixed`, one request at a time."""
        requests = _mixed(prompts, sampled, chosen)
        for request in requests:
            self.play(self.scheduler(), [request])
        return [request.output for request in requests]


def _request(index: int, prompt: list[int], params: dict[str, float]) -> Request:
    chosen = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, **params)
    return Request(RequestSpec(f"r{index}", list(prompt), chosen, seed=index))


def _mixed(prompts: list[list[int]], sampled: int, chosen: Sequence[int] | None = None) -> list[Request]:
    indices = range(len(prompts)) if chosen is None else chosen
    return [_request(i, prompts[i], SAMPLED if i % 2 == sampled else GREEDY) for i in indices]


@pytest.fixture(scope="session")
def engine(small: Decoder) -> OracleEngine:
    return OracleEngine(small)


@pytest.fixture(scope="session")
def engine_with_all_tokens(shallow: Decoder) -> OracleEngine:
    return OracleEngine(shallow)


@pytest.fixture(scope="session")
def whole_engine(model: Decoder) -> OracleEngine:
    """With all layers of the model."""
    return OracleEngine(model)


@pytest.fixture(scope="session")
def narrow_model(checkpoint: Checkpoint) -> Decoder:
    """In bfloat16 where sums in it do not depend on the batch, else as :func:`model`."""
    dtype = torch.float32 if load_library() is None else torch.bfloat16
    return Decoder(checkpoint.config, checkpoint.get_tensor, dtype, torch.device("cpu"))


@pytest.fixture(scope="session")
def scaled_engine(narrow_model: Decoder) -> OracleEngine:
    """With keys and values in int8."""
    return OracleEngine(narrow_model, torch.int8)


@pytest.fixture(scope="session")
def prompts(tokenizer: Tokenizer, few_tokens: int) -> list[list[int]]:
    """Cuts of a text, from one token to nineteen blocks, at and around block edges, in tokens of the small model."""
    tokens = [token for token in tokenizer.encode(default_text()) if token < few_tokens]
    return [tokens[71 * i : 71 * i + length] for i, length in enumerate(LENGTHS)]


@pytest.fixture(scope="session")
def edges() -> Sequence[int]:
    """Indices of few prompts, for one test after another."""
    return EDGES


@pytest.fixture(scope="session")
def answer_cache(source: ModelSource) -> AnswerCache:
    return AnswerCache(source.path)


@pytest.fixture(scope="session")
def theirs(source: ModelSource, answer_cache: AnswerCache) -> Callable[..., Any]:
    """The first layers of the same file in transformers, by its own reader, in float32; loaded when called.

    Its second argument: of how many tokens the vocabulary is, all where it is left out.
    """

    def read(file: Path) -> None:
        import gguf
        from transformers import AutoModelForCausalLM

        # It reads the file's head twice, and makes the table of all tensors' names anew for every module of the model.
        with pytest.MonkeyPatch.context() as patch:
            for name in ("GGUFReader", "get_tensor_name_map"):
                patch.setattr(gguf, name, cache(getattr(gguf, name)))
            model = AutoModelForCausalLM.from_pretrained(
                str(source.path.parent), gguf_file=source.path.name, dtype=torch.float32
            )
        torch.save(model, file)

    @cache
    def load(layers: int, tokens: int | None = None) -> Any:
        model = torch.load(answer_cache.file(read), weights_only=False, mmap=True)
        model.model.layers = model.model.layers[:layers]
        model.config.num_hidden_layers = layers
        if tokens is not None:
            model.resize_token_embeddings(tokens)
        return model

    return load


@pytest.fixture(scope="session")
def greedy_with(
    theirs: Callable[..., Any], answer_cache: AnswerCache, prompts: list[list[int]]
) -> Callable[..., Callable[[int], list[int]]]:
    """Generate with transformers after the prompt of an index, when asked for, by what ``theirs`` is called with."""

    def greedy(size: list[int], together: list[list[int]], max_tokens: int) -> Outputs:
        model = theirs(*size)
        model.generation_config.eos_token_id = None
        width = max(len(prompt) for prompt in together)
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in together])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in together])
        generated = model.generate(ids, attention_mask=mask, max_new_tokens=max_tokens, do_sample=False)
        outputs: Outputs = generated[:, width:].tolist()
        return outputs

    def of(*size: int) -> Callable[[int], list[int]]:
        outputs_by_prompt: dict[int, list[int]] = {}

        def after(index: int) -> list[int]:
            if index not in outputs_by_prompt:
                first, last = next((a, b) for a, b in GENERATED_TOGETHER if a <= index < b)
                outputs = answer_cache.answer(greedy, size, prompts[first:last], MAX_TOKENS)
                outputs_by_prompt.update(zip(range(first, last), outputs, strict=True))
            return outputs_by_prompt[index]

        return after

    return of


@pytest.fixture(scope="session")
def greedy_of(
    greedy_with: Callable[..., Callable[[int], list[int]]], few_layers: int, few_tokens: int
) -> Callable[[int], list[int]]:
    return greedy_with(few_layers, few_tokens)


@pytest.fixture(scope="session")
def transformers_greedy(greedy_of: Callable[[int], list[int]], prompts: list[list[int]]) -> Outputs:
    """What transformers generates after each prompt."""
    return [greedy_of(index) for index in range(len(prompts))]


@pytest.fixture(scope="session")
def scores(theirs: Callable[..., Any], few_layers: int, few_tokens: int) -> Callable[[list[int]], torch.Tensor]:
    """Log-softmax ``[tokens, vocab]`` of transformers after each token of a sequence, each sequence computed once."""
    scores_by_tokens: dict[tuple[int, ...], torch.Tensor] = {}

    def of(tokens: list[int]) -> torch.Tensor:
        key = tuple(tokens)
        if key not in scores_by_tokens:
            with torch.inference_mode():
                scores_by_tokens[key] = theirs(few_layers, few_tokens)(torch.tensor([tokens])).logits[0].log_softmax(-1)
        return scores_by_tokens[key]

    return of


@pytest.fixture(scope="session")
def sampled_together(engine: OracleEngine, prompts: list[list[int]]) -> Outputs:
    """What the engine says with seeds, to begin with; alone and in any other company it must say the same."""
    return engine.run(engine.scheduler(), prompts, **SAMPLED)


@pytest.fixture
def expected(sampled_together: Outputs, transformers_greedy: Outputs) -> Callable[..., Outputs]:
    """What :meth:`OracleEngine.run_mixed` must say, however the requests are scheduled."""

    def of(sampled: int, chosen: Sequence[int] | None = None) -> Outputs:
        indices = range(len(transformers_greedy)) if chosen is None else chosen
        return [(sampled_together if i % 2 == sampled else transformers_greedy)[i] for i in indices]

    return of
