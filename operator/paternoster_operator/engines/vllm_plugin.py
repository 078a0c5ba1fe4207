"""The plugin of vLLM as a folder: its packages, and the metadata by which vLLM finds it on PYTHONPATH."""

import importlib.metadata
import shutil
from importlib.resources import as_file, files
from pathlib import Path

PACKAGE = "paternoster_vllm"
COPIES = "copies"
"""Folder of the package from which it imports what no installed package has."""
CONTRACT, SHARED = "paternoster_contract", "text_chains"
"""The package of which the plugin has a copy of this folder: gateways compute the same digests by it."""
ENTRY_POINTS = f"[vllm.general_plugins]\npaternoster = {PACKAGE}:register\n"


def write_plugin(folder: Path) -> None:
    """Write the plugin into ``folder``, which is made if need be; what an earlier call wrote is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    _copy_package(PACKAGE, folder)
    # Not on PYTHONPATH itself, where it would be found in place of a whole package of that name.
    contract = folder / PACKAGE / COPIES / CONTRACT
    _copy_package(CONTRACT, contract, SHARED)
    (contract / "__init__.py").touch()
    version = importlib.metadata.version("paternoster")
    metadata = folder / f"{PACKAGE}-{version}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)


def _copy_package(name: str, folder: Path, within: str = "") -> None:
    """A package, or its folder ``within``, into ``folder``."""
    with as_file(files(name)) as package:
        target = folder / (within or name)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(package / within, target, ignore=shutil.ignore_patterns("__pycache__"))
