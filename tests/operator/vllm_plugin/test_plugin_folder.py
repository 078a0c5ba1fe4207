"""The plugin in a folder of its own, as an interpreter without this project finds it."""

import subprocess
import sys
from pathlib import Path

from paternoster_operator.engines.vllm_plugin import write_plugin

FIND = """
import sys
from importlib.metadata import entry_points
(found,) = entry_points(group="vllm.general_plugins", name="paternoster")
register = found.load()
import paternoster_vllm.middleware, paternoster_vllm.engine_core
print(paternoster_vllm.__file__)
register()
print(sorted(name for name in sys.modules if name.split(".")[0] not in sys.stdlib_module_names and name != "__main__"))
"""
WITH_VLLM = """
import sys, types
core = types.ModuleType("vllm.v1.engine.core")
class EngineCore: pass
core.EngineCore = EngineCore
for name in ("vllm", "vllm.v1", "vllm.v1.engine"):
    sys.modules[name] = types.ModuleType(name)
sys.modules[core.__name__] = core
import paternoster_vllm
paternoster_vllm.register()
print(EngineCore.paternoster_control.__name__)
"""

LAYER = """
import sys
sys.path += {paths}
import paternoster_vllm.middleware as middleware, paternoster_contract.text_chains.stream as stream
assert middleware.follow_texts(print) is not print
print(stream.__file__)
"""


def run(folder: Path, code: str) -> tuple[list[str], str]:
    """Lines and errors of ``code`` in an interpreter that sees the standard library and ``folder`` alone."""
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), done.stderr


def test_python_finds_the_entry_point_without_any_other_package(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    write_plugin(tmp_path)
    (where, loaded), errors = run(tmp_path, FIND)
    assert Path(where).is_relative_to(tmp_path)
    names = [
        "", ".asgi", ".continuation", ".core_watch", ".drawn_ids", ".engine_core", ".engine_outputs", ".keys",
        ".limits", ".middleware", ".queue_limit", ".replayed_grammar", ".server_facts", ".step_sums",
        ".stream_journal", ".text_chains",
    ]  # fmt: skip
    assert loaded == str([f"paternoster_vllm{name}" for name in names])
    assert "this vLLM has no engine core" in errors


def test_the_layer_of_text_chains_needs_pydantic_alone(tmp_path: Path) -> None:
    """Without it, as no image of vLLM is, all else works."""
    write_plugin(tmp_path)
    (where,), _ = run(tmp_path, LAYER.format(paths=[each for each in sys.path if each.endswith("site-packages")]))
    assert Path(where).is_relative_to(tmp_path)
    assert run(tmp_path, "import paternoster_vllm.middleware as m; print(m.follow_texts(print) is print)")[0] == [
        "True"
    ]


def test_the_engine_core_gets_its_method(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    assert run(tmp_path, WITH_VLLM)[0] == ["call_control"]
