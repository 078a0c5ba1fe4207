"""Reasoning between two marks at the beginning of an answer: ``<think>``, ``</think>``."""

from typing import NamedTuple

from paternoster_engine.server.parsers.events import Read, Reasoning
from paternoster_engine.server.parsers.reader import Reader


class Marks(NamedTuple):
    begin: str
    end: str

    def has_begun(self, prompt: str) -> bool:
        """Whether a prompt that ends so has begun the reasoning, as DeepSeek-R1's template does."""
        return prompt.rstrip().endswith(self.begin)

    def has_ended(self, prompt: str) -> bool:
        """Whether a prompt that ends so has ended it, too, as Qwen3's does where thinking is switched off."""
        return prompt.rstrip().endswith(self.end)


THINK = Marks("<think>", "</think>")
MISTRAL = Marks("[THINK]", "[/THINK]")


def read_reasoning(reader: Reader, marks: Marks, begun: bool) -> Read[None]:
    """Leaves what follows; white space at both ends of the reasoning, and after it, is none of the answer's."""
    reader.reasoning = begun
    yield from reader.peek_solid()
    if not (yield from reader.match_option(marks.begin)) and not begun:
        reader.reject()
        return
    reader.reasoning = True
    yield from reader.peek_solid()
    reader.commit()
    marker = yield from reader.pass_until((marks.end,), Reasoning, strips=True)
    reader.reasoning = False
    if marker:
        yield from reader.peek_solid()
        reader.commit()
