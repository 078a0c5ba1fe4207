"""Text to tokens and back, as vLLM serves it."""

from fastapi import Request

from paternoster_engine.server.access.identity import From
from paternoster_engine.server.bodies.body_route import new_router
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.generation.streaming import unless_gone
from paternoster_engine.server.openai.chat_prompts import encode_chat
from paternoster_engine.server.openai.engine_requests import check_token_ids
from paternoster_engine.server.openai.objects import Prompt, Tokens
from paternoster_engine.server.openai.requests import DetokenizeRequest, TokenizeRequest
from paternoster_engine.server.state import ServedModel

MOST_TOKENS = 65_536
"""In one call where the context is shorter: a count is of use for a text that is too long as well."""

router = new_router()


@router.post("/tokenize")
async def tokenize_text(request: Request, body: TokenizeRequest, state: State, sender: From) -> Tokens:
    served = state.find_model(body.model)
    encoder = served.prompts
    if body.messages is not None:
        special = bool(body.add_special_tokens)
        work = encode_chat(encoder, sender.tenant, body.messages, body, special)
        encoding, _ = await unless_gone(request, work)
        _check_count(served, "messages", len(encoding))
    else:
        assert body.prompt is not None
        texts = encoder.encode_texts(sender.tenant, "prompt", [body.prompt], body.add_special_tokens is not False)
        (encoding,) = await unless_gone(request, texts)
        _check_count(served, "prompt", len(encoding))
    tokens: list[int] = encoding.ids
    return Tokens(
        count=len(tokens),
        max_model_len=served.max_model_len,
        tokens=tokens,
        token_strs=[encoder.tokenizer.id_to_token(token) or "" for token in tokens] if body.return_token_strs else None,
    )


@router.post("/detokenize")
async def detokenize_ids(body: DetokenizeRequest, state: State) -> Prompt:
    served = state.find_model(body.model)
    _check_count(served, "tokens", len(body.tokens))
    check_token_ids(served, "tokens", body.tokens)
    return Prompt(prompt=served.prompts.tokenizer.decode(body.tokens, skip_special_tokens=False))


def _check_count(served: ServedModel, field: str, count: int) -> None:
    """Raises :class:`InvalidValue` for more tokens than can be listed without holding up other calls."""
    most = max(served.max_model_len, MOST_TOKENS)
    if count > most:
        raise InvalidValue(field, f"{field}: has {count} tokens, of at most {most} in one call")
