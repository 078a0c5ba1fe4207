"""A matcher that computes no mask while text is free."""

import re
from collections.abc import Callable, Sequence
from typing import Self

from paternoster_engine.core.matching import SamplerRow
from paternoster_engine.sampling.allowed_tokens import without_ends
from paternoster_engine.sampling.grammars.free_text import FreeText
from paternoster_engine.sampling.grammars.grammar import Grammar, GrammarMatcher

MAX_SEARCHED = 1024
"""Bytes of a text's end in which the beginning of a call is looked for."""


class SeenTokens:
    """The bytes of tokens as they appear in an answer."""

    def __init__(self, size: int, spelled: Callable[[int], bytes]) -> None:
        """``spelled``: bytes of each token below ``size``; none of those that are not shown."""
        self.size = size
        self.spelled = spelled
        self.all = ((1 << size) - 1).to_bytes((size // 32 + 1) * 4, "little")
        """A mask that allows every token, as long as llguidance's."""
        self._beyond: dict[bytes, dict[bytes, bytes]] = {}

    def find_beyond(self, end: bytes) -> dict[bytes, bytes]:
        """Return for each suffix of ``end`` a mask without tokens that complete it and add more than white space.

        The first time it looks at every token, 0.15 s for 49,152; it may be called in any thread.
        """
        made = self._beyond.get(end)
        if made is None:
            rests = [end[start:] for start in range(1, len(end))]
            masks = {rest: bytearray(self.all) for rest in rests}
            firsts = {rest[0] for rest in rests}
            for token in range(self.size):
                spelled = self.spelled(token)
                if not spelled or spelled[0] not in firsts:
                    continue
                for rest in rests:
                    if spelled.startswith(rest) and spelled[len(rest) :].strip():
                        masks[rest][token // 8] &= ~(1 << token % 8) & 0xFF
            made = self._beyond[end] = {rest: bytes(mask) for rest, mask in masks.items()}
        return made


class LazyMatcher(GrammarMatcher):
    """Follows the grammar alone where it constrains the answer.

    A token may end free text and begin what the grammar describes: the grammar follows its remaining bytes. If these
    cannot begin a call, there is none, and the text continues.
    """

    def __init__(self, grammar: Grammar, free: FreeText, seen: SeenTokens) -> None:
        super().__init__(grammar, grammar.start_matcher())
        self._free, self._seen = free, seen
        self._call = None if free.call is None else re.compile(free.call.encode())
        self._text = bytearray()
        """Text of the part of the answer under way, where it is free."""
        self._looked = 0
        """Bytes of it in which no call begins."""
        thought = free.thought
        self._opening = b"" if thought is None or thought.begun else thought.begin.encode()
        """What makes the answer begin with a thought, while it may."""
        self._thinks = thought is not None and thought.begun
        self._held = not self._thinks and self._call is None

    def forced_tokens(self, row: SamplerRow) -> Sequence[int]:
        return super().forced_tokens(row) if self._state_at(row)._held and not self._opening else []

    def count_accepted(self, row: SamplerRow, tokens: Sequence[int]) -> int:
        ahead = self._state_at(row)._copy()
        for place, token in enumerate(tokens):
            if not ahead._permits_token(token):
                return place
            ahead._consume_tokens([token])
        return len(tokens)

    def _permits_token(self, token: int) -> bool:
        if token >= self._seen.size:
            return False
        if self._held:
            return self._count_allowed([token]) == 1
        return self._call is not None or bool(self._thought_mask()[token // 8] >> token % 8 & 1)

    def _copy(self) -> Self:
        made = super()._copy()
        made._text = self._text.copy()
        return made

    def _consume_tokens(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            held = self._held
            if held:
                super()._consume_tokens([token])
                self._end_call()
            if self._opening or not held:
                self._text += self._seen.spelled(token)
                self._read()

    def _end_call(self) -> None:
        """Text is free after one."""
        if self._free.several and self._matcher.is_accepting():
            self._begins_with()
            self._held, self._looked = False, 0
            self._text.clear()

    def _renew(self) -> bool:
        if not super()._renew():
            return False
        self._end_call()
        return True

    def _free_mask(self, request: SamplerRow) -> bytes | None:
        if self._held:
            return None
        if self._call is None:
            # The answer follows the thought, so it cannot end within it.
            return without_ends(self._thought_mask(), request)
        if request.params.ignore_eos or len(request.output) < request.params.min_tokens:
            return without_ends(self._seen.all, request)
        return b""

    def _thought_mask(self) -> bytes:
        """Without tokens that end the thought and begin what the grammar may not allow."""
        assert self._free.thought is not None
        end = self._free.thought.end.encode()
        for length in range(len(end) - 1, 0, -1):
            if self._text.endswith(end[:length]):
                return self._seen.find_beyond(end)[end[length:]]
        return self._seen.all

    def _read(self) -> None:
        """Find where what is under way ends."""
        if self._opening and not self._read_opening():
            return
        if self._thinks and not self._read_thought():
            return
        while not self._held and self._call is not None:
            found = self._call.search(self._text, max(self._looked, len(self._text) - MAX_SEARCHED))
            if found is None:
                return
            start = found.start("held") if "held" in self._call.groupindex else found.end()
            self._held = self._begin_grammar(bytes(self._text[start:]))
            self._looked = found.end()

    def _read_opening(self) -> bool:
        """False while it is not known whether the answer begins with a thought."""
        begun, opening = self._text.lstrip(), self._opening
        if not begun.startswith(opening) and opening.startswith(begun):
            return False
        self._opening = b""
        if begun.startswith(opening):
            del begun[: len(opening)]
            self._text, self._thinks, self._held = begun, True, False
            if self._call is None:
                self._begins_with()
                self._begin_grammar(opening)
        return True

    def _read_thought(self) -> bool:
        """False while it goes on."""
        assert self._free.thought is not None
        end = self._free.thought.end.encode()
        found = self._text.find(end)
        if found < 0:
            del self._text[: max(0, len(self._text) - len(end) + 1)]
            return False
        del self._text[: found + len(end)]
        self._thinks = False
        if self._call is None:
            self._held = True
            if not self._begin_grammar(bytes(self._text.lstrip())):
                self.fault = "what follows the thought is not of it"
        return True

    def _begin_grammar(self, text: bytes) -> bool:
        """Whether the grammar goes on with ``text``; it is at its beginning where it does not."""
        tokens: list[int] = []
        marks = self._free.special
        pieces = (
            re.split(b"(" + b"|".join(re.escape(control_token.encode()) for control_token in marks) + b")", text)
            if marks
            else [text]
        )
        for piece in pieces:
            special = marks.get(piece.decode(errors="replace"))
            tokens += self._grammar.spell_text(piece) if special is None else [special]
        return self._begins_with([*self._since, *tokens])
