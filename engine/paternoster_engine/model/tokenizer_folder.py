"""Read the files of a model's folder that define its tokenizer and chat templates."""

from itertools import islice
from typing import Any

from paternoster_engine.model.fields import Fields, shorten_value
from paternoster_engine.model.tokenizer import DEFAULT, TOOL_USE
from paternoster_engine.model.vocabulary.from_json import TokenizerFiles
from paternoster_engine.model.weights.model_folder import ModelFolder

MAX_TEMPLATES = 100
"""Most templates that a note lists."""


def tokenizer_files(folder: ModelFolder, eos_token_ids: Any, rows: int) -> TokenizerFiles:
    """Read the tokenizer's files. Raises :class:`ModelError`.

    ``eos_token_ids``: of the model's other files, None for none. ``rows``: of the model's embedding.
    """
    return TokenizerFiles(
        folder.read_text("tokenizer.json"),
        tokenizer_config=folder.optional_json("tokenizer_config.json"),
        special_tokens_map=folder.optional_json("special_tokens_map.json"),
        added_tokens=folder.optional_json("added_tokens.json"),
        eos_token_ids=eos_token_ids,
        rows=rows,
    )


def chat_template(folder: ModelFolder, files: TokenizerFiles) -> str | None:
    """Read chat_template.jinja, or chat_template.json where tokenizer_config.json has no template.

    Returns None where neither file decides. The order is that of transformers.
    """
    if folder.has_file("chat_template.jinja"):
        return folder.read_text("chat_template.jinja")
    if files.tokenizer_config.get("chat_template") is None and folder.has_file("chat_template.json"):
        fields = Fields(folder.json("chat_template.json"), "chat_template.json")
        return fields.read_text("chat_template", default=None)
    return None


def tool_use_template(folder: ModelFolder) -> str | None:
    """The template of conversations with tools that has a file of its own, as transformers writes it."""
    name = f"additional_chat_templates/{TOOL_USE}.jinja"
    return folder.read_text(name) if folder.has_file(name) else None


def note_of_templates(folder: ModelFolder, files: TokenizerFiles) -> list[str]:
    """Return a note that names the templates beside the used one, if there are any."""
    named = Fields(files.tokenizer_config, "tokenizer_config.json").read_mappings("chat_template") or []
    others = [str(item.get("name")) for item in named]
    others += sorted(
        path.stem for path in islice((folder.path / "additional_chat_templates").glob("*.jinja"), MAX_TEMPLATES)
    )
    unused = [name for name in dict.fromkeys(others) if name not in (DEFAULT, TOOL_USE)]
    return [f"chat templates that are not used: {shorten_value(', '.join(unused))}"] if unused else []
