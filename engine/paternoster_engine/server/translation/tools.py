"""Tools of a client as functions of a chat, with the place of each in the client's body."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["function", "custom", "tool_search"]


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool of a client that the model may call."""

    function: Mapping[str, Any]
    """The function of the chat completion, whose name is unique in the chat."""
    place: str
    """Path in the client's body."""
    kind: Kind = "function"
    name: str | None = None
    """The client's name, where it differs from the function's."""
    namespace: str | None = None

    @property
    def chat_name(self) -> str:
        name: str = self.function["name"]
        return name

    @property
    def client_name(self) -> str:
        return self.chat_name if self.name is None else self.name

    def build_definition(self) -> dict[str, Any]:
        return {"type": "function", "function": self.function}


class Offer:
    """The tools that a conversation offers, by the names of their functions; the last tool of a name counts."""

    def __init__(self) -> None:
        self._at_first: dict[str, OfferedTool] = {}
        """Tools that the chat template writes."""
        self._later: dict[str, OfferedTool] = {}
        """Tools that a message shows where they are offered, so that the prompt before stays the same."""

    def add(self, tool: OfferedTool, *, later: bool = False) -> None:
        self.remove(tool.chat_name)
        (self._later if later else self._at_first)[tool.chat_name] = tool

    def remove(self, name: str) -> None:
        """Withdraw the tool; no effect where there is none of this name."""
        self._at_first.pop(name, None)
        self._later.pop(name, None)

    @property
    def tools(self) -> Mapping[str, OfferedTool]:
        return self._at_first | self._later

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The tools as the chat's body has them."""
        return [tool.build_definition() for tool in self.tools.values()]

    @property
    def shown_later(self) -> frozenset[str]:
        """Functions that the template leaves out because a message shows them; empty where all would be left out."""
        return frozenset(self._later) if self._at_first else frozenset()


def definitions_text(tools: Iterable[OfferedTool]) -> str:
    """Return the text with which a message offers ``tools`` from there on."""
    lines = [json.dumps(tool.build_definition(), ensure_ascii=False) for tool in tools]
    return "\n".join(["Functions that can be called from here on:", *lines])
