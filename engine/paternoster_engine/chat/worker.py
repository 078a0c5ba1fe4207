"""The process that compiles a template and renders with it."""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.chat.arguments import with_arguments
from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.chat.template import ChatTemplate
from paternoster_engine.limited.worker import Answer, serve


def prepare(given: Mapping[str, Any]) -> Answer:
    """``source`` of the template and the ``variables`` of all renderings; then conversations come."""
    template = ChatTemplate(given["source"], given["variables"])

    def render(request: Mapping[str, Any]) -> dict[str, str]:
        messages = [with_arguments(message) for message in request["messages"]]
        return {"text": template.render(messages, request["most"], **request["variables"])}

    return render


if __name__ == "__main__":
    serve(prepare, ChatTemplateError)
