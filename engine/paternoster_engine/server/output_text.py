"""The text of one sequence as its tokens come."""

from dataclasses import dataclass

from paternoster_engine.core.request import FinishReason
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.detokenizer import IncrementalDetokenizer
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.stop_strings import StopStrings


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that became visible; the last piece of a sequence carries the reason of its end."""

    text: str
    finish_reason: FinishReason | None = None

    def __add__(self, later: "Piece") -> "Piece":
        return Piece(self.text + later.text, later.finish_reason)


class OutputText:
    """Detokenizes one sequence and watches for its stop strings."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, skip_special_tokens: bool = True) -> None:
        self._params = params
        self._detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens)
        self._stops = StopStrings(params.stop, include=params.include_stop_str_in_output)
        self.num_tokens = 0
        """Tokens taken in, the one that ended the sequence included."""

    def push(self, token: int, finish_reason: FinishReason | None) -> Piece:
        """Take a token, and with it the scheduler's reason if it was the last; a stop string overrules that reason."""
        self.num_tokens += 1
        ended_by_token = finish_reason is FinishReason.STOP
        hidden = ended_by_token and not self._params.include_stop_str_in_output
        text = "" if hidden else self._detokenizer.push(token)
        if finish_reason is not None:
            text += self._detokenizer.flush()
        if self.num_tokens >= self._params.min_tokens:
            text = self._stops.push(text)
        if self._stops.stopped:
            return Piece(text, FinishReason.STOP)
        if finish_reason is not None:
            text += self._stops.flush()
        return Piece(text, finish_reason)
