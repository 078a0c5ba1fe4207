"""The process that compiles a template and renders with it; the kernel ends it at its limits.

Standard input brings ``Start`` and then conversations, standard output gives what they were rendered to. When the pipe
closes the process ends; a template that never ends is ended by its timer, also when nobody is left to kill it.
"""

import resource
import signal
import sys
from typing import Any

from paternoster_engine.chat import frames
from paternoster_engine.chat.arguments import with_arguments
from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.chat.template import ChatTemplate


def main() -> None:
    # A key pressed in a terminal is for the engine, which lets what runs finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    start = frames.read(requests)
    for limit, value in ((resource.RLIMIT_AS, start["memory"]), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (value, value))
    # The default action of SIGPROF ends the process, also in the midst of one long operation.
    signal.setitimer(signal.ITIMER_PROF, start["cpu_time"])
    try:
        template = ChatTemplate(start["source"], start["variables"])
    except ChatTemplateError as error:
        frames.write(answers, {"error": str(error)})
        return
    signal.setitimer(signal.ITIMER_PROF, 0)
    frames.write(answers, {})
    while True:
        try:
            request = frames.read(requests)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, start["cpu_time"])
        answer = _render(template, request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        frames.write(answers, answer)


def _render(template: ChatTemplate, request: dict[str, Any]) -> dict[str, str]:
    messages = [with_arguments(message) for message in request["messages"]]
    try:
        return {"text": template.render(messages, request["most"], **request["variables"])}
    except ChatTemplateError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main()
