"""The process that compiles a template and renders with it."""

from collections.abc import Mapping
from typing import Any

from paternoster_engine.chat.arguments import with_arguments
from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.chat.fitting import fit_skeleton
from paternoster_engine.chat.reshape import Conversation, reshape_messages
from paternoster_engine.chat.template import ChatTemplate
from paternoster_engine.limited.worker import Answer, serve_requests


def compile_template(given: Mapping[str, Any]) -> Answer:
    """Compile the template ``source`` with ``variables``; the answer renders a conversation or fits a skeleton."""
    template = ChatTemplate(given["source"], given["variables"])

    def answer_request(request: Mapping[str, Any]) -> dict[str, Any]:
        variables, most = request["variables"], request["most"]

        def render(messages: Conversation) -> str:
            return template.render([with_arguments(message) for message in messages], most, **variables)

        if "required" in request:
            found = fit_skeleton(request["messages"], request["required"], render)
            return {"steps": found.steps, "shown": list(found.shown), "fault": found.error}
        return {"text": render(reshape_messages(request["messages"], request["steps"]))}

    return answer_request


if __name__ == "__main__":
    serve_requests(compile_template, ChatTemplateError)
