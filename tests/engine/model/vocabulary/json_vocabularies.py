"""Small tokenizer.json files of each kind, as models' own have them."""

import json

from tests.engine.model.vocabulary.vocabularies import BYTES, CONTROL, OWN, SPACE, byte_level, corpus, pieces
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Pattern of Qwen's own tokenizer.json."""
PREPEND = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
FROM_PIECES = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]


def _of_bytes(cutter: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None) -> Tokenizer:
    tokens, merges = byte_level()
    vocabulary = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges]))
    backend.pre_tokenizer, backend.decoder = cutter, decoders.ByteLevel()
    if normalizer is not None:
        backend.normalizer = normalizer
    return backend


def _of_pieces(*, strips: bool) -> Tokenizer:
    """SentencePiece's BPE; without what is done to text before."""
    made = pieces()
    known_pieces = set(made)
    merges = [
        (piece[:at], piece[at:])
        for piece in made
        for at in range(1, len(piece))
        if piece[:at] in known_pieces and piece[at:] in known_pieces
    ]
    vocabulary = {token: i for i, token in enumerate([*CONTROL[:3], *BYTES, *made])}
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.decoder = decoders.Sequence([*FROM_PIECES, decoders.Strip(" ", 1, 0)] if strips else FROM_PIECES)
    return backend


def _unigram() -> Tokenizer:
    """With bytes for what no piece has."""
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=1200, show_progress=False, special_tokens=[], unk_token="<unk>")
    trained.train_from_iterator(corpus(1500, seed=1), trainer)
    made = [tuple(item) for item in json.loads(trained.to_str())["model"]["vocab"] if item[0] != "<unk>"]
    first = [(token, 0.0) for token in CONTROL[:3]] + [(token, -100.0) for token in BYTES]
    backend = Tokenizer(models.Unigram([*first, *made], unk_id=0, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Sequence([*FROM_PIECES, decoders.Strip(" ", 1, 0)])
    return backend


def _llama_json() -> Tokenizer:
    backend = _of_pieces(strips=True)
    backend.normalizer = PREPEND
    return backend


def _mistral_json() -> Tokenizer:
    """Tokenizer that transformers writes for Llama 2 and Mistral today: the space comes with the first piece alone."""
    backend = _of_pieces(strips=True)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return backend


def _gemma_json() -> Tokenizer:
    backend = _of_pieces(strips=False)
    backend.normalizer = normalizers.Replace(" ", SPACE)
    return backend


def _word_pieces() -> Tokenizer:
    """BERT's; with most of the alphabet unknown, as some scripts are to its own."""
    backend = Tokenizer(models.WordPiece(unk_token="<unk>"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=1200, limit_alphabet=300, show_progress=False, special_tokens=CONTROL[:3]
    )
    backend.train_from_iterator(corpus(1500, seed=1), trainer)
    backend.decoder = decoders.WordPiece(cleanup=False)
    return backend


_SPLIT = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)
JSON_KINDS = {
    "gpt-2": lambda: _of_bytes(pre_tokenizers.ByteLevel(add_prefix_space=False), None),
    "qwen2": lambda: _of_bytes(_SPLIT, normalizers.NFC()),
    "llama": _llama_json,
    "mistral": _mistral_json,
    "gemma": _gemma_json,
    "unigram": _unigram,
    "word pieces": _word_pieces,
}
"""Each as a model's own tokenizer.json has it."""
LOSES_TEXT = ("word pieces",)
"""Case, accents, spaces, and words that have a character of no piece."""
LOSES_A_FIRST_SPACE = ("mistral", "unigram")
"""The library puts no space before text that begins with one."""

SPACE_BEHIND_TOKENS = ("llama", "unigram")
"""And with these also behind each token that is looked for in the text."""


def json_tokenizer(kind: str) -> Tokenizer:
    """With control and own tokens."""
    backend = JSON_KINDS[kind]()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in CONTROL])
    backend.add_tokens([AddedToken(token, normalized=False) for token in OWN])
    return backend
