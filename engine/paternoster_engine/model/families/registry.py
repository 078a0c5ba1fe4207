"""Families by the name that files give them."""

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.families.family import Family
from paternoster_engine.model.families.gemma import GEMMA2, GEMMA3
from paternoster_engine.model.families.gpt_oss import GPT_OSS
from paternoster_engine.model.families.granite import GRANITE
from paternoster_engine.model.families.llama import LLAMA, MISTRAL, MIXTRAL
from paternoster_engine.model.families.olmo2 import OLMO2, OLMO3
from paternoster_engine.model.families.phi3 import PHI3
from paternoster_engine.model.families.qwen import QWEN2, QWEN3, QWEN3_MOE
from paternoster_engine.model.families.smollm3 import SMOLLM3
from paternoster_engine.model.fields import shorten_value

FAMILIES: dict[str, Family] = {
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3,
    "gpt-oss": GPT_OSS,
    "gpt_oss": GPT_OSS,
    "granite": GRANITE,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "mixtral": MIXTRAL,
    "olmo2": OLMO2,
    "olmo3": OLMO3,
    "phi3": PHI3,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3_MOE,
    "qwen3moe": QWEN3_MOE,
    "smollm3": SMOLLM3,
}
"""``general.architecture`` of a GGUF file, ``model_type`` of a config.json."""


def find_family(name: str) -> Family:
    """The family that runs ``name``; raises :class:`UnsupportedModelError`."""
    if name not in FAMILIES:
        raise UnsupportedModelError(f"model architecture {shorten_value(name)}: supported are {', '.join(FAMILIES)}")
    return FAMILIES[name]
