"""The process that compiles a template and renders with it."""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.chat.arguments import with_arguments
from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.chat.fitting import fit
from paternoster_engine.chat.reshape import Conversation, reshape
from paternoster_engine.chat.template import ChatTemplate
from paternoster_engine.limited.worker import Answer, serve


def prepare(given: Mapping[str, Any]) -> Answer:
    """Compile the template ``source`` with ``variables``; the answer renders a conversation or fits a skeleton."""
    template = ChatTemplate(given["source"], given["variables"])

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        variables, most = request["variables"], request["most"]

        def render(messages: Conversation) -> str:
            return template.render([with_arguments(message) for message in messages], most, **variables)

        if "required" in request:
            found = fit(request["messages"], request["required"], render)
            return {"steps": found.steps, "shown": list(found.shown), "fault": found.error}
        return {"text": render(reshape(request["messages"], request["steps"]))}

    return answer


if __name__ == "__main__":
    serve(prepare, ChatTemplateError)
