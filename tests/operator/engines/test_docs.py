"""``docs/engines.md`` has a row for each setting of an engine, as the adapters treat it."""

from pathlib import Path

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.api.extra_args import fields_of_settings
from paternoster_operator.api.types.engine import Engine
from paternoster_operator.engines.vllm_arguments import ELSEWHERE, FLAGS, OWNED, REFUSALS

PAGE = Path(__file__).resolve().parents[3] / "docs/engines.md"
HEAD = "| field or setting | on vLLM |\n|---|---|\n"


def render_rows() -> list[str]:
    """A row for each field that a manifest has, then for what the operator sets itself."""
    fields = fields_of_settings(Engine)
    flags: dict[str, list[str]] = {}
    for flag, field in OWNED.items():
        flags.setdefault(field, []).append(f"`--{flag}`")
    refused = {refusal.field: refusal for refusal in REFUSALS}
    rows: dict[str, list[str]] = {}
    for setting in EngineArgs.model_fields:
        field = fields.get(setting) or setting
        parts = rows.setdefault(field, [])
        if setting in FLAGS:
            parts.append(", ".join(flags.get(field, [f"`--{setting}`"])))
        if setting in ELSEWHERE:
            parts.append(ELSEWHERE[setting])
    for field, refusal in refused.items():
        allowed = refusal.allowed if isinstance(refusal.allowed, list) and refusal.allowed else [refusal.allowed]
        allowed = [str(value).lower() if isinstance(value, bool) else value for value in allowed]
        values = " or ".join("unset" if value in (None, []) else f"`{value}`" for value in allowed)
        rows.setdefault(field, []).append(f"must be {values}: {refusal.reason}")
    return [f"| `{field}` | {'; '.join(dict.fromkeys(parts))} |" for field, parts in sorted(rows.items())]


def test_the_table_is_what_the_adapters_do() -> None:
    expected = HEAD + "\n".join(render_rows()) + "\n"
    assert expected in PAGE.read_text(encoding="utf-8"), f"docs/engines.md needs:\n\n{expected}"
