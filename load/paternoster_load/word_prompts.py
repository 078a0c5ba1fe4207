"""Prompts as text, for servers that do not tokenize for their clients."""

from collections.abc import Sequence

from paternoster_load.client import BenchClient, ServerError
from paternoster_load.results import BenchRequest, RequestEnd
from paternoster_traces.prompts import PromptSource

PROBE_WORDS = 100


class WordPrompts:
    """Words cut like tokens; ``tokens_per_word`` makes their number right on average, not for each prompt."""

    def __init__(self, text: str, tokens_per_word: float, *, seed: int = 0) -> None:
        if tokens_per_word <= 0:
            raise ValueError(f"tokens_per_word is {tokens_per_word}: must be above 0")
        self._words = text.split()
        self._source = PromptSource(range(len(self._words)), seed=seed)
        self._tokens_per_word = tokens_per_word

    def make_prompt(self, index: int, length: int, prefix_blocks: Sequence[int] = ()) -> str:
        cut = self._source.make_prompt(index, length, prefix_blocks)
        count = max(1, round(length / self._tokens_per_word))
        return " ".join(self._words[i] for i in cut[:count])


async def tokens_per_word(client: BenchClient, text: str) -> float:
    """Tokens that the server counts for each of :data:`PROBE_WORDS` words of a prompt; raises :class:`ServerError`."""
    words = text.split()[:PROBE_WORDS]
    result = await client.send(BenchRequest(0, " ".join(words), 1))
    if result.outcome is not RequestEnd.COMPLETED:
        raise ServerError(f"{client.url}: does not answer a prompt of {len(words)} words: {result.error}")
    if result.prompt_tokens < 1:
        raise ServerError(f"{client.url}: has no /tokenize and tells no usage: prompts of a given length need one")
    return result.prompt_tokens / len(words)
