"""Regular expressions of tokenizer files: whether they take a time in proportion to any text. Pure.

The library runs them with Oniguruma, which backtracks: ``(a+)+b`` takes exponential time on ``aaaa``, and ``\\s*x`` the
square of a run of spaces. A pattern passes that is an alternation of sequences in which

- one character or class at a time is repeated without bound, never what has a repetition in it, and
- after the first such repetition nothing can fail (``\\p{L}+[\\r\\n]*``), or only one character, class or lookaround
  can (``\\s*[\\r\\n]+``), where the next alternative matches the run that was read in vain (``\\s+``), so that each run
  is read a few times at most.

All that popular tokenizers have is so, but for the patterns of ``BOUNDED``.
"""

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

UNBOUNDED = 10**9
LONGEST = 16_384
"""Characters of a pattern."""
MOST_WAYS = 8_192
"""In which the bounded parts of one alternative may match, and characters that bounded repetitions read."""
DEEPEST = 20
"""Groups in one another."""
BOUNDED = {
    # DeepSeek LLM: the same matches, each run of spaces read once.
    r"\s+$": r"(?<!\s)\s+$",
    # Cohere and SuperBPE group digits by three from the right: the square of a run of digits; here of at most 300.
    r"\d{1,3}(?=(?:\d{3})*\b)": r"\d{1,3}(?=(?:\d{3}){0,100}\b)",
    r"(?=(\d{3})+(?!\d))": r"(?=(\d{3}){1,100}(?!\d))",
    # EXAONE: letters with marks, and words with single spaces; no two of its repetitions can read the same character.
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
    r"|\s*[\r\n]|\s+(?!\S)|\s+": None,
    # Jais 2: each run of spaces is read again for each 512 of them.
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)"
    r"|\s{1,2}(?!\S)|\s{1}": None,
    # Chameleon: no run has the character that begins a match.
    "<sentinel:[0-9]+>": None,
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z": None,
}
"""Patterns of models' own files that do not pass, and what is run instead of each; None for the pattern itself."""
_REPEAT = re.compile(r"\{(\d{0,6})(,?)(\d{0,6})\}")
_ZERO_WIDTH = frozenset("bBAzZ")
_LITERAL = frozenset("pPxudDsSwWhHnrtfvae")
"""Letters that, after a backslash, stand for one character or a class."""


class PatternError(Exception):
    """The pattern may take too long; the text says what is in it."""


@dataclass(frozen=True, slots=True)
class _Item:
    """An atom repeated ``least`` to ``most`` times."""

    kind: Literal["character", "group", "around", "zero"]
    text: str
    least: int = 1
    most: int = 1
    inner: "tuple[tuple[_Item, ...], ...]" = ()
    """Alternatives of a group."""

    @property
    def endless(self) -> bool:
        return self.most == UNBOUNDED

    @property
    def is_plain_group(self) -> bool:
        return self.kind == "group" and self.least == self.most == 1

    @property
    def can_fail(self) -> bool:
        return self.least > 0 and not (self.kind == "group" and _least_width(self.inner) == 0 and not self.endless)


_Sequence = tuple[_Item, ...]


def check_pattern(pattern: str) -> int:
    """Return the fewest characters that a match has; raises :class:`PatternError`."""
    alternatives = _PatternParser(pattern).parse()
    while len(alternatives) == 1 and len(alternatives[0]) == 1 and alternatives[0][0].is_plain_group:
        alternatives = alternatives[0][0].inner
    tails = [_find_tail(alternative) for alternative in alternatives]
    for i, tail in enumerate(tails):
        if tail is not None and tail[1]:
            # Those between read the run as well: a shorter match would let it be read in vain again.
            after = next((other for other in tails[i + 1 :] if other != (tail[0], True)), None)
            if after != (tail[0], False):
                raise PatternError(f"what follows {tail[0]!r} repeated may fail, and {tail[0]}+ is not tried next")
    for alternative in alternatives:
        if (ways := _count_ways(alternative)) > MOST_WAYS:
            raise PatternError(f"an alternative has {ways} ways to match, more than {MOST_WAYS}")
    return _least_width(alternatives)


def _find_tail(items: _Sequence) -> tuple[str, bool] | None:
    """The first endless repetition of an alternative, and whether it can be read in vain; None without one.

    A repetition behind something mandatory gets another name: other alternatives do not match its run.
    """
    before = tuple(takewhile(lambda item: not item.endless, items))
    if len(before) == len(items):
        for item in items:
            _bounded_items(item)
        return None
    for item in items:
        if item.endless and item.kind != "character":
            raise PatternError(f"{item.text!r} is repeated without bound: only a character or a class may be")
        if not item.endless:
            _bounded_items(item)
    first, after = items[len(before)], items[len(before) + 1 :]
    optional = tuple(takewhile(lambda item: not item.can_fail, after))
    fails = len(optional) < len(after)
    if fails and (optional or any(item.can_fail for item in after[1:]) or after[0].kind == "group"):
        raise PatternError(f"what follows {first.text!r} repeated may fail in more than one way")
    led = "".join(item.text for item in before if item.can_fail)
    return (f"{led}{first.text}" if led else first.text), fails


def _bounded_items(item: _Item) -> None:
    for alternative in item.inner:
        for inner in alternative:
            if inner.endless:
                raise PatternError(f"{item.text!r} has a repetition without bound in a group")
            _bounded_items(inner)


def _least_width(alternatives: tuple[_Sequence, ...]) -> int:
    return min((sum(map(_width_of, items)) for items in alternatives), default=0)


def _width_of(item: _Item) -> int:
    if item.kind == "character":
        return item.least
    return item.least * _least_width(item.inner) if item.kind == "group" else 0


def _count_ways(items: _Sequence) -> int:
    """How many ways, and how many characters read, the bounded items have at most together."""
    ways, read = 1, 0
    for item in items:
        if item.endless:
            continue
        inner = max(1, sum(map(_count_ways, item.inner)))
        of_inner: int = inner ** min(item.most, 64)
        ways *= min(MOST_WAYS + 1, of_inner * (item.most - item.least + 1))
        read += item.most * inner
        if ways > MOST_WAYS or read > MOST_WAYS:
            return max(ways, read)
    return max(ways, read)


class _PatternParser:
    """Parser of the part of Oniguruma's syntax that tokenizers use; raises :class:`PatternError` for anything else."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > LONGEST:
            raise PatternError(f"it has {len(pattern)} characters, more than {LONGEST}")
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def parse(self) -> tuple[_Sequence, ...]:
        alternatives = self._parse_alternatives()
        if self._at < len(self._pattern):
            raise PatternError("it has a ')' too many")
        return alternatives

    def _parse_alternatives(self) -> tuple[_Sequence, ...]:
        self._depth += 1
        if self._depth > DEEPEST:
            raise PatternError(f"it has more than {DEEPEST} groups in one another")
        found: list[_Sequence] = []
        items: list[_Item] = []
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._pattern[self._at] == "|":
                self._at += 1
                found.append(tuple(items))
                items = []
            else:
                items.append(self._parse_item())
        self._depth -= 1
        return (*found, tuple(items))

    def _parse_item(self) -> _Item:
        start = self._at
        kind, inner = self._parse_atom()
        text = self._pattern[start : self._at]
        least, most = self._parse_repeat()
        if most != 1 and kind in ("around", "zero"):
            raise PatternError(f"{text!r} is repeated, and matches no character")
        return _Item(kind, text, least, most, inner)

    def _parse_atom(self) -> tuple[Literal["character", "group", "around", "zero"], tuple[_Sequence, ...]]:
        character = self._pattern[self._at]
        self._at += 1
        if character == "(":
            return self._parse_group()
        if character == "[":
            self._skip_class()
        elif character == "\\":
            return self._parse_escape(), ()
        elif character in "^$":
            return "zero", ()
        elif character in "*+?":
            raise PatternError(f"it has a {character!r} that repeats nothing")
        return "character", ()

    def _parse_group(self) -> tuple[Literal["group", "around"], tuple[_Sequence, ...]]:
        opening = re.compile(r"\?(?:<?[=!]|[im]*(?:-[im]+)?:|>)|(?!\?)").match(self._pattern, self._at)
        if opening is None:
            raise PatternError(f"it has {self._pattern[self._at - 1 : self._at + 3]!r}, which is not built in")
        self._at = opening.end()
        inner = self._parse_alternatives()
        if self._pattern[self._at : self._at + 1] != ")":
            raise PatternError("it has a '(' without a ')'")
        self._at += 1
        around = opening[0].rstrip("=!") in ("?", "?<") and opening[0] != "?"
        return ("around" if around and opening[0][-1] in "=!" else "group"), inner

    def _skip_class(self) -> None:
        """To the end of a class, which may have others in it."""
        depth, start = 1, self._at - 1
        while depth:
            if self._pattern[self._at : self._at + 1] == "^":
                self._at += 1
            if self._pattern[self._at : self._at + 1] == "]" and self._pattern[self._at - 1] in "[^":
                self._at += 1  # the first of a class is a character
            while self._at < len(self._pattern) and self._pattern[self._at] not in "[]":
                self._at += 2 if self._pattern[self._at] == "\\" else 1
            if self._at >= len(self._pattern) or depth > DEEPEST:
                raise PatternError(f"the class {self._pattern[start : start + 20]!r} does not end")
            depth += 1 if self._pattern[self._at] == "[" else -1
            self._at += 1

    def _parse_escape(self) -> Literal["character", "zero"]:
        following = self._pattern[self._at : self._at + 1]
        self._at += 1
        if following in _ZERO_WIDTH and following:
            return "zero"
        if not following or (following.isalnum() and following not in _LITERAL):
            raise PatternError(f"it has '\\{following}', which is not built in")
        if following in "pPxu":
            braces = re.compile(r"\{\^?[\w ]{1,64}\}|[0-9A-Fa-f]{2,4}").match(self._pattern, self._at)
            if braces is None:
                raise PatternError(f"it has '\\{following}' without the name of a class or a number")
            self._at = self._at + 2 if following == "x" and braces[0][0] != "{" else braces.end()
        return "character"

    def _parse_repeat(self) -> tuple[int, int]:
        """The quantifier at this place; 1 to 1 without one."""
        character = self._pattern[self._at : self._at + 1]
        if character in ("*", "+", "?") and character:
            self._at += 1
            least, most = {"*": (0, UNBOUNDED), "+": (1, UNBOUNDED), "?": (0, 1)}[character]
        elif (counted := _REPEAT.match(self._pattern, self._at)) and (counted[1] or counted[3]):
            self._at = counted.end()
            least = int(counted[1] or 0)
            most = (int(counted[3]) if counted[3] else UNBOUNDED) if counted[2] else least
        else:
            return 1, 1
        if self._pattern.startswith("?", self._at) and most == UNBOUNDED:
            raise PatternError("it has a lazy repetition without bound")
        if self._pattern.startswith(("?", "+"), self._at):
            self._at += 1  # lazy or possessive
        if self._pattern.startswith(("*", "+", "?"), self._at):
            raise PatternError("it has a repetition of a repetition")
        return least, most
