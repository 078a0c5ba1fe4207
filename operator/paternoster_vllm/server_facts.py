"""What the continuation of streams needs of vLLM's API server; a server that lacks any of it writes no journal."""

import hashlib
import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from paternoster_vllm.rest_of_stream import Detokenizer, MakeDetokenizer
from paternoster_vllm.streamed_call import StreamedCall

SAMPLE = 64 * 1024
"""Bytes at the beginning, in the middle and at the end of a file by which files of models are compared."""
MODEL_FILES = (".safetensors", ".json", ".jinja", ".model", ".gguf", ".bin")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Of one API server, fixed while it runs."""

    numerics: str
    """What another vLLM must have in common to continue its streams."""
    vocab_size: int
    max_model_len: int
    default_max_tokens: int | None
    """Of the model's generation config, where a call does not say."""
    most_tokens: int | None
    """Of any answer, as the server was started."""
    forces_usage: bool
    parses_chat: bool
    """Whether a parser of reasoning or tools reads the text of chats."""
    fingerprint: str | None
    """``system_fingerprint`` of answers."""
    make_detokenizer: MakeDetokenizer

    def can_continue(self, call: StreamedCall) -> bool:
        return not (call.is_chat and self.parses_chat)

    def limit_tokens(self, call: StreamedCall, num_prompt: int) -> int:
        """Tokens that the whole answer to ``call`` may have, as vLLM's ``get_max_tokens`` says."""
        wanted = self.default_max_tokens if call.max_tokens is None else call.max_tokens
        limits = (self.max_model_len - num_prompt, wanted, self.most_tokens)
        return min(limit for limit in limits if limit is not None)


def read_facts(state: Any) -> ServerFacts:
    """Of ``app.state``; raises ``AttributeError``, ``ImportError`` or ``OSError`` for a vLLM unlike 0.31 to 0.33."""
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    model, chat, completion = state.vllm_config.model_config, state.openai_serving_chat, state.openai_serving_completion
    tokenizer = state.engine_client.get_tokenizer()

    def make_detokenizer(request: SimpleNamespace) -> Detokenizer:
        made: Detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
        return made

    return ServerFacts(
        numerics=compute_numerics(state.vllm_config, completion.default_sampling_params),
        vocab_size=int(model.get_vocab_size()),
        max_model_len=int(model.max_model_len),
        default_max_tokens=completion.default_sampling_params.get("max_tokens"),
        most_tokens=completion.override_max_tokens,
        forces_usage=bool(completion.enable_force_include_usage),
        parses_chat=chat.parser_cls is not None,
        fingerprint=completion.system_fingerprint,
        make_detokenizer=make_detokenizer,
    )


def compute_numerics(vllm_config: Any, default_sampling: Any) -> str:
    """A digest of vLLM's version, its configuration of the computation, the model's files and default sampling."""
    model = vllm_config.model_config
    digest = hashlib.blake2b(digest_size=16)
    parts = (importlib.metadata.version("vllm"), vllm_config.compute_hash(), model.max_model_len, model.revision)
    digest.update(json.dumps([*map(str, parts), default_sampling], sort_keys=True, default=str).encode())
    folder = Path(model.model)
    if not folder.exists():
        digest.update(str(model.model).encode())
    for file in sorted([folder] if folder.is_file() else folder.glob("*")):
        if file.suffix in MODEL_FILES and file.is_file():
            digest.update(f"{file.name} {file.stat().st_size} ".encode())
            for sample in _read_samples(file):
                digest.update(sample)
    return f"vllm-{digest.hexdigest()}"


def _read_samples(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    with file.open("rb") as opened:
        for start in sorted({0, max(0, size // 2 - SAMPLE // 2), max(0, size - SAMPLE)}):
            opened.seek(start)
            yield opened.read(SAMPLE)
