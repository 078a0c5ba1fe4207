"""The engine's side of the process that renders chat templates."""

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from paternoster_engine.chat.errors import ChatTemplateError, RendererLost
from paternoster_engine.chat.fitting import TemplateFit
from paternoster_engine.chat.reshape import Step
from paternoster_engine.chat.skeleton import Skeleton
from paternoster_engine.limited.process import LimitedProcess, ProcessEnded, ProcessLimits, repeat_if_lost

CPU_TIME = 1.0
"""Seconds of a processor for one rendering, and for compiling."""
WALL_TIME = 20.0
"""Seconds after which a process that computes nothing is killed as well."""
MEMORY = 512 * 2**20
"""Bytes of address space; an idle renderer has 30 MiB."""

MAX_FITS = 256
"""Shapes of conversations whose :class:`TemplateFit` is cached."""
MOST_OF_SKELETON = 16 * 2**20
"""Most bytes of a rendered skeleton."""


class Renderer:
    """Renders with one template, one conversation at a time; a process that ended is replaced at the next one."""

    def __init__(self, source: str | None, variables: Mapping[str, str]) -> None:
        """``source``: the model's template, None where it has none. ``variables`` are given to every rendering."""
        self._given = {"source": source, "variables": dict(variables)}
        self._fault = "the model file has no chat template" if source is None else None
        self._process: LimitedProcess | None = None
        self._turn = threading.Lock()
        self._fits: dict[bytes, TemplateFit] = {}

    def render(
        self, messages: Sequence[Mapping[str, Any]], most: int, steps: Sequence[Step] = (), /, **variables: Any
    ) -> str:
        """Prompt text of ``messages`` after ``steps``, at most ``most`` bytes; waits, so it is called in a thread.

        Raises :class:`ChatTemplateError`, and :class:`RendererLost` if the process was ended from outside twice.
        """
        text: str = self._request_answer({"messages": messages, "most": most, "steps": steps, "variables": variables})[
            "text"
        ]
        return text

    def fit_template(self, skeleton: Skeleton, /, **variables: Any) -> TemplateFit:
        """Return the form in which the template shows conversations of this shape; cached. Raises as :meth:`render`.

        ``variables``: those of the template besides the skeleton's.
        """
        request = {
            "messages": skeleton.messages,
            "required": skeleton.required,
            "variables": skeleton.variables | variables,
            "most": MOST_OF_SKELETON,
        }
        key = blake2b(json.dumps(request, sort_keys=True).encode(), digest_size=16).digest()
        found = self._fits.get(key)
        if found is None:
            answer = self._request_answer(request)
            steps = tuple((name, tuple(indices)) for name, indices in answer["steps"])
            found = TemplateFit(steps, frozenset(answer["shown"]), answer["fault"])
            self._fits[key] = found
            if len(self._fits) > MAX_FITS:
                with contextlib.suppress(KeyError, StopIteration):
                    # Another thread may have removed it.
                    del self._fits[next(iter(self._fits))]
        return found

    def _request_answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        def request_answer() -> dict[str, Any]:
            process = self._ensure_process()
            return _answer_or_error(lambda: process.request_answer(request, WALL_TIME))

        with self._turn:
            answer = repeat_if_lost(request_answer, RendererLost)
        if "error" in answer:
            raise ChatTemplateError(answer["error"])
        return answer

    def warm_up(self) -> None:
        """Start the process before the first conversation needs it; that one gets the template's errors."""
        with self._turn, contextlib.suppress(ChatTemplateError, RendererLost):
            self._ensure_process()

    def close(self) -> None:
        """End the process; the next rendering would start another."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _ensure_process(self) -> LimitedProcess:
        if self._fault is not None:
            raise ChatTemplateError(self._fault)
        if self._process is not None and self._process.alive:
            return self._process
        self.close()
        process = self._process = LimitedProcess("paternoster_engine.chat.worker", ProcessLimits(CPU_TIME, MEMORY))
        try:
            answer = _answer_or_error(lambda: process.prepare_process(self._given, WALL_TIME))
        except ChatTemplateError as error:
            # It would not compile the next time either, and each try costs a second of a processor.
            self._fault = f"while it is compiled, {error}"
            raise ChatTemplateError(self._fault) from error
        if "error" in answer:
            self._fault = answer["error"]
            raise ChatTemplateError(self._fault)
        return process


def _answer_or_error(request_answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return request_answer()
    except ProcessEnded as ended:
        if ended.status in (-signal.SIGKILL, -signal.SIGTERM):
            raise RendererLost from ended
        over = ended.status == -signal.SIGPROF
        fault = f"takes more than {CPU_TIME:g} s of a processor" if over else "ends its process"
        raise ChatTemplateError(f"the model's chat template {fault}: {ended}") from ended
