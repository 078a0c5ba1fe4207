"""Which files of a model's folder say how text becomes tokens."""

from itertools import islice
from typing import Any

from paternoster_engine.model.fields import Fields, shown
from paternoster_engine.model.vocabulary.from_json import TokenizerFiles
from paternoster_engine.model.weights.model_folder import ModelFolder

MOST = 100
"""Templates that are listed."""


def tokenizer_files(folder: ModelFolder, eos_token_ids: Any, rows: int) -> TokenizerFiles:
    """``eos_token_ids``: what the model's other files say, None for nothing. ``rows``: of its embedding.

    Raises :class:`ModelError`.
    """
    return TokenizerFiles(
        folder.text("tokenizer.json"),
        tokenizer_config=folder.optional_json("tokenizer_config.json"),
        special_tokens_map=folder.optional_json("special_tokens_map.json"),
        added_tokens=folder.optional_json("added_tokens.json"),
        eos_token_ids=eos_token_ids,
        rows=rows,
    )


def chat_template(folder: ModelFolder, files: TokenizerFiles) -> str | None:
    """The template of a file of its own: chat_template.jinja, or chat_template.json where no other file has one.

    None for that of tokenizer_config.json, or for none. The order is that of transformers.
    """
    if folder.has("chat_template.jinja"):
        return folder.text("chat_template.jinja")
    if files.tokenizer_config.get("chat_template") is None and folder.has("chat_template.json"):
        said = Fields(folder.json("chat_template.json"), "chat_template.json")
        return said.text("chat_template", default=None)
    return None


def note_of_templates(folder: ModelFolder, files: TokenizerFiles) -> list[str]:
    """One line on templates that are not used, beside the one that is."""
    named = Fields(files.tokenizer_config, "tokenizer_config.json").mappings("chat_template") or []
    others = [str(item.get("name")) for item in named if item.get("name") != "default"]
    others += sorted(path.stem for path in islice((folder.path / "additional_chat_templates").glob("*.jinja"), MOST))
    return [f"chat templates that are not used: {shown(', '.join(dict.fromkeys(others)))}"] if others else []
