"""A file of few lines that one other alone imports is read with it, and so it belongs into it."""

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("batch", "common", "engine", "gateway", "kernels", "load", "operator", "simulator")
OTHERS = ("benchmarks", "e2e", "scripts")
"""Folders that import files of the product too."""
LEFT = Path(__file__).with_name("small_files.txt")
"""Files that are left for now. The list only gets shorter: merge one into its importer, and remove its line."""
MIN_LINES = 40
"""Lines from which a file may stand beside its only importer."""


def find_small_files(files: Mapping[str, str]) -> dict[str, str]:
    """The only importer of each small file, both of one package, in the code by path of ``files``."""
    paths = {module_name(path): path for path in files if is_product(path)}
    importers: dict[str, set[str]] = defaultdict(set)
    for path, code in files.items():
        for module in imported_modules(code):
            if (imported := paths.get(module, path)) != path:
                importers[imported].add(path)
    return {
        path: importer
        for path, (importer, *others) in importers.items()
        if not others and package_of(path) == package_of(importer) and is_small(path, files[path])
    }


def is_product(path: str) -> bool:
    return path.startswith(tuple(f"{folder}/" for folder in PRODUCT))


def is_small(path: str, code: str) -> bool:
    return PurePosixPath(path).name != "__init__.py" and len(code.splitlines()) < MIN_LINES


def package_of(path: str) -> str:
    return "/".join(PurePosixPath(path).parts[:2])


def module_name(path: str) -> str:
    return ".".join(PurePosixPath(path).with_suffix("").parts[1:]).removesuffix(".__init__")


def imported_modules(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def read_files() -> dict[str, str]:
    patterns = [f"{folder}/*.py" for folder in (*PRODUCT, *OTHERS)]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = [path for path in listed.stdout.splitlines() if (ROOT / path).exists() and "/tests/" not in path]
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}


def test_small_files_are_merged_into_their_only_importer() -> None:
    files = read_files()
    assert len(files) > 500
    small, left = find_small_files(files), LEFT.read_text(encoding="utf-8").splitlines()
    assert {path: importer for path, importer in small.items() if path not in left} == {}, (
        "merge each into its importer"
    )
    assert [path for path in left if path not in small] == [], f"no longer small or alone: remove from {LEFT.name}"
    assert left == sorted(left)


def test_a_small_file_with_one_importer_is_found() -> None:
    files = {
        "gateway/p/a.py": "from p.b import B\nimport p.c\n",
        "gateway/p/b.py": "B = 1\n",
        "gateway/p/c.py": "C = 1\n" * MIN_LINES,
    }
    assert find_small_files(files) == {"gateway/p/b.py": "gateway/p/a.py"}
    assert find_small_files({**files, "benchmarks/d.py": "from p import b\n"}) == {}
    assert find_small_files({"gateway/p/b.py": "B = 1\n", "engine/q/a.py": "import p.b\n"}) == {}
    assert find_small_files({**files, "gateway/p/c.py": "C = 1\n"}).keys() == {"gateway/p/b.py", "gateway/p/c.py"}
