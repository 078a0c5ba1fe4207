"""What the continuation of streams needs of vLLM's API server; a server that lacks any of it writes no journal."""

import hashlib
import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paternoster_vllm.engine_outputs import BuildOutput
from paternoster_vllm.replayed_grammar import can_advance
from paternoster_vllm.stream_journal import Alternatives, ChoiceOutput

SAMPLE = 64 * 1024
"""Bytes at the beginning, in the middle and at the end of a file by which files of models are compared."""
MODEL_FILES = (".safetensors", ".json", ".jinja", ".model", ".gguf", ".bin")
JOURNAL_VERSION = 2
"""Version of the lines that this plugin writes: a pod with an earlier plugin does not read them."""
FRAME_ARGUMENTS = (
    "chat_template", "chat_template_content_format", "default_chat_template_kwargs", "enable_auto_tool_choice",
    "enable_force_include_usage", "enable_log_deltas", "enable_prompt_tokens_details", "enable_per_request_metrics",
    "exclude_tools_when_tool_choice_none", "reasoning_parser", "response_role", "return_tokens_as_token_ids",
    "stream_interval", "tool_call_parser", "tool_strict_level",
)  # fmt: skip
"""Flags of ``vllm serve`` that decide which frames the tokens of an answer become."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts of one API server, fixed while it runs."""

    numerics: str
    """What another vLLM must have in common to continue its streams."""
    vocab_size: int
    max_model_len: int
    client: Any
    """Client of the engine: vLLM's ``AsyncLLM``."""
    build_output: BuildOutput
    advances_grammars: bool
    """Whether the engine core can go on with an answer that a grammar bounds."""


def read_facts(state: Any) -> ServerFacts:
    """Read ``app.state``; raises ``AttributeError``, ``ImportError`` or ``OSError`` for a vLLM unlike 0.32."""
    from vllm.v1.structured_output import StructuredOutputManager

    model, chat = state.vllm_config.model_config, state.openai_serving_chat
    return ServerFacts(
        numerics=compute_numerics(state.vllm_config, [chat.default_sampling_params, _read_arguments(state)]),
        vocab_size=int(model.get_vocab_size()),
        max_model_len=int(model.max_model_len),
        client=state.engine_client,
        build_output=build_core_output,
        advances_grammars=can_advance(StructuredOutputManager),
    )


def build_core_output(request_id: str, output: ChoiceOutput, num_logprobs: int | None) -> Any:
    """``output`` as vLLM's engine core would have sent it."""
    from vllm.v1.engine import EngineCoreOutput, FinishReason

    # A stop string is found again in the text, which the engine core does not have.
    by_string = isinstance(output.stop_reason, str)
    reason = None if by_string or output.finish_reason is None else FinishReason[output.finish_reason.upper()]
    return EngineCoreOutput(
        request_id=request_id,
        new_token_ids=list(output.tokens),
        new_logprobs=_build_logprobs(output.logprobs, num_logprobs) if output.logprobs else None,
        finish_reason=reason,
        stop_reason=None if by_string else output.stop_reason,
    )


def _build_logprobs(logprobs: tuple[Alternatives, ...], num_logprobs: int | None) -> Any:
    import numpy as np
    from vllm.v1.outputs import LogprobsLists

    rows = [order_alternatives(each, num_logprobs or 0) for each in logprobs]
    return LogprobsLists(
        np.array([[token for token, _, _ in row] for row in rows], dtype=np.int64),
        np.array([[value for _, value, _ in row] for row in rows], dtype=np.float32),
        np.array([row[0][2] for row in rows], dtype=np.int64),
    )


def order_alternatives(alternatives: Alternatives, num_logprobs: int) -> Alternatives:
    """The answer's own token, then the ``num_logprobs`` likeliest, of which it may be one."""
    own, *others = alternatives
    likeliest = others if len(others) == num_logprobs else sorted(alternatives, key=lambda each: each[2])
    if len(likeliest) != num_logprobs:
        raise ValueError(f"a token of the journal has {len(likeliest)} alternatives: the call has {num_logprobs}")
    return (own, *likeliest)


def _read_arguments(state: Any) -> dict[str, str]:
    arguments = vars(getattr(state, "args", object)) if hasattr(state, "args") else {}
    return {name: str(arguments[name]) for name in FRAME_ARGUMENTS if name in arguments}


def compute_numerics(vllm_config: Any, default_sampling: Any) -> str:
    """A digest of vLLM's version, its configuration of the computation, the model's files and default sampling."""
    model = vllm_config.model_config
    digest = hashlib.blake2b(digest_size=16)
    parts = (
        JOURNAL_VERSION,
        importlib.metadata.version("vllm"),
        vllm_config.compute_hash(),
        model.max_model_len,
        model.revision,
    )
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
