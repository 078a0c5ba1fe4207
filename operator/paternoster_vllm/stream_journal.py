"""The journal of a stream of vLLM: what the gateway and this plugin say to each other; pure.

Headers, comment lines and frames by themselves are those of ``paternoster_contract.stream_journal``, which this package
cannot import. A line is a JSON list of what came from the engine since the frame before: ``{"prompt": [tokens]}`` once,
``{"unsupported": name}`` where no other engine can go on, and for each output of the engine a list of
``[choice, finish reason, stop reason, [tokens], [log probabilities]]``, one for each choice that it has. The log
probabilities of a token are ``[[token, log probability, rank], ...]``, that of the token itself first.
"""

import json
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

STREAM_ID, JOURNAL, RESUME = b"x-paternoster-stream-id", b"x-paternoster-journal", b"x-paternoster-resume"
COMMENT, HAND_OVER, FAILED = b": journal ", b": continue", b": failed"
NOT_CONTINUED = b"x-paternoster-not-continued"
MAX_JOURNAL_BYTES = 2**20
END = b"\n\n"
LONGEST_STOP = 4096
"""Characters of a stop string that vLLM reports."""
LONGEST_NAME = 64
MOST_CHOICES = 16_384
FINISH_REASONS = ("stop", "length", "repetition")
"""With which the model ends an answer; with any other one vLLM does."""

Alternatives = tuple[tuple[int, float, int], ...]
"""Alternatives of one position: token, log probability and rank, that of the answer's own token first."""

_STREAM_ID = re.compile(rb"([0-9a-f]{32})-([0-9]{1,12})")
_RESUME = re.compile(rb"([0-9]{1,9}) ([0-9]{1,9}) ([!-~]{1,64})")
_NAME = re.compile(r"[\w .-]{1,64}", re.ASCII)


class InvalidJournal(ValueError):
    """No vLLM with this plugin wrote such a journal; the text says why."""


class UnsupportedCall(InvalidJournal):
    """The stream has something that no engine continues; the text names it."""


@dataclass(frozen=True, slots=True)
class ChoiceOutput:
    """Tokens of one choice that vLLM turned into text at once."""

    choice: int
    tokens: tuple[int, ...]
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: tuple[Alternatives, ...] = ()
    """One for each token, where the call requests them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the engine made of a stream up to a frame."""

    prompt: tuple[int, ...] = ()
    """Empty before the engine had the request."""
    outputs: tuple[tuple[ChoiceOutput, ...], ...] = ()
    """Each as the API server took it from the engine, in order."""

    def tokens_of(self, choice: int) -> list[int]:
        """All tokens of one choice."""
        return [token for output in self.outputs for each in output if each.choice == choice for token in each.tokens]


def encode_prompt(prompt: Sequence[int]) -> str:
    return f'{{"prompt": [{",".join(map(str, prompt))}]}}'


def encode_unsupported(name: str) -> str:
    return json.dumps({"unsupported": name})


def encode_output(output: Iterable[ChoiceOutput]) -> str:
    return f"[{','.join(map(_encode_choice, output))}]"


def _encode_choice(each: ChoiceOutput) -> str:
    """Write what ``json.dumps`` would, in a fifth of its time."""
    reason = "null" if each.finish_reason is None else json.dumps(each.finish_reason)
    stop = "null" if each.stop_reason is None else json.dumps(each.stop_reason)
    logprobs = ",".join(map(_encode_alternatives, each.logprobs))
    return f"[{each.choice},{reason},{stop},[{','.join(map(str, each.tokens))}],[{logprobs}]]"


def _encode_alternatives(alternatives: Alternatives) -> str:
    # Nine digits say which 32-bit number it is; json has names of its own for those that are not finite.
    items = [f"[{token},{json.dumps(float(f'{value:.9g}'))},{rank}]" for token, value, rank in alternatives]
    return f"[{','.join(items)}]"


def decode_stream_id(value: bytes) -> tuple[str, int]:
    """Hexadecimal digits and Unix seconds, of the header :data:`STREAM_ID`."""
    if (match := _STREAM_ID.fullmatch(value)) is None:
        raise InvalidJournal("the id of the stream is not 32 hexadecimal digits, a dash and Unix seconds")
    return match[1].decode(), int(match[2])


def decode_resume(value: bytes) -> tuple[int, int, str]:
    """Frames that the client has, bytes of the journal and fingerprint, of the header :data:`RESUME`."""
    if (match := _RESUME.fullmatch(value)) is None:
        raise InvalidJournal("it is not a number of frames, a number of bytes and a fingerprint")
    return int(match[1]), int(match[2]), match[3].decode()


def decode_journal(data: bytes, num_frames: int, vocab_size: int, max_model_len: int) -> Progress:
    """The first ``num_frames`` lines of ``data``.

    Raises :class:`InvalidJournal`, :class:`UnsupportedCall` where the engine that wrote it says that none can go on.
    """
    if len(data) > MAX_JOURNAL_BYTES:
        raise InvalidJournal(f"the journal has {len(data)} bytes: must have at most {MAX_JOURNAL_BYTES}")
    lines = data.split(b"\n")
    if not 1 <= num_frames <= len(lines):
        raise InvalidJournal(f"the journal has {len(lines)} lines: the client has {num_frames} frames")
    try:
        items = [item for line in lines[:num_frames] for item in _read_list(json.loads(line), "a line")]
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidJournal):
            raise
        raise InvalidJournal("a line of the journal is not JSON") from None
    prompt: tuple[int, ...] = ()
    outputs: list[tuple[ChoiceOutput, ...]] = []
    for item in items:
        if isinstance(item, dict):
            _check_supported(item)
            if prompt or outputs:
                raise InvalidJournal("the journal has more than one prompt")
            prompt = _read_tokens(item.get("prompt"), vocab_size)
        else:
            outputs.append(tuple(_read_choice(each, vocab_size) for each in _read_list(item, "an output")))
    _check_lengths(prompt, outputs, max_model_len)
    return Progress(prompt, tuple(outputs))


def _check_supported(item: dict[str, Any]) -> None:
    name = item.get("unsupported")
    if name is not None:
        raise UnsupportedCall(name if isinstance(name, str) and _NAME.fullmatch(name) else "something unknown")


def _check_lengths(prompt: tuple[int, ...], outputs: list[tuple[ChoiceOutput, ...]], max_model_len: int) -> None:
    if outputs and not prompt:
        raise InvalidJournal("the journal has no prompt")
    lengths: dict[int, int] = {}
    ended: set[int] = set()
    for output in outputs:
        for each in output:
            if each.choice in ended:
                raise InvalidJournal("the journal has tokens behind the end of a choice")
            lengths[each.choice] = lengths.get(each.choice, len(prompt)) + len(each.tokens)
            if each.finish_reason is not None:
                ended.add(each.choice)
    if max(lengths.values(), default=len(prompt)) > max_model_len:
        raise InvalidJournal(f"prompt and answer have {max(lengths.values())} tokens of {max_model_len}")


def _read_choice(item: Any, vocab_size: int) -> ChoiceOutput:
    """One choice of an output."""
    if not isinstance(item, list) or len(item) != 5 or type(item[0]) is not int or not 0 <= item[0] < MOST_CHOICES:
        raise InvalidJournal("an output of the journal is not [choice, finish reason, stop reason, tokens, logprobs]")
    choice, reason, stop = item[:3]
    if reason is not None and reason not in FINISH_REASONS:
        raise InvalidJournal(f"a finish reason of the journal is none of {', '.join(FINISH_REASONS)}")
    if not (stop is None or type(stop) is int or (isinstance(stop, str) and len(stop) <= LONGEST_STOP)):
        raise InvalidJournal("a stop reason of the journal is neither a token nor a string")
    tokens = _read_tokens(item[3], vocab_size)
    logprobs = tuple(_read_alternatives(each, vocab_size) for each in _read_list(item[4], "log probabilities"))
    if logprobs and [each[0][0] for each in logprobs] != list(tokens):
        raise InvalidJournal("log probabilities of the journal are not those of its tokens")
    return ChoiceOutput(choice, tokens, reason, stop, logprobs)


def _read_alternatives(item: Any, vocab_size: int) -> Alternatives:
    found: list[tuple[int, float, int]] = []
    for each in _read_list(item, "log probabilities"):
        if not (isinstance(each, list) and len(each) == 3 and type(each[1]) is float and type(each[2]) is int):
            raise InvalidJournal("a log probability of the journal is not [token, log probability, rank]")
        if not 0 <= each[2] < 2**31:
            raise InvalidJournal("a rank of the journal is out of range")
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", each[1]))
        except OverflowError:
            raise InvalidJournal("a log probability of the journal is no number of 32 bits") from None
        found.append((_read_tokens(each[:1], vocab_size)[0], value, each[2]))
    if not found:
        raise InvalidJournal("a token of the journal has no log probability")
    return tuple(found)


def _read_list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidJournal(f"{name} of the journal is no list")
    return value


def _read_tokens(value: Any, vocab_size: int) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < vocab_size for token in value):
        raise InvalidJournal(f"a token of the journal is none of the {vocab_size} of the vocabulary")
    return tuple(value)
