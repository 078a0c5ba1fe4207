"""Log probabilities in the shapes that clients get: OpenAI's two, and vLLM's for prompts."""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

# Comes with pydantic, which makes no schema of typing's own before Python 3.12.
from typing_extensions import TypedDict

from paternoster_engine.core.request import TokenLogprobs
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.generation.output_text import TokenText
from paternoster_engine.server.pieces import made_in_pieces

LOWEST = -9999.0
"""What OpenAI sends for a token that is next to impossible; JSON has no infinity."""


class TopLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    """``choices[].logprobs`` of a chat completion."""

    content: list[ChatTokenLogprob]
    refusal: None


class TextLogprobs(BaseModel):
    """``choices[].logprobs`` of a text completion; null for a prompt's first token, which follows nothing."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class PromptLogprob(TypedDict):
    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""vLLM's ``prompt_logprobs``: for each token the token itself and the best in its place, by their ids."""


class LogprobsWriter:
    """Spells log probabilities with one vocabulary."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False) -> None:
        """``as_ids``: tokens of an answer are named by their ids."""
        self._tokenizer = tokenizer
        self._as_ids = as_ids

    async def write_chat(self, tokens: Sequence[TokenText]) -> ChatLogprobs:
        """Nothing of a prompt is among ``tokens``: chats have no echo."""
        return ChatLogprobs.model_construct(content=await made_in_pieces(tokens, self.write_content), refusal=None)

    def write_content(self, tokens: Sequence[TokenText]) -> list[ChatTokenLogprob]:
        """Write log probabilities of a few tokens."""
        return [self._chat_token(token.logprobs) for token in tokens if token.logprobs is not None]

    async def write_text(self, tokens: Sequence[TokenText], num_top: int) -> TextLogprobs:
        """The token itself comes besides the ``num_top`` best, all from the most likely on.

        Tokens that are spelled alike share an entry, which is of the most likely of them.
        """

        def best_tokens(tokens: Sequence[TokenText]) -> Iterator[dict[str, float] | None]:
            for token in tokens:
                yield None if token.logprobs is None else self._best_logprobs(token.logprobs, num_top)

        return TextLogprobs.model_construct(
            text_offset=[token.offset for token in tokens],
            token_logprobs=[
                None if token.logprobs is None else _bound_below(token.logprobs.logprob) for token in tokens
            ],
            tokens=await made_in_pieces(tokens, lambda tokens: [self._token_name(token.token) for token in tokens]),
            top_logprobs=await made_in_pieces(tokens, best_tokens),
        )

    async def write_prompt(self, logprobs: Sequence[TokenLogprobs], num_top: int) -> PromptLogprobs:
        """``logprobs`` are of all tokens of a prompt but the first."""

        def token_entries(part: Sequence[TokenLogprobs]) -> Iterator[dict[int, PromptLogprob]]:
            return (self._prompt_token(logprobs, num_top) for logprobs in part)

        return [None, *await made_in_pieces(logprobs, token_entries)]

    def _chat_token(self, logprobs: TokenLogprobs) -> ChatTokenLogprob:
        top = [self._top_logprob(token, logprob) for token, logprob in logprobs.top]
        return ChatTokenLogprob(**self._top_logprob(logprobs.token, logprobs.logprob), top_logprobs=top)

    def _top_logprob(self, token: int, logprob: float) -> TopLogprob:
        spelled = self._tokenizer.token_bytes(token)
        return TopLogprob(token=self._token_name(token), logprob=_bound_below(logprob), bytes=list(spelled))

    def _best_logprobs(self, logprobs: TokenLogprobs, num_top: int) -> dict[str, float]:
        best: dict[str, float] = {}
        for token, logprob in (*logprobs.top[:num_top], (logprobs.token, logprobs.logprob)):
            # From the most likely on: of tokens that are spelled alike the first one stays, in its place.
            best.setdefault(self._token_name(token), _bound_below(logprob))
        return best

    def _prompt_token(self, logprobs: TokenLogprobs, num_top: int) -> dict[int, PromptLogprob]:
        ranked = [(logprobs.token, logprobs.logprob, logprobs.rank)]
        ranked += [
            (token, logprob, rank)
            for rank, (token, logprob) in enumerate(logprobs.top[:num_top], start=1)
            if token != logprobs.token
        ]
        return {
            token: PromptLogprob(logprob=_bound_below(logprob), rank=rank, decoded_token=self._token_text(token))
            for token, logprob, rank in ranked
        }

    def _token_name(self, token: int) -> str:
        return f"token_id:{token}" if self._as_ids else self._token_text(token)

    def _token_text(self, token: int) -> str:
        """A token's text; bytes that are no whole character as ``\\xf0\\x9f``, so that tokens differ."""
        return self._tokenizer.token_bytes(token).decode(errors="backslashreplace")


def _bound_below(logprob: float) -> float:
    return max(logprob, LOWEST)
