"""Grammars compiled in a thread of their own, after a process with limits has shown that they can be."""

import signal
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Any

from llguidance import LLTokenizer

from paternoster_engine.limited.process import LimitedProcess, ProcessEnded, ProcessLimits, repeat_if_lost
from paternoster_engine.sampling.grammars.errors import GrammarError, GrammarProcessLost
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.limits import CPU_TIME, MAX_BYTES, MAX_MEMORY, MAX_STACK, WALL_TIME
from paternoster_engine.sampling.grammars.number_bound import NumberBound
from paternoster_engine.sampling.grammars.schemas.rewriting import Unenforced
from paternoster_engine.sampling.grammars.source import KINDS_OF_JSON, GrammarSource, most_items
from paternoster_engine.sampling.grammars.vocabulary import Encode, Vocabulary


class GrammarCompiler:
    """Not thread-safe: one thread owns it. The first grammar starts what :meth:`start` has not."""

    def __init__(self, vocabulary: Callable[[], Vocabulary], encode: Encode) -> None:
        self._make_vocabulary = vocabulary
        self._encode = encode
        self._process: LimitedProcess | None = None

    def compile(self, source: GrammarSource) -> Grammar:
        """Raises :class:`GrammarError`, and :class:`GrammarProcessLost` if the process was ended from outside twice."""
        size = len(source.text.encode()) + len(source.outline.encode())
        if size > MAX_BYTES:
            raise GrammarError(f"it has {size} bytes, of at most {MAX_BYTES}")
        answer = repeat_if_lost(lambda: self._compile_in_process(source), GrammarProcessLost)
        if "error" in answer:
            raise GrammarError(answer["error"])
        # The same work again, so it ends as soon as it did there.
        numbers = self._numbers if source.kind in KINDS_OF_JSON else None
        made = Grammar(self._tokenizer, answer["grammar"], most_items(source), numbers)
        made.unenforced = tuple(Unenforced(tuple(path), *rest) for path, *rest in answer["unenforced"])
        return made

    def start(self) -> None:
        """Start the process and read the vocabulary, here and there, while no request waits.

        Both hold the interpreter's lock, in which nothing else of this process runs, for as long as the vocabulary is
        large. Raises :class:`GrammarProcessLost`.
        """
        self._ensure_process()
        _ = self._tokenizer, self._numbers

    def close(self) -> None:
        """End the process; the next grammar would start another."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return self._make_vocabulary()

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        return self._vocabulary.build_tokenizer(self._encode)

    @cached_property
    def _numbers(self) -> NumberBound:
        return NumberBound(self._vocabulary.tokens)

    def _compile_in_process(self, source: GrammarSource) -> dict[str, Any]:
        process = self._ensure_process()
        try:
            return process.request_answer(source._asdict(), WALL_TIME)
        except ProcessEnded as ended:
            if ended.status in (-signal.SIGKILL, -signal.SIGTERM):
                raise GrammarProcessLost from ended
            over = ended.status == -signal.SIGPROF
            fault = f"takes more than {CPU_TIME:g} s of a processor" if over else "is too large or too deep"
            raise GrammarError(f"it {fault} to compile") from ended

    def _ensure_process(self) -> LimitedProcess:
        if self._process is not None and self._process.alive:
            return self._process
        self.close()
        process = LimitedProcess(
            "paternoster_engine.sampling.grammars.worker", ProcessLimits(CPU_TIME, MAX_MEMORY, MAX_STACK, WALL_TIME)
        )
        vocabulary = self._vocabulary
        tokens = [token.decode("latin-1") for token in vocabulary.tokens]
        given = {"tokens": tokens, "special": vocabulary.special, "ends": vocabulary.ends}
        try:
            process.prepare_process(given, WALL_TIME)
        except ProcessEnded as ended:
            raise GrammarProcessLost from ended
        self._process = process
        return process


class GrammarCache:
    """What became of grammars, the least recently used forgotten first; refusals are kept as well."""

    def __init__(self, most: int) -> None:
        """``most``: bytes that the entries may take together, by estimate."""
        self._most = most
        self._held = 0
        self._entries: OrderedDict[GrammarSource, Grammar | GrammarError] = OrderedDict()

    def get(self, source: GrammarSource) -> Grammar | GrammarError | None:
        found = self._entries.get(source)
        if isinstance(found, Grammar) and found.full:
            del self._entries[source]
            self._held -= _estimate_size(source, found)
            return None
        if found is not None:
            self._entries.move_to_end(source)
        return found

    def put(self, source: GrammarSource, made: Grammar | GrammarError) -> None:
        if source in self._entries or _estimate_size(source, made) > self._most:
            return
        self._entries[source] = made
        self._held += _estimate_size(source, made)
        while self._held > self._most:
            self._held -= _estimate_size(*self._entries.popitem(last=False))


def _estimate_size(source: GrammarSource, made: Grammar | GrammarError) -> int:
    """Bytes that a compiled grammar may grow to.

    Answers add states to a grammar's lexer: most grew by 0.3 MiB, one of wide character classes by 13 MiB; one of
    1.2 MB of text took 24 times that before any answer.
    """
    text = len(source.text) + len(source.outline)
    return 2**20 + 24 * text if isinstance(made, Grammar) else 2**10 + 4 * text
