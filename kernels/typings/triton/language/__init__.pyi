"""Triton's language: what a kernel computes with has no Python types."""

from typing import Any, TypeAlias

constexpr: TypeAlias = Any

def __getattr__(name: str) -> Any: ...
