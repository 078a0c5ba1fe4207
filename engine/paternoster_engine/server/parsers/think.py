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


def read_reasoning(reader: Reader, marks: Marks, begun: bool, calls: tuple[str, ...] = ()) -> Read[bool]:
    """Leaves what follows; white space at both ends of the reasoning, and after it, is none of the answer's.

    ``calls``: marks with which calls begin. Returns whether the text ended before the reasoning did, and behind such a
    mark: what is left then begins with it. A call before the reasoning's end is a draft.
    """
    reader.reasoning = begun
    yield from reader.peek_solid()
    if not (yield from reader.match_option(marks.begin)) and not begun:
        reader.reject()
        return False
    reader.reasoning = True
    yield from reader.peek_solid()
    reader.commit()
    marker = yield from reader.pass_until((marks.end, *calls), Reasoning, strips=True)
    if marker in calls:
        if (yield from reader.read_until((marks.end,))) is None:
            reader.reject()
            return True
        yield Reasoning(reader.commit().rstrip())
        marker = yield from reader.match_option(marks.end)
    reader.reasoning = False
    if marker:
        yield from reader.peek_solid()
        reader.commit()
    return False
