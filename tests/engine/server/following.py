"""What an answer's matcher makes of a text, token by token as a model would write it."""

from collections.abc import Callable

from tests.engine.server.tools_tokenizer import vocabulary_of

from paternoster_engine.core.matching import ProposedRow
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.lazy import LazyMatcher, SeenTokens
from paternoster_engine.sampling.grammars.source import GrammarSource, to_grammar
from paternoster_engine.server.parsers.call_form import Outline
from paternoster_engine.server.parsers.formats import AnswerFormat


def seen_tokens(tokenizer: Tokenizer, form: AnswerFormat) -> SeenTokens:
    marks = {token: text.encode() for text, token in form.special.items()}
    return SeenTokens(
        tokenizer.largest_id + 1,
        lambda token: marks.get(token, b"") if tokenizer.is_special(token) else tokenizer.token_bytes(token),
    )


def follower(
    tokenizer: Tokenizer, form: AnswerFormat, outline: Outline, answer: GrammarSource | None = None
) -> Callable[[str], str]:
    """Gives of a text, as its tokens are spelled, what is not allowed any more: nothing where all of it is.

    ``<end>`` where the answer could not end then.
    """
    source = GrammarSource("lark", outline.lark) if answer is None else answer._replace(outline=outline.lark)
    grammar = Grammar(vocabulary_of(tokenizer), to_grammar(source, frozenset()))
    seen, ends = seen_tokens(tokenizer, form), tokenizer.eos_token_ids

    def follow(text: str) -> str:
        matcher = LazyMatcher(grammar, outline.free, seen)
        request = Request(RequestSpec("r", [1], SamplingParams(max_tokens=9), eos_token_ids=ends), matcher=matcher)
        ids = tokenizer.encode(text)
        for place, token in enumerate([*ids, ends[0]]):
            mask = matcher.allowed_mask(request)
            assert matcher.fault is None, matcher.fault
            assert mask is not None
            if mask and not mask[token // 8] >> token % 8 & 1:
                return tokenizer.decode(ids[place:], skip_special_tokens=False) or "<end>"
            request.output.append(token)
        return ""

    return follow


def follow_proposals(fresh: Callable[[list[int]], Request], tokens: list[int]) -> None:
    """Check that proposals at every place of an answer of ``tokens`` are accepted as far as its masks allow each.

    Rows of proposals have the masks that the request would have there. ``fresh``: a request with that output.
    """

    def allowed(end: int) -> bytes | None:
        request = fresh(tokens[:end])
        assert request.matcher is not None
        return request.matcher.allowed_mask(request)

    masks = [allowed(end) for end in range(len(tokens))]
    right = [
        mask is not None and (not mask or bool(mask[t // 8] >> t % 8 & 1))
        for mask, t in zip(masks, tokens, strict=True)
    ]
    for num_tokens in range(len(tokens)):
        request = fresh(tokens[:num_tokens])
        assert request.matcher is not None
        if masks[num_tokens] is None:
            continue
        accepted = request.matcher.count_accepted(request, tokens[num_tokens:])
        assert accepted == [*right[num_tokens:], False].index(False), num_tokens
        assert request.matcher.allowed_mask(request) == masks[num_tokens]
        for count in range(1, min(accepted + 1, len(tokens) - num_tokens)):
            row = ProposedRow(request, tokens[num_tokens : num_tokens + count])
            assert request.matcher.allowed_mask(row) == masks[num_tokens + count], (num_tokens, count)
