"""Which regular expressions of tokenizer files are run: those that models publish, and none that backtracks long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from paternoster_engine.model.vocabulary.patterns import BOUNDED, PatternError, check_pattern

ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}"
LEAD = r"[^\r\n\p{L}\p{N}]?"
PUBLISHED = {
    "GPT-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "Llama 3, GLM-4, OLMo 2": rf"{ENDINGS}|{LEAD}\p{{L}}+|\p{{N}}{{1,3}}|{SIGNS}|{REST}",
    "Qwen 2 and 3": rf"{ENDINGS}|{LEAD}\p{{L}}+|\p{{N}}|{SIGNS}|{REST}",
    "Qwen 3.5": rf"{ENDINGS}|{LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{REST}",
    "gpt-oss, Llama 4": rf"{LEAD}{UPPER}]*{LOWER}]+{ENDINGS}?|{LEAD}{UPPER}]+{LOWER}]*{ENDINGS}?|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{REST}",
    "Mistral Nemo": rf"{LEAD}{UPPER}]*{LOWER}]+|{LEAD}{UPPER}]+{LOWER}]*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{REST}",
    "Kimi K2": rf"[\p{{Han}}]+|{LEAD}{UPPER}&&[^\p{{Han}}]]*{LOWER}&&[^\p{{Han}}]]+{ENDINGS}?"
    rf"|{LEAD}{UPPER}&&[^\p{{Han}}]]+{LOWER}&&[^\p{{Han}}]]*{ENDINGS}?|\p{{N}}{{1,3}}|{SIGNS}|{REST}",
    "DeepSeek V3": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    "DeepSeek V3's ideographs": r"[一-龥぀-ゟ゠-ヿ]+",
    "DeepSeek Coder": r"\s?\p{L}+",
    "DeepSeek LLM's signs": r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "digits": r"\p{N}{1,3}",
    "lines": "[\r\n]",
    "Gemma 4": r"[^\n]+|[\n]+",
    "Falcon": r"[0-9][0-9][0-9]",
    "BLOOM": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "Ling": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "Seed-Coder": rf"{ENDINGS}|{LEAD}\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{REST}",
    "CLIP": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "XLM-R": " {2,}",
    "NLLB": r"[\n\r\t]|\s{2,}",
    "in a group": rf"(?:{REST})",
    **{f"known {i}": pattern for i, pattern in enumerate(BOUNDED)},
}
HOSTILE = {
    r"(a+)+b": "repeated without bound: only a character or a class",
    r"(a|a)*b": "repeated without bound: only a character or a class",
    r"(\w+\s?)*$": "repeated without bound: only a character or a class",
    r"(?:a?){30}b": "ways to match",
    "a?" * 40 + "a" * 40: "ways to match",
    r"((a{1,60}){1,60}){1,60}": "ways to match",
    r"a{1,100000}b": "ways to match",
    r"\s*[xy]": r"may fail, and \\s\+ is not tried next",
    r"\s*[xy]|\s|\s+": r"may fail, and \\s\+ is not tried next",
    r"\s*[xy]|\s+?(?=\s)|\s+": "a lazy repetition",
    r"x*y*z": "may fail in more than one way",
    r".*.*=.*": "may fail in more than one way",
    r"(.*)(.*)x": "repetition without bound in a group",
    r"(?=(a+)+b)": "repetition without bound in a group",
    r"(a)\1+": r"has '\\1', which is not built in",
    r"\k<n>": "not built in",
    r"(?<n>a)": "not built in",
    r"(?~a)": "not built in",
    r"(?>a)(?(1)b)": "not built in",
    "a**": "a repetition of a repetition",
    "(" * 30 + "a" + ")" * 30: "more than 20 groups",
    "a" * 20_000: "more than 16384",
    "(": "without a",
    ")": "too many",
    "[a": "does not end",
    "[[" * 40: "does not end",
    "*": "repeats nothing",
    "\\": "not built in",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_models_publish_is_run(name: str) -> None:
    pattern = PUBLISHED[name]
    if pattern not in BOUNDED:
        assert check_pattern(pattern) >= 1
    assert pre_tokenizers.Split(Regex(BOUNDED.get(pattern) or pattern), "isolated").pre_tokenize_str(
        "Ein Satz: 12345.\n"
    )


@pytest.mark.parametrize("pattern", HOSTILE)
def test_what_backtracks_without_end_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match=HOSTILE[pattern]) as refused:
        check_pattern(pattern)
    assert len(str(refused.value)) < 300


@given(st.text(alphabet=r"ab\ps{}()[]?*+|,1:<=!&^-.", max_size=30))
def test_any_text_passes_or_is_refused(pattern: str) -> None:
    try:
        least = check_pattern(pattern)
    except PatternError:
        return
    assert least >= 0


@given(st.text(alphabet=" \n\ta1", max_size=30))
def test_the_other_pattern_for_spaces_cuts_as_the_models_own(text: str) -> None:
    _same(r"\s+$", text)


@given(st.text(alphabet="12a _", max_size=30), st.integers(0, 297))
def test_the_other_patterns_for_digits_cut_as_the_models_own(text: str, more: int) -> None:
    for pattern in (r"\d{1,3}(?=(?:\d{3})*\b)", r"(?=(\d{3})+(?!\d))"):
        _same(pattern, text)
        _same(pattern, "7" * more)


def _same(pattern: str, text: str) -> None:
    own, other = (
        pre_tokenizers.Split(Regex(each), "isolated").pre_tokenize_str(text) for each in (pattern, BOUNDED[pattern])
    )
    assert own == other
