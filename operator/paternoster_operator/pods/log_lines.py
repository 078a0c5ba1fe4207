"""The line of an engine's log that says why it ended: what comes last is of its shutdown. Pure."""

import re
from collections.abc import Mapping, Sequence

from paternoster_operator.engines.adapter import RuntimeType

LONGEST_LINE = 500
"""Characters of a line that are read."""
_OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|\bMemoryError\b|std::bad_alloc|(?:can't|cannot|failed to|unable to) allocate|"
    r"No available memory for the cache blocks|less than desired (?:GPU|CPU) memory utilization",
    re.IGNORECASE,
)
_DEATHS: Mapping[RuntimeType, str] = {
    RuntimeType.VLLM: r"(?:Worker|Engine core|RayWorker)\s?[Pp]roc \S+ died unexpectedly|died with exit code -?\d+",
    RuntimeType.SGLANG: r"Rank \d+ scheduler is dead|Scheduler hit an exception|crashed with exit code -?\d+|"
    r"Exit code: -?\d+",
    RuntimeType.OPENAI: r"GGML_ASSERT|terminate called after|error loading model|failed to load model",
}
"""Patterns by which each engine logs that a process of it died, or that it could not start."""
_EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt)\b: \S")
_CONSEQUENCE = re.compile(r"EngineDeadError|Engine core initialization failed|Executor failed\.")
"""Exceptions that another one of the same log is the cause of."""
_PREFIX = re.compile(
    r"^(?:\x1b\[[\d;]*m)*(?:\([\w-]+(?: pid=\d+)?\) )?(?:\x1b\[[\d;]*m)*"
    r"(?:(?:ERROR|CRITICAL|FATAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[[^\]]{1,80}\] |\[20\d\d-[^\]]{1,60}\] )?"
)
"""Process, level, time and place, as vLLM and SGLang write them before each line."""
_ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL|error:|E)\b")


def find_cause_line(type_: RuntimeType, lines: Sequence[str]) -> str:
    """The line that says most of why the engine ended, without its prefix; the last one where none says it.

    Memory that ran out comes first, then the end of one of its processes, then the last exception that is not the
    consequence of another, then any other exception or error. Empty where there is no line.
    """
    if type_ is RuntimeType.PATERNOSTER:  # whose last line it is
        return lines[-1].strip() if lines else ""
    bare = [(line[:LONGEST_LINE], _PREFIX.sub("", line[:LONGEST_LINE]).strip()) for line in lines]
    death = re.compile(_DEATHS[type_])
    ranks = [
        [text for _, text in bare if _OUT_OF_MEMORY.search(text)],
        [text for _, text in bare if death.search(text)],
        [text for _, text in bare if _EXCEPTION.match(text) and not _CONSEQUENCE.search(text)],
        [text for _, text in bare if _EXCEPTION.match(text)],
        [text for line, text in bare if _ERROR.search(line) and text],
        [text for _, text in bare if text],
    ]
    return next((found[-1] for found in ranks if found), "")


def is_out_of_memory(line: str) -> bool:
    """Whether a line says that memory, of a device or of the host, ran out."""
    return _OUT_OF_MEMORY.search(line) is not None
