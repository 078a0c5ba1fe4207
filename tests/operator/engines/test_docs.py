"""``docs/engines.md`` has a row for each setting of an engine, as the adapters treat it."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.api.extra_args import fields_of_settings
from paternoster_operator.api.types.engine import Engine
from paternoster_operator.engines import openai_arguments, sglang_arguments, vllm_arguments
from paternoster_operator.engines.adapter import Refusal

PAGE = Path(__file__).resolve().parents[3] / "docs/engines.md"
HEAD = "| field or setting | on {} |\n|---|---|\n"


def render_rows(
    refusals: Sequence[Refusal], flags: Mapping[str, str], passed: Collection[str], elsewhere: Mapping[str, str]
) -> list[str]:
    """A row for each field that a manifest has, then for what the operator sets itself.

    ``flags``: fields by the flag that they set; ``passed``: settings that are flags; ``elsewhere``: what becomes of the
    others.
    """
    fields = fields_of_settings(Engine)
    flags_of: dict[str, list[str]] = {}
    for flag, field in flags.items():
        flags_of.setdefault(field, []).append(f"`--{flag}`")
    refused = {refusal.field: refusal for refusal in refusals}
    rows: dict[str, list[str]] = {}
    for setting in EngineArgs.model_fields:
        field = fields.get(setting) or setting
        parts = rows.setdefault(field, [])
        if setting in passed:
            parts.append(", ".join(flags_of.get(field, [f"`--{setting}`"])))
        if setting in elsewhere:
            parts.append(elsewhere[setting])
    for field, refusal in refused.items():
        allowed = refusal.allowed if isinstance(refusal.allowed, list) and refusal.allowed else [refusal.allowed]
        allowed = [str(value).lower() if isinstance(value, bool) else value for value in allowed]
        values = " or ".join("unset" if value in (None, []) else f"`{value}`" for value in allowed)
        rows.setdefault(field, []).append(f"must be {values}: {refusal.reason}")
    return [f"| `{field}` | {'; '.join(dict.fromkeys(parts))} |" for field, parts in sorted(rows.items())]


TABLES = {
    "vLLM": render_rows(vllm_arguments.REFUSALS, vllm_arguments.OWNED, vllm_arguments.FLAGS, vllm_arguments.ELSEWHERE),
    "SGLang": render_rows(
        sglang_arguments.REFUSALS, sglang_arguments.OWNED, sglang_arguments.FLAGS, sglang_arguments.ELSEWHERE
    ),
    "a server of the OpenAI API": render_rows(openai_arguments.REFUSALS, {}, (), openai_arguments.HONOURED),
}


@pytest.mark.parametrize("engine", TABLES)
def test_the_table_is_what_the_adapter_does(engine: str) -> None:
    expected = HEAD.format(engine) + "\n".join(TABLES[engine]) + "\n"
    assert expected in PAGE.read_text(encoding="utf-8"), f"docs/engines.md needs:\n\n{expected}"
