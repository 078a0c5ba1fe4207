"""Tools that Anthropic defines and the client runs: functions whose inputs a type with a date stands for.

https://docs.anthropic.com/en/docs/agents-and-tools/tool-use. Tools that show the model pictures are not among them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class ClientTool(NamedTuple):
    name: str
    description: str
    input_schema: Mapping[str, Any]


_TEXT, _LINE = {"type": "string"}, {"type": "integer"}
_RANGE = {"type": "array", "items": _LINE, "minItems": 2, "maxItems": 2}


def _of_commands(commands: Sequence[str], *required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"command": {"type": "string", "enum": list(commands)}, **properties},
        "required": ["command", *required],
    }


BASH = ClientTool(
    "bash",
    "Runs a command in a bash shell that keeps its state from call to call. Give either command, or restart: true to "
    "start the shell anew.",
    {"type": "object", "properties": {"command": _TEXT, "restart": {"type": "boolean"}}},
)
_EDITS = ("view", "create", "str_replace", "insert")
_EDITED = {
    "path": {"type": "string", "description": "of the file, or of a directory for view"},
    "view_range": {**_RANGE, "description": "of view: first and last line, from 1 on; -1 is the end of the file"},
    "file_text": {"type": "string", "description": "of create: the whole file"},
    "old_str": {"type": "string", "description": "of str_replace: text that is in the file exactly once"},
    "new_str": {"type": "string", "description": "of str_replace and insert: the new text"},
    "insert_line": {"type": "integer", "description": "of insert: the line after which it comes; 0 is the beginning"},
}
_EDITOR = "Views, creates and edits text files: view, create, str_replace and insert"
EDITOR = ClientTool("str_replace_based_edit_tool", f"{_EDITOR}.", _of_commands(_EDITS, "path", **_EDITED))
OLDER_EDITOR = ClientTool(
    "str_replace_editor",
    f"{_EDITOR}; undo_edit takes back the last edit of a file.",
    _of_commands((*_EDITS, "undo_edit"), "path", **_EDITED),
)
MEMORY = ClientTool(
    "memory",
    "Keeps notes in files below /memories from one conversation to the next. View the directory before you begin, and "
    "write down what later conversations need: view, create, str_replace, insert, delete and rename.",
    _of_commands(
        (*_EDITS, "delete", "rename"),
        **{name: value for name, value in _EDITED.items() if name != "new_str"},
        new_str={"type": "string", "description": "of str_replace: the new text"},
        insert_text={"type": "string", "description": "of insert: the new text"},
        old_path={"type": "string", "description": "of rename"},
        new_path={"type": "string", "description": "of rename"},
    ),
)
CLIENT_TOOLS: Mapping[str, ClientTool] = {
    "bash_20241022": BASH,
    "bash_20250124": BASH,
    "text_editor_20241022": OLDER_EDITOR,
    "text_editor_20250124": OLDER_EDITOR,
    "text_editor_20250429": EDITOR,
    "text_editor_20250728": EDITOR,
    "memory_20250818": MEMORY,
}
"""Tools by their types in the requests of Anthropic's clients."""
