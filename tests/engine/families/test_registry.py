"""Each family that the registry has is tested and documented."""

from pathlib import Path

from tests.engine.families import tiny_families as tiny

from paternoster_engine.model.families.registry import FAMILIES

MODELS_PAGE = Path(__file__).parents[3] / "docs/models.md"


def test_every_family_has_a_tiny_model() -> None:
    tested = {name.partition(",")[0] for name in tiny.MODELS} | set(tiny.GGUF.values())
    assert FAMILIES.keys() - tested == set()


def test_every_family_is_in_the_table_of_models() -> None:
    page = MODELS_PAGE.read_text(encoding="utf-8")
    assert [name for name in FAMILIES if f"`{name}`" not in page] == []
