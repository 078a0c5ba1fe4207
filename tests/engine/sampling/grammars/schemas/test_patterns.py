"""Expressions without look-around are of the same texts as Python finds the original in."""

import json
import re
from contextlib import suppress

import pytest
from llguidance import LLMatcher, LLTokenizer

from paternoster_engine.sampling.grammars.schemas.formats import FORMATS
from paternoster_engine.sampling.grammars.schemas.patterns import PIECE, UnsupportedPattern, without_look_around

TEXTS = (
    "", "a", "ab", "ba", "admin", "admins", "adm", "root", "a1", "abcd1", "12345", "1", "-", "-.", "+1.5", "0", "..",
    "a..b", "a.b.c", ".a", "foo", "a foo b", "foobar", "xfoo", "foo!", "-foo", "Aa1!", "x@y.co", ".x@y.co", "x..y@z.co",
    "x\ny", "[", "]", "a-b", "a--b", "-a", "foo-bar", "é", "fooé", "aab", "aabb", "zz",
)  # fmt: skip
PATTERNS = (
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", r"\bfoo\b", r"^\bfoo", r"foo\b$", r"^(?=.*\d)(?=.*[a-z]).{4,8}$",
    r"^(?!admin)[a-z]+$", r"^(?!(?:admin|root)$)[a-z]+$", r"^(?!admin|root)[a-z]+$", r"^(?=.{1,3}$)[a-z]+|\d+$",
    r"^(?=a|b)[a-z]+$", r"^(?!.*ab)[a-z]*$", r"^(?!.*--)(?!-)[a-z-]+$", r"^(?![a-z]+$)", r"^(?!.*z$)[a-z]+$",
    r"^(?!\d)\w+$", r"^(?=[\s\S]*[ab])[a-z]+$", r"^a(?:b|c)\/?$", r"^[\[\]a]$", "a|b\n",
)  # fmt: skip


def _is_of(expression: str, text: str, vocabulary: LLTokenizer) -> bool:
    schema = f'{{"type": "string", "pattern": {re.sub(chr(10), "", _quoted(expression))}}}'
    matcher = LLMatcher(vocabulary, LLMatcher.grammar_from_json_schema(schema))
    tokens = list(_quoted(text).encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_same_texts(pattern: str) -> None:
    vocabulary = LLTokenizer("byte")
    options = without_look_around(pattern)
    for text in TEXTS:
        if "\n" in text and "(?!.*" in pattern:
            # Nothing that is forbidden is allowed behind a line's end either.
            continue
        found = any(all(_is_of(one, text, vocabulary) for one in option) for option in options)
        assert found == bool(re.search(pattern, text, re.ASCII)), (pattern, text, options)


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "(?<=a)b", "(?<!a)b", r"a(?=b)c", r"a\b.", r"\Bfoo", "^(?!a+b)c", r"(?:(?=a)b)*", "^(?=a)+b"]
)
def test_what_is_not_said_in_other_words(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        without_look_around(pattern)


@pytest.mark.parametrize("begin", ["[", "(", r"\p{", r"\u{", r"\k<", "(?<", "a{1", "^(?!", "|"])
def test_what_never_ends_is_read_once(begin: str) -> None:
    """A megabyte of twice the size would take four times as long if each beginning were read to the end."""
    pieces = PIECE.findall(begin * (2**20 // len(begin)))
    assert "".join(pieces) == begin * (2**20 // len(begin))
    with suppress(UnsupportedPattern):
        without_look_around(begin * 20_000)


@pytest.mark.parametrize(
    ("name", "of_it", "none"),
    [
        ("date", ["2024-02-29", "2000-02-29", "0001-01-31"], ["2023-02-29", "1900-02-29", "0000-01-01", "2024-04-31"]),
        ("time", ["23:59:59Z", "00:00:00.5+01:00"], ["24:00:00Z", "23:59:60Z", "12:00:00"]),
        ("ipv4network", ["10.0.0.0/8", "10.16.0.0/12", "1.2.3.4", "0.0.0.0/0"], ["10.0.0.1/8", "10.8.0.0/12"]),
        ("ipv6", ["::", "::1", "2001:db8::1", "1:2:3:4:5:6:7:8"], ["1::2::3", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9"]),
        ("ipv6network", ["2001:db8::/32", "::/0", "::1"], ["2001:db8::1/32"]),
        ("uuid4", ["6ba7b810-9dad-41d1-80b4-00c04fd430c8"], ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"]),
        ("base64", ["", "aGk=", "aGVq", "aA=="], ["a", "aGk", "a-b="]),
        ("email", ["a.b@c.de", "first.m.last+tag@mail-1.example.org"], ["a@b", ".a@b.c", "a..b@c.de", "a@-b.c"]),
        ("json-pointer", ["", "/a~1b/0"], ["a", "/~2"]),
        ("duration", ["P1D", "PT1H30M", "P1Y2M3DT4H", "P2W"], ["P", "PT", "P1H", "1D"]),
        ("color", ["#fff", "#A0b1c2", "red"], ["#ff", "reddish"]),
        ("mac", ["00:1A:2b:3c:4d:5e"], ["00:1A:2b:3c:4d"]),
        ("multi-host-uri", ["postgres://u:p@a.b:5432,c:1/db"], ["a.b", "postgres://a:70000"]),
    ],
)
def test_formats(name: str, of_it: list[str], none: list[str]) -> None:
    for text in of_it:
        assert re.fullmatch(FORMATS[name], text), text
    for text in none:
        assert not re.fullmatch(FORMATS[name], text), text
