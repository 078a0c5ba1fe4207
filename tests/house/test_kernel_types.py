"""Functions of the Triton folder that run on the host have types: mypy cannot tell them from those on the device."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "kernels/paternoster_kernels/triton"


def untyped_functions(code: str) -> list[str]:
    """Functions that ``triton.jit`` does not decorate and that lack an annotation."""
    functions = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    hosts = [node for node in functions if not any("triton.jit" in ast.unparse(each) for each in node.decorator_list)]
    return [
        node.name
        for node in hosts
        if node.returns is None or any(each.annotation is None for each in (*node.args.args, *node.args.kwonlyargs))
    ]


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.stem)
def test_host_functions_have_types(path: Path) -> None:
    assert untyped_functions(path.read_text(encoding="utf-8")) == []


def test_a_host_function_without_types_is_reported() -> None:
    assert untyped_functions("@triton.jit\ndef kernel(x): ...\ndef host(x: int, y) -> None: ...\n") == ["host"]
