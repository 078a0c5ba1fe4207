"""In vLLM's API server: the text of the call in progress, as pieces that the engine core ties to its blocks."""

import json
import logging
import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from paternoster_contract.text_chains.canonical_text import cache_salt_of, canonical_text
from paternoster_contract.text_chains.chain import chain_scope, text_chain
from paternoster_contract.text_chains.positions import locate_prompt
from paternoster_vllm.text_chains import PIECES
from paternoster_vllm.text_chains.block_watch import pack_pieces

log = logging.getLogger(__name__)

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(slots=True)
class CallBody:
    """The body of a call; empty once its first prompt was taken from it."""

    path: str
    data: bytes


CURRENT: ContextVar[CallBody | None] = ContextVar("paternoster_call_body", default=None)
"""Body of the call in progress."""


class TokenLengths:
    """How many bytes of text tokens stand for, by the spellings that a tokenizer has of them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._lengths: dict[int, int] = {}
        newline = tokenizer.convert_ids_to_tokens(list(tokenizer.encode("\n", add_special_tokens=False)))
        self._has_byte_letters = "\u010a" in "".join(map(str, newline))
        """Whether each letter of a spelling is a byte, as in vocabularies in the manner of GPT-2."""

    def list_lengths(self, tokens: Sequence[int]) -> list[int]:
        new = list({token for token in tokens if token not in self._lengths})
        for token, spelling in zip(new, self._tokenizer.convert_ids_to_tokens(new), strict=True):
            self._lengths[token] = self._count_bytes(spelling)
        return [self._lengths[token] for token in tokens]

    def _count_bytes(self, spelling: Any) -> int:
        if not isinstance(spelling, str) or self._has_byte_letters:
            return len(spelling or "")
        return 1 if _BYTE.fullmatch(spelling) else len(spelling.replace("\u2581", " ").encode("utf-8", "replace"))


class PromptPieces:
    """Adds the pieces of prompts to requests to the engine."""

    def __init__(self, client: Any, model: str) -> None:
        """``client``: vLLM's ``AsyncLLM``; ``model``: its first served name."""
        self._processor = client.output_processor
        self._model = model
        self._lengths: TokenLengths | None = None
        self._has_failed = False

    def replace_method(self) -> None:
        """Raises ``AttributeError`` for a client unlike that of vLLM 0.32."""
        add = self._processor.add_request

        def add_request(request: Any, prompt: Any, *rest: Any, **named: Any) -> None:
            pieces = self._try_pieces(request, prompt)
            add(request, prompt, *rest, **named)
            if pieces:
                params = request.sampling_params
                params.extra_args = {**(params.extra_args or {}), PIECES: pack_pieces(pieces)}

        self._processor.add_request = add_request

    def _try_pieces(self, request: Any, prompt: Any) -> list[tuple[int, int]]:
        """The pieces of the call, none once they could not be found: no request fails for them."""
        if self._has_failed:
            return []
        try:
            return self._take_pieces(request, prompt)
        except Exception:
            self._has_failed = True
            log.exception("paternoster_vllm: texts of prompts are found no more")
            return []

    def _take_pieces(self, request: Any, prompt: Any) -> list[tuple[int, int]]:
        """The pieces of the first prompt of a call; none where its blocks depend on more than its text."""
        call = CURRENT.get()
        if call is None or not call.data:
            return []
        data, call.data = call.data, b""
        if not request.prompt_token_ids or request.mm_features or request.lora_request or not request.sampling_params:
            return []
        return self.find_pieces(call.path, data, prompt, request.prompt_token_ids)

    def find_pieces(self, path: str, data: bytes, prompt: Any, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Tokens and digest of each piece of a body; ``prompt``: None where vLLM has no text of it."""
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            return []
        text = canonical_text(path, body)
        if text is None:
            return []
        pieces = text_chain(chain_scope(self._model, salt=cache_salt_of(body)), text)
        rendered, lengths = "", []
        if text.token_ids is None and pieces:
            tokenizer = self._processor.tokenizer
            if self._lengths is None:
                self._lengths = TokenLengths(tokenizer)
            rendered = prompt if isinstance(prompt, str) else tokenizer.decode(list(tokens))
            lengths = self._lengths.list_lengths(tokens)
        counts = locate_prompt(text, [piece.end for piece in pieces], rendered, lengths)
        return [(count, piece.digest) for count, piece in zip(counts, pieces, strict=True)]
