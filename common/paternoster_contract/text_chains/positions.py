"""Where in a rendered prompt, and in its tokens, pieces of its text end. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from paternoster_contract.text_chains.canonical_text import CanonicalText

LEAST_ANCHOR = 16
"""Bytes of a text that is looked for in the prompt: a shorter one may be found where it is not."""
MAX_MISSES = 256
"""Texts that are not in the prompt, each of which costs a search to its end: behind them none is looked for."""


def locate_prompt(text: CanonicalText, ends: Sequence[int], rendered: str, lengths: Sequence[int]) -> list[int]:
    """How many tokens of the prompt hold each of ``ends``, bytes of ``text``; never fewer than for the end before.

    ``rendered``: the prompt as a template or the client wrote it; ``lengths``: bytes of each of its tokens. Neither
    counts where the prompt came as token ids, of four bytes each.
    """
    if text.token_ids is not None:
        counts = [-(-end // 4) for end in ends]
    else:
        data = rendered.encode("utf-8", "surrogatepass")
        head = text.head_bytes if text.settings else None
        counts = count_tokens(find_byte_ends(text.parts, ends, data, head), len(data), lengths)
    return list(accumulate(counts, max))


def find_byte_ends(parts: Sequence[str], ends: Sequence[int], rendered: bytes, head: int | None = None) -> list[int]:
    """For each of ``ends``, bytes of the joined ``parts``: where in ``rendered`` all text up to there has ended.

    The parts come in ``rendered`` in their order, with other text between. What is not found there, because a template
    writes it in another way, has ended where the next part that is found begins. ``head``: one of ``ends``, behind
    which the template may show tools as well: these have ended where the next part begins, too.
    """
    anchors: list[tuple[int, int, int]] = []
    """Where a text begins in the parts, where it ends, and where it begins in ``rendered``."""
    length = cursor = misses = 0
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        text = data.strip()
        if len(text) >= LEAST_ANCHOR and misses < MAX_MISSES:
            found = rendered.find(text, cursor)
            if found < 0:
                misses += 1
            else:
                first = length + data.find(text)
                anchors.append((first, first + len(text), found))
                cursor = found + len(text)
        length += len(data)
    firsts, lasts = [anchor[0] for anchor in anchors], [anchor[1] for anchor in anchors]
    found_ends = []
    for end in ends:
        place = bisect_left(lasts, end)
        if end == head or place == len(anchors) or end <= firsts[place]:
            place = bisect_left(firsts, end)
            found_ends.append(anchors[place][2] if place < len(anchors) else len(rendered))
        else:
            found_ends.append(anchors[place][2] + end - firsts[place])
    return found_ends


def count_tokens(byte_ends: Sequence[int], num_bytes: int, lengths: Sequence[int]) -> list[int]:
    """For each of ``byte_ends`` in a text of ``num_bytes``: its first tokens, ``lengths`` long each, that hold it.

    Where tokens stand for other bytes than those of the text, it is rather more tokens than fewer.
    """
    sums = list(accumulate(lengths))
    surplus = max(0, sums[-1] - num_bytes) if sums else 0
    return [
        min(len(sums), bisect_left(sums, end + surplus) + 1) if end else min(len(sums), surplus) for end in byte_ends
    ]
