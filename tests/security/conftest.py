"""The engine in this process that the tests of its server have."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

TESTS = Path(__file__).parents[1]


def _load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{'_'.join(file.relative_to(TESTS).parts[:-1])}_fixtures", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_engine = _load(TESTS / "engine" / "conftest.py")
source, checkpoint, tokenizer = _engine.source, _engine.checkpoint, _engine.tokenizer
serve = _load(TESTS / "engine" / "server" / "conftest.py").serve
