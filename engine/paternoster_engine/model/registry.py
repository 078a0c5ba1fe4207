"""Architectures by the name their files give them."""

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import shown
from paternoster_engine.model.llama import Llama
from paternoster_engine.model.qwen3 import Qwen3

ARCHITECTURES: dict[str, type[Llama]] = {"llama": Llama, "mistral": Llama, "qwen3": Qwen3}
"""``general.architecture`` of a GGUF file, ``model_type`` of a config.json."""


def find_architecture(name: str) -> type[Llama]:
    """The class that runs ``name``; raises :class:`UnsupportedModelError`."""
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(f"model architecture {shown(name)}: supported are {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]
