"""Arguments, owned flags and refusals of engines of other types, from the table of engine settings."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import zip_longest
from types import MappingProxyType

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.row import SettingRow, Translation, list_rows
from paternoster_operator.engines.adapter import Refusal, RuntimeType

_FLAG_ORDER = (
    "model", "served_model_name", "host", "port", "chat_template", "generation_config", "dtype",
    "tensor_parallel_size", "max_num_seqs", "max_model_len", "max_batched_tokens", "max_queued_requests",
    "kv_cache_memory", "watermark_percent", "block_size", "kv_cache_dtype", "prefix_cache", "order", "drain_timeout",
)  # fmt: skip
"""Another order of a container's args is another pod template, which restarts every pod: new settings go last."""


@cache
def list_translations(
    engine: RuntimeType, first: Sequence[str] = _FLAG_ORDER
) -> tuple[tuple[SettingRow, Translation], ...]:
    """The engine's translation of each setting, those named in ``first`` before the others."""
    return tuple((row, getattr(row.engines, engine.lower())) for row in list_rows(EngineArgs, first))


def write_flags(settings: EngineArgs, engine: RuntimeType) -> list[str]:
    """The flags of ``settings``; none of those that a manifest leaves to the engine."""
    words: list[str] = []
    for row, translation in list_translations(engine):
        if row.name in settings.model_fields_set or row.field_default is not None:
            words += translation.write_flag(getattr(settings, row.name), row.default)
    return words


def write_variables(settings: EngineArgs) -> dict[str, str]:
    """Variables that the flags of a server of the OpenAI API may name."""
    return {
        translation.variable: str(translation.value(getattr(settings, row.name)))
        for row, translation in list_translations(RuntimeType.OPENAI)
        if translation.variable
    }


def map_owned_flags(engine: RuntimeType) -> dict[str, str]:
    """The field that sets each flag, by the name that :func:`find_owned` looks for: with hyphens."""
    return {
        flag.replace("_", "-"): row.field.path
        for row, translation in list_translations(engine)
        if row.field is not None and row.field.path
        for flag in (translation.flag, *translation.other_flags)
        if flag
    }


def replace_flags(words: Sequence[str], **values: object) -> list[str]:
    """``words`` with these flags at their end, in place of such as they have with a word behind each."""
    flags = {f"--{name.replace('_', '-')}": str(value) for name, value in values.items()}
    owned = {place + after for place, word in enumerate(words) if word in flags for after in (0, 1)}
    others = [word for place, word in enumerate(words) if place not in owned]
    return [*others, *(word for flag in flags.items() for word in flag)]


def list_refusals(engine: RuntimeType, image: str) -> list[Refusal]:
    """Fields that the engine refuses; ``image``: the kind of image that ``engine.runtime.image`` is."""
    refusals = [
        Refusal(row.field.path, row.field_default if each.allowed is ... else each.allowed, each.refused)
        for row, each in list_translations(engine, EngineArgs.field_order)
        if row.field is not None and each.refused
    ]
    at = next(place for place, refusal in enumerate(refusals) if refusal.field.startswith("engine."))
    refusals[at:at] = [
        Refusal("engine.image", None, f"use engine.runtime.image, an image of {image}"),
        Refusal("engine.extraArgs", [], "they are flags of paternoster serve: use engine.runtime.args"),
    ]
    return refusals


def find_owned(
    args: Sequence[str],
    owned: Mapping[str, str],
    operators: Mapping[str, str],
    short: Mapping[str, str] = MappingProxyType({}),
    harmless: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> list[str]:
    """A line for each of ``args`` that sets what a field of the resource, or the operator, sets.

    ``owned`` and ``operators`` are such flags, with the field or the reason; ``short``: other names of flags;
    ``harmless``: values with which a flag is none of them.
    """

    def describe(word: str, behind: str) -> str | None:
        if not word.startswith("-"):
            return None
        before, equals, value = word.partition("=")
        name = before.lstrip("-").replace("_", "-").partition(".")[0]
        # The engine's parser completes a name that is cut short. One of one letter may have its value behind it.
        names = (*owned, *operators) if word.startswith("--") else tuple(short)
        found = name if name in names else next((each for each in names if name and each.startswith(name)), name[:1])
        if not word.startswith("--"):
            found = short.get(found, "")
        if found not in {*owned, *operators} or (value if equals else behind) in harmless.get(found, ()):
            return None
        why = f"use {owned[found]}" if found in owned else operators[found]
        return f"{before[:60]} must not be here: {why}"

    pairs = zip_longest(args, args[1:], fillvalue="")
    return [line for word, behind in pairs if (line := describe(word, behind))]
