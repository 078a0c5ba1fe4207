"""Text to tokens and back, as vLLM serves it."""

from fastapi import APIRouter

from paternoster_engine.server.dependencies import State
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai_objects import Prompt, Tokens
from paternoster_engine.server.openai_types import DetokenizeRequest, TokenizeRequest
from paternoster_engine.server.prompts import check_token_ids, encode, encode_chat, token_ids

router = APIRouter()


@router.post("/tokenize")
async def tokenize(body: TokenizeRequest, state: State) -> Tokens:
    served = state.named(body.model)
    if body.messages is not None:
        special = bool(body.add_special_tokens)
        encoding = await encode_chat(served, body.messages, body.add_generation_prompt, special)
    elif body.prompt is not None:
        (encoding,) = await encode(served, "prompt", [body.prompt], body.add_special_tokens is not False)
    else:
        raise InvalidValue("prompt", "prompt: give either prompt or messages")
    tokens = await token_ids(served, encoding, 0)
    return Tokens(
        count=len(tokens),
        max_model_len=served.max_model_len,
        tokens=tokens,
        token_strs=[served.tokenizer.id_to_token(token) or "" for token in tokens] if body.return_token_strs else None,
    )


@router.post("/detokenize")
async def detokenize(body: DetokenizeRequest, state: State) -> Prompt:
    served = state.named(body.model)
    if len(body.tokens) > served.max_model_len:
        raise InvalidValue(
            "tokens", f"tokens: {len(body.tokens)} of at most {served.max_model_len}, the model's context"
        )
    check_token_ids(served, "tokens", body.tokens)
    return Prompt(prompt=served.tokenizer.decode(body.tokens, skip_special_tokens=False))
