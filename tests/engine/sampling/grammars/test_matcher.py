"""When a constrained answer may end, what a fault does, and that both samplers forbid the same tokens."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from llguidance import LLParserLimits

from paternoster_engine.core.batch import StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.device_sampler import DeviceSampler
from paternoster_engine.sampling.grammars import grammar as module
from paternoster_engine.sampling.grammars.compiler import GrammarCache
from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.free_text import FreeText
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.lazy import LazyMatcher, SeenTokens
from paternoster_engine.sampling.grammars.source import GrammarSource, Kind, most_items, to_grammar
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary
from paternoster_engine.sampling.row_sampler import RowSampler
from paternoster_engine.sampling.sampler import Sampler

VOCAB = 49152 + 70
"""More than the tokenizer has, as of models whose rows were padded."""
CPU = torch.device("cpu")
AMBIGUOUS = "start: a0\n" + "".join(f"a{i}: a{i + 1} a{i + 1}\n" for i in range(40)) + 'a40: "x"'
Compile = Callable[[Kind, str], Grammar]


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary.from_tokenizer(tokenizer)


@pytest.fixture(scope="module")
def grammar(tokenizer: Tokenizer, vocabulary: Vocabulary) -> Compile:
    shared = vocabulary.build_tokenizer(tokenizer.encode)

    def compiled(kind: Kind, text: str) -> Grammar:
        source = GrammarSource(kind, text)
        return Grammar(shared, to_grammar(source, frozenset()), most_items(source))

    return compiled


def _request(tokenizer: Tokenizer, grammar: Grammar, **params: Any) -> Request:
    chosen = SamplingParams(**{"max_tokens": 9, "temperature": 0.0, **params})
    return Request(RequestSpec("r", [1], chosen, eos_token_ids=tokenizer.eos_token_ids), matcher=grammar.begin_output())


def _allowed(request: Request, vocab: int) -> set[int]:
    mask = request.matcher.allowed_mask(request)  # type: ignore[union-attr]
    assert mask is not None
    assert len(mask) * 8 >= vocab
    return {token for token in range(len(mask) * 8) if mask[token // 8] >> token % 8 & 1}


def test_the_end_is_allowed_where_the_grammar_can_end(tokenizer: Tokenizer, grammar: Compile) -> None:
    ends, (a,) = {*tokenizer.eos_token_ids}, tokenizer.encode("a")
    request = _request(tokenizer, grammar("regex", "a{1,2}"))
    assert not ends & _allowed(request, tokenizer.vocab_size)
    request.output.append(a)
    assert _allowed(request, tokenizer.vocab_size) == {a, *ends}
    request.output.append(a)
    assert _allowed(request, tokenizer.vocab_size) == ends


@pytest.mark.parametrize("params", [{"min_tokens": 9}, {"ignore_eos": True}, {"min_tokens": 9, "ignore_eos": True}])
def test_an_answer_that_should_go_on_ends_only_where_it_must(
    tokenizer: Tokenizer, grammar: Compile, params: dict[str, Any]
) -> None:
    ends, (a,) = {*tokenizer.eos_token_ids}, tokenizer.encode("a")
    request = _request(tokenizer, grammar("regex", "a{1,2}"), **params)
    request.output.append(a)
    assert _allowed(request, tokenizer.vocab_size) == {a}
    request.output.append(a)
    assert _allowed(request, tokenizer.vocab_size) == ends
    for end in ends:
        request.output.append(end)
        assert request.ends_with(end, 99) is FinishReason.STOP


@pytest.mark.parametrize("params", [{"min_tokens": 9}, {"ignore_eos": True, "min_tokens": 9}])
def test_a_stop_token_that_the_tokenizer_has_not(
    tokenizer: Tokenizer, grammar: Compile, params: dict[str, Any]
) -> None:
    """A model may have more rows than its tokenizer has tokens, and a request may name any of them."""
    (a,) = tokenizer.encode("a")
    request = _request(tokenizer, grammar("regex", "a{1,2}"), stop_token_ids=(VOCAB - 1,), **params)
    request.output.append(a)
    assert _allowed(request, tokenizer.vocab_size) == {a}


def test_a_proposed_token_that_the_tokenizer_has_not(tokenizer: Tokenizer, grammar: Compile) -> None:
    """A prompt may have one, and what stood there before is proposed; it leaves the matcher as it is."""
    (a,) = tokenizer.encode("a")
    request = _request(tokenizer, grammar("regex", "a{1,9}"))
    assert request.matcher is not None
    assert request.matcher.count_accepted(request, [a, VOCAB - 1, a]) == 1
    assert request.matcher.count_accepted(request, [VOCAB - 1]) == 0
    assert a in _allowed(request, tokenizer.vocab_size)


def test_few_tokens_are_proposed_where_masks_take_long(
    tokenizer: Tokenizer, grammar: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, now = _request(tokenizer, grammar("regex", "a{1,9}")), [0.0]
    assert request.matcher is not None
    assert request.matcher.max_proposed > 16, "nothing is known yet"

    def thread_time() -> float:
        now[0] += 0.005
        return now[0]

    monkeypatch.setattr("paternoster_engine.sampling.grammars.grammar.time.thread_time", thread_time)
    for _ in range(80):
        _allowed(request, tokenizer.vocab_size)
    assert request.matcher.max_proposed in (2, 3), "four masks of 5 ms, one of them the request's own"


def test_state_depends_on_the_output_alone(tokenizer: Tokenizer, grammar: Compile) -> None:
    """A copy that begins in the midst allows what one that followed each token does."""
    made = grammar("json", '{"type": "object", "properties": {"name": {"type": "string"}}}')
    followed, output = _request(tokenizer, made), tokenizer.encode('{"name": "Anna')
    for token in output:
        assert token in _allowed(followed, tokenizer.vocab_size)
        followed.output.append(token)
    late = _request(tokenizer, made)
    late.output += output
    assert _allowed(late, tokenizer.vocab_size) == _allowed(followed, tokenizer.vocab_size)


def test_both_samplers_forbid_the_same(tokenizer: Tokenizer, grammar: Compile) -> None:
    """Beside rows without a grammar, which keep the tokens that they have alone; logits stay as they were."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(5, VOCAB, generator=generator).to(torch.bfloat16)
    kinds = ["[0-9]+", None, "(yes|no)", "[^a]+", None]

    def requests() -> list[Request]:
        made = []
        for i, regex in enumerate(kinds):
            request = _request(tokenizer, grammar("regex", regex or "x"), temperature=0.9 * (i % 2), min_tokens=i % 3)
            request.spec = replace(request.spec, seed=i)
            if regex is None:
                request.matcher = None
            made.append(request)
        return made

    before, plain = logits.clone(), Sampler(VOCAB, CPU)
    expected = plain.sample(logits, requests())
    assert DeviceSampler(CPU).sample(logits, requests()) == expected
    assert RowSampler(plain).sample(logits, requests()) == expected
    assert torch.equal(logits, before)
    for i in (1, 4):
        assert expected[i] == plain.sample(logits[i : i + 1], [requests()[i]])[0]
    assert tokenizer.decode([expected[0]]).isdigit()
    assert "yes".startswith(text := tokenizer.decode([expected[2]])) or "no".startswith(text)


def test_a_fault_ends_its_request_alone(tokenizer: Tokenizer, grammar: Compile) -> None:
    scheduler = Scheduler(SchedulerConfig(max_num_seqs=2, max_batched_tokens=9, max_model_len=64, num_blocks=9))
    stuck = _request(tokenizer, grammar("grammar", AMBIGUOUS))
    other = _request(tokenizer, grammar("regex", "a+"), min_tokens=9)
    other.spec = replace(other.spec, request_id="other")
    scheduler.add(stuck)
    scheduler.add(other)
    sampler, logits = Sampler(VOCAB, CPU), torch.zeros(1, VOCAB)
    ended = []
    for _ in range(4):
        batch = scheduler.schedule(0.0)
        tokens = []
        for item in batch.scheduled:
            (token,) = sampler.sample(logits, [item.request])
            tokens.append(None if item.request.is_unsatisfiable else token)
        ended += [o.request for o in scheduler.update(batch, StepResult(tokens), 0.0) if o.finish_reason]
    assert ended == [stuck]
    assert stuck.finish_reason is FinishReason.ERROR
    assert stuck.matcher is not None
    assert stuck.matcher.fault
    assert len(other.output) == 4
    scheduler.check_integrity()


def test_a_grammar_whose_mask_holds_everybody_up_gets_no_other(
    tokenizer: Tokenizer, grammar: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = grammar("regex", "a+")
    first, second = _request(tokenizer, made), _request(tokenizer, made)
    assert first.matcher is not None
    assert second.matcher is not None
    assert first.matcher.allowed_mask(first) is not None
    monkeypatch.setattr(module, "MASK_TIME", -1.0)
    with pytest.raises(GrammarError, match="forces too long a text"):
        made.check_masks()
    assert first.matcher.allowed_mask(first) is None
    assert "forces too long a text" in (first.matcher.fault or "")
    monkeypatch.undo()
    assert second.matcher.allowed_mask(second) is None
    assert made.too_slow


NOTES = {name: {"type": "string", "maxLength": 2000 + i * 37} for i, name in enumerate(("title", "body", "why"))}


@pytest.mark.parametrize("lazy", [False, True])
def test_answers_do_not_fill_the_lexer_of_those_that_follow(tokenizer: Tokenizer, grammar: Compile, lazy: bool) -> None:
    """Each answer has its own text of limited length, whose states all copies of a matcher share."""
    made = grammar("json", json.dumps({"type": "object", "properties": NOTES}))
    seen = SeenTokens(tokenizer.largest_id + 1, tokenizer.token_bytes)
    first = made.start
    for name in (*NOTES, *NOTES):
        request = _request(tokenizer, made)
        request.matcher = LazyMatcher(made, FreeText(call="call:", several=True), seen) if lazy else request.matcher
        for token in tokenizer.encode(f'{"call:" * lazy}{{"{name}": "{"the cat sat on the mat and " * 60}"}}'):
            assert request.matcher is not None
            mask = request.matcher.allowed_mask(request)
            assert mask is not None, (name, request.matcher.fault)
            assert not mask or mask[token // 8] >> token % 8 & 1
            request.output.append(token)
    assert made.start is not first, "else nothing was full"


def test_an_answer_that_fills_a_lexer_by_itself_ends(
    tokenizer: Tokenizer, grammar: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "parser_limits", lambda items: LLParserLimits(max_items_in_row=items, max_lexer_states=500)
    )
    made = grammar("json", json.dumps({"type": "string", "maxLength": 5000}))
    assert _fault(tokenizer, made, '"The cat sat') is None
    assert "too many states" in (_fault(tokenizer, made, '"' + "The cat sat on the mat and " * 50) or "")
    assert _fault(tokenizer, made, '"The cat sat') is None


def test_a_full_lexer_that_takes_long_to_make_is_left_to_the_compiler(
    tokenizer: Tokenizer, grammar: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MASK_TIME", -1.0)
    made = grammar("json", json.dumps({"type": "object", "properties": NOTES}))
    monkeypatch.undo()
    source = GrammarSource("json", json.dumps(NOTES))
    cache = GrammarCache(2**21)
    cache.put(source, made)
    fault = None
    for name in NOTES:
        assert cache.get(source) is made
        fault = _fault(tokenizer, made, f'{{"{name}": "{"the cat sat on the mat and " * 60}')
        if fault is not None:
            break
    assert "too many states" in (fault or "")
    assert cache.get(source) is None


def _fault(tokenizer: Tokenizer, grammar: Grammar, answer: str) -> str | None:
    """Why no token can follow some beginning of ``answer``, of which each token must be allowed."""
    request = _request(tokenizer, grammar)
    assert request.matcher is not None
    for token in tokenizer.encode(answer):
        mask = request.matcher.allowed_mask(request)
        if mask is None:
            break
        assert mask[token // 8] >> token % 8 & 1
        request.output.append(token)
    return request.matcher.fault


@pytest.mark.parametrize("kind", ["json", "structural_tag"])
def test_an_object_within_may_have_hundreds_of_optional_names(
    tokenizer: Tokenizer, grammar: Compile, kind: Kind
) -> None:
    within = {"type": "object", "properties": {f"name_{i}": {"type": "string"} for i in range(450)}}
    schema = {"type": "object", "properties": {"in": within}, "required": ["in"]}
    answer = json.dumps({"in": {"name_3": "a", "name_200": "b", "name_449": "c"}})
    if kind == "structural_tag":
        tag = {"structures": [{"begin": "<f>", "schema": schema, "end": "</f>"}], "triggers": ["<f>"]}
        assert _fault(tokenizer, grammar(kind, json.dumps(tag)), f"<f>{answer}</f>") is None
    else:
        assert _fault(tokenizer, grammar(kind, json.dumps(schema)), answer) is None


def test_texts_are_spelled_by_tokens_of_text(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    for encode in (tokenizer.encode, None, lambda text: tokenizer.encode(" " + text)):
        shared = vocabulary.build_tokenizer(encode)
        for text in ("plain", "<|im_end|>", "Grüße 🚀", '{"a": [1, 2]}', "   x\n\t"):
            ids = shared.tokenize_str(text)
            assert b"".join(tokenizer.token_bytes(i) for i in ids) == text.encode()
            assert not any(tokenizer.is_special(i) for i in ids)


def test_the_cache_is_bounded_in_bytes(grammar: Compile) -> None:
    cache, made = GrammarCache(20 * 2**20), grammar("regex", "a")
    sources = [GrammarSource("regex", f"{i}" * 10) for i in range(60)]
    for source in sources:
        cache.put(source, made)
        cache.get(sources[0])
    cached_sources = [source for source in sources if cache.get(source) is not None]
    assert cached_sources == [sources[0], *sources[-18:]]
    for i in range(1000):
        cache.put(GrammarSource("regex", f"refused {i}"), GrammarError("x"))
        assert cache.get(cached_sources[0]) is made
    assert sum(cache.get(source) is made for source in cached_sources) == 18
    cache.put(GrammarSource("regex", "x" * 2**20), made)
    assert cache.get(cached_sources[0]) is made
    assert cache.get(GrammarSource("regex", "x" * 2**20)) is None
