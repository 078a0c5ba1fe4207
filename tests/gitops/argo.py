"""How Argo CD runs a health script.

Reference: argo-cd util/lua/lua.go: ``obj`` is a global, the script returns a table, and of Lua's libraries only
package, base, table and a cut-down os are open.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lupa.lua51 import LuaRuntime

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "gitops" / "argocd"
STATUSES = ("Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown")
_CLOSED = ("string", "math", "io", "debug", "coroutine", "os", "python", "print")


class Health(NamedTuple):
    status: str
    message: str


def health(document: Mapping[str, Any], script: str | None = None) -> Health:
    """What health.lua, or ``script``, says of a resource."""
    lua = LuaRuntime(register_eval=False, register_builtins=False)
    lua.execute("getmetatable('').__index = nil")
    for name in _CLOSED:
        lua.globals()[name] = None
    lua.globals()["obj"] = lua.table_from(_without_nulls(document), recursive=True)
    result = lua.execute((FOLDER / "health.lua").read_text(encoding="utf-8") if script is None else script)
    assert result["status"] in STATUSES
    return Health(result["status"], result["message"] or "")


def _without_nulls(value: Any) -> Any:
    """JSON's null is Lua's nil: a key that is not there."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
