"""The plugin of vLLM as a folder: its package, and the metadata by which vLLM finds it on PYTHONPATH."""

import importlib.metadata
import shutil
from importlib.resources import as_file, files
from pathlib import Path

PACKAGE = "paternoster_vllm"
ENTRY_POINTS = f"[vllm.general_plugins]\npaternoster = {PACKAGE}:register\n"


def write_plugin(folder: Path) -> None:
    """Write the plugin into ``folder``, which is made if need be; what an earlier call wrote is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    with as_file(files(PACKAGE)) as package:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.rmtree(folder / PACKAGE, ignore_errors=True)
        shutil.copytree(package, folder / PACKAGE, ignore=ignored)
    version = importlib.metadata.version("paternoster")
    metadata = folder / f"{PACKAGE}-{version}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
